#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command whose ranks share a slow link, for real and on one machine: in a network namespace
# of its own, whose loopback tc holds to a rate. The namespace goes with the command.
#
#   with_link.sh --rate 1gbit [--latency 1ms] -- mpirun -n 4 spdkfac calibrate --out slow.json
#
# --rate     as tc reads it: 200mbit, 1gbit
# --latency  added to every packet; needs the kernel's netem
#
# Open MPI is told by its environment to talk over TCP on the loopback, so any mpirun inside does.
# SPDKFAC_LINK names the link, so that costs measured on it are not taken for those of another.
# Exit code: the command's; 2 for a mistake in the flags; 77 without root, tc, ip or unshare.
set -euo pipefail

usage() {
  echo "with_link: $1; write with_link.sh --rate 1gbit [--latency 1ms] -- command…" >&2
  exit 2
}
unable() {
  echo "with_link: $1" >&2
  exit 77
}

rate= latency=
while [[ $# -gt 0 ]]; do
  case $1 in
    --rate | --latency)
      [[ $# -ge 2 ]] || usage "$1 has no value"
      if [[ $1 == --rate ]]; then rate=$2; else latency=$2; fi
      shift 2
      ;;
    --)
      shift
      break
      ;;
    *) usage "$1 is not an option" ;;
  esac
done
[[ -n $rate ]] || usage "--rate is missing"
[[ $rate =~ ^[0-9]+(\.[0-9]+)?[kmgt]?bit$ ]] || usage "--rate $rate is not a rate"
[[ -z $latency || $latency =~ ^[0-9]+(\.[0-9]+)?(us|ms|s)$ ]] || usage "--latency $latency is not a time"
[[ $# -gt 0 ]] || usage "the command is missing"

[[ $EUID -eq 0 ]] || unable "a network namespace needs root; run this as root"
PATH=$PATH:/usr/sbin:/sbin
for program in ip tc unshare; do
  command -v "$program" > /dev/null ||
    unable "$program is not installed; install iproute2 and util-linux"
done

export SPDKFAC_LINK=$rate${latency:+,$latency}
export OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
export OMPI_MCA_pml=ob1  # others choose their own transport
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# The bucket must hold a packet of the loopback, which has 64 KiB unless told otherwise. What it holds
# passes for nothing after each pause, as in no network: packets of 16 KiB, and two of them.
exec unshare --net bash -c '
  set -euo pipefail
  rate=$1 latency=$2
  shift 2
  unable() {
    echo "with_link: $1" >&2
    exit 77
  }
  ip link set lo mtu 16384 up || unable "the loopback cannot be started; check the permissions of the container"
  parent=root
  if [[ -n $latency ]]; then
    tc qdisc add dev lo root handle 1: netem delay "$latency" limit 100000 ||
      unable "this kernel has no netem, which --latency needs; remove the flag"
    parent="parent 1:"
  fi
  tc qdisc add dev lo $parent tbf rate "$rate" burst 32kb latency 100ms ||
    unable "tc cannot shape the loopback at $rate; does this kernel have tbf?"
  exec "$@"
' with_link "$rate" "$latency" "$@"
