#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of README.md and docs, light and dark, and the tables between marks in them.

Usage: tools/docs [--program PATH] [--check]

Sources are the records in docs/measured, the docstring of SPDKFACOptimizer, and what the program
simulates. A table stands between `<!-- made: NAME -->` and `<!-- made end -->`. With --check nothing is
written: what would change is named, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import badges
import concepts
import steps
import tables
import timeline
import training
from svg import ROOT, THEMES

PICTURES = ROOT / "docs/pictures"


def pictures(program: Path) -> dict[Path, str]:
    lines = timeline.simulated(program)
    draw = {**concepts.PICTURES, "training": training.draw, "step-cost": steps.draw,
            "timeline": lambda theme: timeline.draw(theme, lines)}
    found = {PICTURES / f"{name}-{theme.name}.svg": made(theme) for name, made in draw.items() for theme in THEMES}
    return found | {PICTURES / f"badge-{name}.svg": badges.draw(*fact) for name, fact in badges.facts().items()}


def differing(wanted: dict[Path, str]) -> list[Path]:
    return [path for path, text in wanted.items()
            if not path.is_file() or path.read_text(encoding="utf-8") != text]


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/docs", description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=Path, default=ROOT / "build/dev/bin/spdkfac")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if something would change")
    options = parser.parse_args()
    program = options.program.resolve()
    wanted = {**pictures(program), **tables.pages(program)}
    changed = differing(wanted)
    for path in changed if not options.check else ():
        path.write_text(wanted[path], encoding="utf-8")
    for path in changed:
        print(f"{path.relative_to(ROOT)}: {'is out of date; run make pictures' if options.check else 'written'}")
    return 1 if options.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
