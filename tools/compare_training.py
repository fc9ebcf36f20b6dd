#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares training runs from their metrics files (`spdkfac train --metrics FILE`).

Usage: compare_training.py FILE.jsonl… [--target 0.9]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def row(path: Path, target: float) -> list[str]:
    """Name, accuracy, steps and seconds to the target, all seconds, seconds of a step."""
    evaluations = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            entry = json.loads(line)
            if "test_accuracy" in entry:
                seconds = entry.get("total_seconds", entry["seconds"])
                evaluations.append((entry["step"], seconds, entry["test_accuracy"]))
        except (ValueError, KeyError, TypeError) as error:
            raise SystemExit(f"{path}:{number}: not a line of metrics ({error!r})") from error
    if not evaluations:
        raise SystemExit(f"{path}: no line has a test accuracy; train with --eval-every")
    steps, seconds, accuracy = evaluations[-1]
    first = next((entry for entry in evaluations if entry[2] >= target), None)
    return [path.stem, f"{100 * accuracy:.2f}", f"{100 * max(entry[2] for entry in evaluations):.2f}",
            str(first[0]) if first else "not reached", f"{first[1]:.1f}" if first else "",
            str(steps), f"{seconds:.1f}", f"{1e3 * seconds / max(steps, 1):.1f}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.jsonl")
    parser.add_argument("--target", type=float, default=0.9, help="test accuracy; default 0.9")
    options = parser.parse_args()
    goal = f"{100 * options.target:g} %"
    rows = [["run", "accuracy %", "best %", f"steps to {goal}", f"seconds to {goal}", "steps",
             "seconds", "ms a step"]]
    for path in options.files:
        try:
            rows.append(row(path, options.target))
        except OSError as error:
            raise SystemExit(f"{path}: {error.strerror}") from error
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(rows[0]))]
    rows.insert(1, ["─" * width for width in widths])
    for cells in rows:
        first = cells[0].ljust(widths[0])
        print("  ".join([first, *(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:]))]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
