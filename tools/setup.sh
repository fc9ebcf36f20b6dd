#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that the build needs and that are missing. Quiet when all are there.
# A thing counts as there when its package is installed, or its program or header is found.
set -euo pipefail

# package, then what it brings: a program or a header.
readonly needed=(
  "g++ g++"
  "cmake cmake"
  "ninja-build ninja"
  "python3 python3"
  "nlohmann-json3-dev nlohmann/json.hpp"
  "libcli11-dev CLI/CLI.hpp"
  "libspdlog-dev spdlog/spdlog.h"
  "libfmt-dev fmt/format.h"
  "libgtest-dev gtest/gtest.h"
  "libgmock-dev gmock/gmock.h"
  "libbenchmark-dev benchmark/benchmark.h"
)
# The build works without these: no cache of compilations, no check of the format.
readonly useful=("ccache ccache" "clang-format clang-format")

present() {
  local package=$1 brings=$2 prefix
  if [[ $brings == *.h* ]]; then
    for prefix in /usr /usr/local ${CMAKE_PREFIX_PATH:+${CMAKE_PREFIX_PATH//[:;]/ }}; do
      [[ -e $prefix/include/$brings ]] && return 0
    done
  elif command -v "$brings" >/dev/null; then
    return 0
  fi
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]]
}

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
((${#missing[@]} == 0)) && exit 0

if ! command -v apt-get >/dev/null; then
  echo "setup: not a Debian system; not found here, by their Debian names: ${missing[*]}"
  echo "setup: install them if the build asks for them"
  for tool in cmake ninja python3; do
    command -v "$tool" >/dev/null || exit 1
  done
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! sudo -n true 2>/dev/null; then
    echo "setup: missing: ${missing[*]}; to install them, run" >&2
    echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    ((${#missing_needed[@]} == 0)) && exit 0
    exit 1
  fi
  as_root=(sudo -n)
fi

echo "setup: installing ${missing[*]}"
apt_get() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq -o DPkg::Lock::Timeout=120 "$@"
}
apt_get update || echo "setup: apt-get update failed; trying with the lists that are here" >&2
apt_get install -y --no-install-recommends "${missing[@]}" >/dev/null && exit 0

echo "setup: apt-get could not install ${missing[*]}" >&2
((${#missing_needed[@]} == 0)) || exit 1
