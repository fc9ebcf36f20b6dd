#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Formats the C++ sources; with --check only says what is not formatted.
# Needs clang-format 14, since versions differ in details. Exit code 77 with --check: it is not here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly version=14

program=
for candidate in "clang-format-$version" clang-format; do
  if "$candidate" --version 2>/dev/null | grep -q "version $version\."; then
    program=$candidate
    break
  fi
done
if [[ -z $program ]]; then
  echo "format: skipped, clang-format $version is not installed (Debian 12: clang-format)" >&2
  [[ ${1:-} == --check ]] && exit 77
  exit 1
fi

mode=(-i)
[[ ${1:-} == --check ]] && mode=(--dry-run -Werror)
find src tests benchmarks examples python \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) \
  -print0 | sort -z | xargs -0 -r "$program" --style=file "${mode[@]}"
