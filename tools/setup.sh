#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing of what the build needs, and says nothing if all is there:
#   tools/setup.sh           planning and simulation
#   tools/setup.sh --torch   also training: MPI, a data set and, in .venv, LibTorch (requirements.txt)
#   tools/setup.sh --test    also what the tests run (requirements-test.txt, a browser, --docs)
#   tools/setup.sh --docs    only what the site of the documentation needs, in .venv-docs (requirements-docs.txt)
# A Debian package counts as installed if dpkg says so, or if its program, header or folder is found.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

with_torch=false
with_tests=false
only_docs=false
case ${1-} in
  "") ;;
  --torch) with_torch=true ;;
  --test) with_torch=true with_tests=true ;;
  --docs) only_docs=true ;;
  *)
    echo "setup: unknown argument $1; pass --torch, --test, --docs or nothing" >&2
    exit 2
    ;;
esac

# package, then what it brings: a program or a header.
needed=(
  "g++ g++"
  "cmake cmake"
  "ninja-build ninja"
  "python3 python3"
  "nlohmann-json3-dev nlohmann/json.hpp"
  "libfmt-dev fmt/format.h"
  "libgtest-dev gtest/gtest.h"
  "libgmock-dev gmock/gmock.h"
  "libbenchmark-dev benchmark/benchmark.h"
)
$only_docs && needed=("python3 python3" "python3-venv /usr/share/doc/python3-venv"
  "ca-certificates /etc/ssl/certs/ca-certificates.crt")
if $with_torch; then
  needed+=(
    "zlib1g-dev zlib.h"
    "libopenmpi-dev mpi.h"
    "openmpi-bin mpirun"
    "python3-venv /usr/share/doc/python3-venv"
    "python3-dev python3-config"
    "ca-certificates /etc/ssl/certs/ca-certificates.crt"
    "dataset-fashion-mnist /usr/share/datasets/fashion-mnist"
  )
fi
# The build works without these. They cache compilations, check the format, slow a link down and test
# the page in a browser.
useful=("ccache ccache")
$only_docs && useful=()
if $with_tests; then
  useful+=("clang-format clang-format" "iproute2 /usr/sbin/tc" "chromium chromium")
fi
readonly useful

present() {
  local package=$1 brings=$2 prefix
  if [[ $brings == *.h* ]]; then
    for prefix in /usr /usr/local ${CMAKE_PREFIX_PATH:+${CMAKE_PREFIX_PATH//[:;]/ }}; do
      [[ -e $prefix/include/$brings ]] && return 0
    done
  elif [[ $brings == /* && -e $brings ]] || command -v "$brings" >/dev/null; then
    return 0
  fi
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]]
}

install_debian_packages() {
  missing_needed=()
  missing_useful=()
  for entry in "${needed[@]}"; do
    read -r package brings <<<"$entry"
    present "$package" "$brings" || missing_needed+=("$package")
  done
  for entry in "${useful[@]}"; do
    read -r package brings <<<"$entry"
    present "$package" "$brings" || missing_useful+=("$package")
  done
  missing=("${missing_needed[@]}" "${missing_useful[@]}")
  ((${#missing[@]} == 0)) && return 0

  if ! command -v apt-get >/dev/null; then
    echo "setup: not a Debian system; missing, by Debian name: ${missing[*]}"
    echo "setup: install them if the build asks for them"
    for tool in cmake ninja python3; do
      command -v "$tool" >/dev/null || return 1
    done
    return 0
  fi

  as_root=()
  if ((EUID != 0)); then
    if ! sudo -n true 2>/dev/null; then
      echo "setup: missing: ${missing[*]}; to install them, run" >&2
      echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
      ((${#missing_needed[@]} == 0)) && return 0
      return 1
    fi
    as_root=(sudo -n)
  fi

  echo "setup: installing ${missing[*]}"
  apt_get() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get -qq -o DPkg::Lock::Timeout=120 "$@"
  }
  apt_get update || echo "setup: apt-get update failed; trying the existing package lists" >&2
  apt_get install -y --no-install-recommends "${missing[@]}" >/dev/null && return 0

  echo "setup: apt-get could not install ${missing[*]}" >&2
  ((${#missing_needed[@]} == 0))
}

# Python packages, once for each version of a list. If the index cannot be reached, a torch of the
# system's Python will do; tests that need more say what is missing.
install_python_packages() {
  local list=$1 stamp
  stamp=.venv/.installed-$(cat requirements.txt "$list" | sha256sum | cut -c1-16)
  [[ -e $stamp ]] && return 0
  echo "setup: installing the packages of $list in .venv (torch: about 5 GB)"
  [[ -x .venv/bin/pip ]] || python3 -m venv .venv
  # Without --no-compile pip compiles thousands of modules that nothing imports.
  if .venv/bin/pip install --quiet --disable-pip-version-check --no-compile -r "$list"; then
    touch "$stamp"
  elif python3 -c 'import torch' 2>/dev/null; then
    echo "setup: pip failed; using the torch of $(command -v python3)" >&2
    rm -rf .venv
  else
    echo "setup: pip could not install the packages; check the network and run this again" >&2
    return 1
  fi
}

# Its own environment: the site needs neither torch nor the versions that the tests run with. Tests of the
# site are skipped without it.
install_docs_packages() {
  local stamp
  stamp=.venv-docs/.installed-$(sha256sum <requirements-docs.txt | cut -c1-16)
  [[ -e $stamp ]] && return 0
  echo "setup: installing the packages of requirements-docs.txt in .venv-docs"
  [[ -x .venv-docs/bin/pip ]] || python3 -m venv .venv-docs
  if .venv-docs/bin/pip install --quiet --disable-pip-version-check --no-compile -r requirements-docs.txt; then
    touch "$stamp"
  else
    echo "setup: pip could not install the packages of the site; check the network and run this again" >&2
    return 1
  fi
}

install_debian_packages
if $only_docs; then
  install_docs_packages
elif $with_tests; then
  install_python_packages requirements-test.txt
  install_docs_packages || true
elif $with_torch; then
  install_python_packages requirements.txt
fi
