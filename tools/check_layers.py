#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the layers and namespaces of src/spdkfac and python, SPDX lines, `#pragma once` and the length of files.

Usage: check_layers.py [--root DIR] | --self-test | --table
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path
from typing import Iterator

# What a folder may include besides itself: folders, or single headers of a folder. CONTRIBUTING.md
# has the same table.
MAY_INCLUDE: dict[str, set[str]] = {
    "base": set(),
    "trace": {"base"},
    "plan": {"base"},
    "sim": {"base", "trace", "plan"},
    "report": {"base", "trace", "plan", "sim"},
    "comm": {"base"},
    "kfac": {"base"},
    "models": {"base", "plan/layer_spec.h"},
    "data": {"base"},
    "calibrate": {"base", "plan", "comm", "kfac"},
    "runtime": {"base", "trace", "plan", "sim", "comm", "kfac", "calibrate"},
}
MAY_INCLUDE["train"] = set(MAY_INCLUDE)
MAY_INCLUDE["bench"] = set(MAY_INCLUDE)
MAY_INCLUDE["cli"] = set(MAY_INCLUDE)
# The Python module: the library, but nothing of the program.
MAY_INCLUDE["python"] = set(MAY_INCLUDE) - {"models", "data", "train", "bench", "cli"}

# Folders that build without torch, MPI and CUDA, and the headers of those.
TORCH_FREE = {"base", "trace", "plan", "sim", "report"}
HEAVY_HEADER = re.compile(
    r"^(torch/|ATen/|c10/|caffe2/|pybind11/|thrust/|cub/|mpi|nccl|cuda|cublas|cusolver|nvtx|nvToolsExt)"
)

# Internal headers whose names belong to public types: files of plans, and what measures a Preconditioner.
IN_PUBLIC_NAMESPACE = {
    "plan/cluster_file.h", "plan/model_file.h", "plan/plan_file.h", "plan/plan_options_file.h",
    "runtime/preconditioner_impl.h", "runtime/step_meter.h", "trace/trace_json.h",
}

# Lines of a file at most, by the folder at the top. Docstrings list every option in Python.
MAX_LINES = {"src": 400, "python": 500, "tests": 600, "tools": 600}
LICENSED = ("src", "tests", "benchmarks", "tools", "cmake", "python", "examples")
CXX_SUFFIXES = {".h", ".cuh", ".cpp", ".cu"}
SOURCE_SUFFIXES = CXX_SUFFIXES | {".py", ".sh", ".cmake"}
SPDX = "SPDX-License-Identifier: Apache-2.0"
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
# The table of CONTRIBUTING.md stands between these lines.
TABLE_BEGIN = "<!-- layers: tools/check_layers.py compares this table with its own -->"
TABLE_END = "<!-- layers end -->"


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
        if folder == "python":
            return None  # its own header stands beside its sources
        return f'write "{header}" from src/ on: "spdkfac/…"' if quote == '"' else None
    inside = header[len("spdkfac/"):]
    target = inside.split("/")[0]
    if inside == "version.h" or target == folder or target in MAY_INCLUDE[folder] or inside in MAY_INCLUDE[folder]:
        return None
    allowed = ", ".join(sorted(MAY_INCLUDE[folder])) or "nothing else"
    return f'{folder} must not include "{header}" (besides itself: {allowed})'


def check_lines(root: Path, path: Path, folder: str) -> Iterator[str]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        problem = check_include(folder, *match.groups()) if match else None
        if problem:
            yield f"{path.relative_to(root)}:{number}: {problem}"


def check_layers(root: Path) -> Iterator[str]:
    top = root / "src" / "spdkfac"
    for path in sources(root, ("src", "python")):
        if path.suffix not in CXX_SUFFIXES:
            continue
        place = path.relative_to(root)
        if place.parts[0] == "python":
            yield from check_lines(root, path, "python")
            continue
        if top not in path.parents:
            yield f"{place}: sources live in src/spdkfac"
            continue
        if path.parent == top:
            continue  # the umbrella header
        folder = path.relative_to(top).parts[0]
        if folder not in MAY_INCLUDE:
            yield f"{place}: folder {folder} is not in the table of layers; see tools/check_layers.py"
            continue
        yield from check_lines(root, path, folder)


def public_headers(top: Path) -> set[str]:
    """What spdkfac.h includes, directly or not, as paths below src/spdkfac."""
    found: set[str] = set()
    waiting = ["spdkfac.h"]
    while waiting:
        header = waiting.pop()
        if header in found or not (top / header).exists():
            continue
        found.add(header)
        for line in (top / header).read_text(encoding="utf-8").splitlines():
            match = INCLUDE.match(line)
            if match and match.group(2).startswith("spdkfac/"):
                waiting.append(match.group(2)[len("spdkfac/"):])
    return found


def check_namespaces(root: Path) -> Iterator[str]:
    """Public names are in namespace spdkfac, like base; all others in that of their folder."""
    top = root / "src" / "spdkfac"
    public = public_headers(top) | IN_PUBLIC_NAMESPACE
    for path in sorted(top.rglob("*.h")):
        inside = str(path.relative_to(top))
        folder = inside.split("/")[0]
        if path.parent == top or folder == "base":
            continue
        expected = "spdkfac" if inside in public else f"spdkfac::{folder}"
        opened = re.findall(r"^namespace (spdkfac[\w:]*) \{", path.read_text(encoding="utf-8"), re.M)
        if opened and expected not in opened:
            yield f"{path.relative_to(root)}: expected namespace {expected}"


