#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the layers of src/spdkfac, SPDX lines, `#pragma once` and the length of files.

Usage: check_layers.py [--root DIR] | --self-test
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path
from typing import Iterator

# What a folder may include besides itself: folders, or single headers of a folder.
MAY_INCLUDE: dict[str, set[str]] = {
    "base": set(),
    "plan": {"base"},
    "sim": {"base", "plan"},
    "report": {"base", "plan"},
    "comm": {"base"},
    "kfac": {"base"},
    "models": {"base", "plan/layer_spec.h"},
    "data": {"base"},
    "runtime": {"base", "plan", "sim", "comm", "kfac"},
    "calibrate": {"base", "plan", "comm", "kfac", "models"},
}
MAY_INCLUDE["cli"] = set(MAY_INCLUDE)

# Folders that build without torch, MPI and CUDA, and the headers of those.
TORCH_FREE = {"base", "plan", "sim", "report"}
HEAVY_HEADER = re.compile(
    r"^(torch/|ATen/|c10/|caffe2/|pybind11/|thrust/|cub/|mpi|nccl|cuda|cublas|cusolver|nvtx|nvToolsExt)"
)

MAX_LINES = 600
LIMITED = ("src", "tests", "tools", "page")
LICENSED = ("src", "tests", "benchmarks", "tools", "cmake", "page", "python", "examples")
CXX_SUFFIXES = {".h", ".cuh", ".cpp", ".cu"}
SOURCE_SUFFIXES = CXX_SUFFIXES | {".py", ".sh", ".cmake"}
SPDX = "SPDX-License-Identifier: Apache-2.0"
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def sources(root: Path, folders: tuple[str, ...]) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            is_source = path.suffix in SOURCE_SUFFIXES or path.name == "CMakeLists.txt"
            if path.is_file() and is_source:
                yield path


def check_include(folder: str, quote: str, header: str) -> str | None:
    """What is wrong with including `header` in a source of `folder`, if anything."""
    if folder in TORCH_FREE and HEAVY_HEADER.match(header):
        return f"{folder} must not include <{header}>: it builds without torch, MPI and CUDA"
    if not header.startswith("spdkfac/"):
        return f'write "{header}" from src/ on: "spdkfac/…"' if quote == '"' else None
    inside = header[len("spdkfac/"):]
    target = inside.split("/")[0]
    if inside == "version.h" or target == folder or target in MAY_INCLUDE[folder] or inside in MAY_INCLUDE[folder]:
        return None
    allowed = ", ".join(sorted(MAY_INCLUDE[folder])) or "nothing else"
    return f'{folder} must not include "{header}" (besides itself: {allowed})'


def check_layers(root: Path) -> Iterator[str]:
    top = root / "src" / "spdkfac"
    for path in sources(root, ("src",)):
        if path.suffix not in CXX_SUFFIXES:
            continue
        place = path.relative_to(root)
        if top not in path.parents:
            yield f"{place}: sources live in src/spdkfac"
            continue
        if path.parent == top:
            continue  # the umbrella header
        folder = path.relative_to(top).parts[0]
        if folder not in MAY_INCLUDE:
            yield f"{place}: folder {folder} has no place in the layers; see tools/check_layers.py"
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            problem = check_include(folder, *match.groups()) if match else None
            if problem:
                yield f"{place}:{number}: {problem}"


def check_files(root: Path) -> Iterator[str]:
    for path in sources(root, LICENSED):
        place = path.relative_to(root)
        lines = path.read_text(encoding="utf-8").splitlines()
        if place.parts[0] in LIMITED and len(lines) > MAX_LINES:
            yield f"{place}: {len(lines)} lines, the limit is {MAX_LINES}; split it by concept"
        if not any(SPDX in line for line in lines[:3]):
            yield f"{place}:1: no line with {SPDX}"
        if path.suffix in {".h", ".cuh"} and "#pragma once" not in lines:
            yield f"{place}: no #pragma once"


def violations(root: Path) -> list[str]:
    return [*check_layers(root), *check_files(root)]


