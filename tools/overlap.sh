#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Iteration times of algorithms on a slow link, with forecast and replay: RANKS ranks (4) in a network of
# their own whose loopback carries RATE (1gbit), a quarter-width ResNet-50. Needs root for the network.
# Further arguments go to `spdkfac bench iteration`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=${SPDKFAC:-build/release/bin/spdkfac}
as_root=()
((EUID == 0)) && as_root=(--allow-run-as-root)
mkdir -p out
export OMP_NUM_THREADS=1 GOMP_SPINCOUNT=0
exec tools/with_link.sh --rate "${RATE:-1gbit}" -- \
  mpirun "${as_root[@]}" --oversubscribe --bind-to none -n "${RANKS:-4}" \
  "$program" bench iteration --model resnet50 --width 0.25 --input 3x64x64 --batch 8 --threads 1 \
  --recalibrate --trace out/overlap.trace.json --out out/overlap.json "$@"