def layer_table() -> list[str]:
    """The layers as the lines of a table in Markdown."""
    lines = ["| folder | may include | needs torch |", "|---|---|---|"]
    for folder, others in MAY_INCLUDE.items():
        # In the order of the table itself; single headers last.
        known = [name for name in MAY_INCLUDE if name in others]
        known += sorted(others - set(known))
        lines.append(f"| {folder} | {', '.join(known) or '-'} | "
                     f"{'no' if folder in TORCH_FREE else 'yes'} |")
    return lines


def check_table(root: Path) -> Iterator[str]:
    path = root / "CONTRIBUTING.md"
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    if TABLE_BEGIN not in lines or TABLE_END not in lines:
        yield f"CONTRIBUTING.md: the table of the layers is not between {TABLE_BEGIN} and {TABLE_END}"
        return
    begin = lines.index(TABLE_BEGIN) + 1
    found = [line for line in lines[begin:lines.index(TABLE_END)] if line]
    if found != layer_table():
        yield (f"CONTRIBUTING.md:{begin}: the table of the layers differs from "
               "tools/check_layers.py; paste the output of tools/check_layers.py --table")


def check_files(root: Path) -> Iterator[str]:
    for path in sources(root, LICENSED):
        place = path.relative_to(root)
        lines = path.read_text(encoding="utf-8").splitlines()
        limit = MAX_LINES.get(place.parts[0], len(lines))
        if len(lines) > limit:
            yield f"{place}: {len(lines)} lines, the limit is {limit}; split it by concept"
        if not any(SPDX in line for line in lines[:3]):
            yield f"{place}:1: no line with {SPDX}"
        if path.suffix in {".h", ".cuh"} and "#pragma once" not in lines:
            yield f"{place}: no #pragma once"


def violations(root: Path) -> list[str]:
    return [*check_layers(root), *check_namespaces(root), *check_files(root), *check_table(root)]


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
    ("src/spdkfac/report/a.cpp", '#include "spdkfac/sim/a.h"', None),
    ("src/spdkfac/report/a.cpp", '#include "spdkfac/runtime/a.h"', "report must not include"),
    ("src/spdkfac/base/a.cpp", '#include "spdkfac/trace/a.h"', "base must not include"),
    ("src/spdkfac/plan/a.cpp", '#include "spdkfac/trace/a.h"', "plan must not include"),
    ("src/spdkfac/sim/a.cpp", '#include "spdkfac/trace/a.h"', None),
    ("src/spdkfac/train/a.cpp", '#include "spdkfac/bench/a.h"', "train must not include"),
    ("src/spdkfac/train/a.cpp", '#include "spdkfac/cli/a.h"', "train must not include"),
    ("src/spdkfac/bench/a.cpp", '#include "spdkfac/train/a.h"', None),
    ("python/src/a.cpp", '#include "bindings.h"\n#include "spdkfac/runtime/a.h"', None),
    ("python/src/a.cpp", '#include "spdkfac/cli/a.h"', "python must not include"),
    ("python/src/a.cpp", '#include "spdkfac/train/a.h"', "python must not include"),
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
    ("src/spdkfac/utils/a.cpp", "", "not in the table of layers"),
    ("src/a.cpp", "", "live in src/spdkfac"),
    ("src/spdkfac/plan/a.h", "#pragma once\nnamespace spdkfac::plan {", None),
    ("src/spdkfac/plan/a.h", "#pragma once\nnamespace spdkfac {", "expected namespace spdkfac::plan"),
    ("src/spdkfac/plan/plan_file.h", "#pragma once\nnamespace spdkfac {", None),
    ("src/spdkfac/base/a.h", "#pragma once\nnamespace spdkfac {", None),
    ("src/spdkfac/base/a.h", "", "no #pragma once"),
    ("src/spdkfac/base/a.cpp", "\n" * MAX_LINES["src"], "lines, the limit is 400"),
    ("tests/base/long_test.cpp", "\n" * MAX_LINES["src"], None),
    ("tests/base/long_test.cpp", "\n" * MAX_LINES["tests"], "lines, the limit is 600"),
    ("tests/golden/plan.md", "\n" * MAX_LINES["tests"], None),
]


def self_test() -> int:
    failures = 0
    for path, body, expected in SELF_TEST_CASES:
        mark = "#" if path.endswith(".md") else "//"
        failures += not holds(path, f"{mark} {SPDX}\n{body}\n", expected)
    failures += not holds("tools/a.sh", "echo hello\n", "no line with SPDX")
    failures += not holds("src/spdkfac/plan/CMakeLists.txt", "\n", "no line with SPDX")
    table = "\n".join([TABLE_BEGIN, "", *layer_table(), "", TABLE_END])
    failures += not holds("CONTRIBUTING.md", table, None)
    failures += not holds("CONTRIBUTING.md", table.replace("| trace | base |", "| trace | plan |"),
                          "differs from")
    failures += not holds("CONTRIBUTING.md", "# Contributing\n", "is not between")
    print(f"check_layers: {len(SELF_TEST_CASES) + 5} cases, {failures} failed")
    return 1 if failures else 0


def holds(path: str, text: str, expected: str | None) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / path
        file.parent.mkdir(parents=True, exist_ok=True)
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
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    if options.table:
        print("\n".join(layer_table()))
        return 0
    found = violations(options.root)
    for violation in found:
        print(violation)
    if found:
        print(f"check_layers: {len(found)} violations", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