# Path, lines below the SPDX line, and a part of the violation expected (None: there is none).
SELF_TEST_CASES: list[tuple[str, str, str | None]] = [
    ("src/spdkfac/base/a.h", "#pragma once\n#include <vector>", None),
    ("src/spdkfac/plan/a.cpp", '#include "spdkfac/base/a.h"', None),
    ("src/spdkfac/plan/a.cpp", '#include "spdkfac/plan/a.h"', None),
    ("src/spdkfac/sim/a.cpp", '#include "spdkfac/plan/a.h"', None),
    ("src/spdkfac/models/a.cpp", '#include "spdkfac/plan/layer_spec.h"', None),
    ("src/spdkfac/kfac/cuda/a.cu", "#include <torch/torch.h>", None),
    ("src/spdkfac/cli/a.cpp", '#include "spdkfac/runtime/a.h"', None),
    ("src/spdkfac/spdkfac.h", '#pragma once\n#include "spdkfac/plan/a.h"', None),
    ("src/spdkfac/base/a.cpp", '#include "spdkfac/plan/a.h"', "base must not include"),
    ("src/spdkfac/base/a.cpp", "#include <spdkfac/plan/a.h>", "base must not include"),
    ("src/spdkfac/plan/a.cpp", '  #  include "spdkfac/sim/a.h"', "plan must not include"),
    ("src/spdkfac/report/a.cpp", '#include "spdkfac/sim/a.h"', "report must not include"),
    ("src/spdkfac/models/a.cpp", '#include "spdkfac/plan/plan.h"', "models must not include"),
    ("src/spdkfac/kfac/a.cpp", '#include "spdkfac/comm/a.h"', "kfac must not include"),
    ("src/spdkfac/comm/mpi/a.cpp", '#include "spdkfac/kfac/a.h"', "comm must not include"),
    ("src/spdkfac/sim/a.cpp", '#include "spdkfac/cli/a.h"', "sim must not include"),
    ("src/spdkfac/sim/a.cpp", '#include "spdkfac/spdkfac.h"', "sim must not include"),
    ("src/spdkfac/plan/a.cpp", "#include <torch/torch.h>", "without torch"),
    ("src/spdkfac/sim/a.cpp", "#include <ATen/ATen.h>", "without torch"),
    ("src/spdkfac/base/a.h", "#pragma once\n#include <c10/util/Half.h>", "without torch"),
    ("src/spdkfac/report/a.cpp", "#include <mpi.h>", "without torch"),
    ("src/spdkfac/plan/a.cpp", "#include <cuda_runtime.h>", "without torch"),
    ("src/spdkfac/plan/a.cpp", '#include "fit.h"', "from src/ on"),
    ("src/spdkfac/utils/a.cpp", "", "no place in the layers"),
    ("src/a.cpp", "", "live in src/spdkfac"),
    ("src/spdkfac/base/a.h", "", "no #pragma once"),
    ("tests/base/long_test.cpp", "\n" * MAX_LINES, "lines, the limit is"),
    ("tests/golden/plan.md", "\n" * MAX_LINES, None),
]


def self_test() -> int:
    failures = 0
    for path, body, expected in SELF_TEST_CASES:
        mark = "#" if path.endswith(".md") else "//"
        failures += not holds(path, f"{mark} {SPDX}\n{body}\n", expected)
    failures += not holds("tools/a.sh", "echo hello\n", "no line with SPDX")
    failures += not holds("src/spdkfac/plan/CMakeLists.txt", "\n", "no line with SPDX")
    print(f"check_layers: {len(SELF_TEST_CASES) + 2} cases, {failures} failed")
    return 1 if failures else 0


def holds(path: str, text: str, expected: str | None) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / path
        file.parent.mkdir(parents=True)
        file.write_text(text, encoding="utf-8")
        found = violations(Path(folder))
    good = not found if expected is None else len(found) == 1 and expected in found[0]
    if not good:
        print(f"self-test: {path}: expected {expected!r}, found {found}", file=sys.stderr)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    found = violations(options.root)
    for violation in found:
        print(violation)
    if found:
        print(f"check_layers: {len(found)} violations", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
