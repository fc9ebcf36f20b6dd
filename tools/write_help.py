#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes data/help: the help of verbs that need LibTorch, for programs that are built without it.

Usage: write_help.py --program PATH [--check]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "data" / "help"


def help_of(program: str, *words: str) -> str:
    return subprocess.run([program, *words, "--help"], capture_output=True, text=True, check=True).stdout


def verbs_in(text: str, title: str) -> list[str]:
    _, _, rest = text.partition(f"{title}:\n")
    return re.findall(r"(?m)^  ([a-z]+) ", rest.partition("\n\n")[0])


def texts(program: str) -> dict[str, str]:
    """By the name of the file."""
    found = {}
    for verb in verbs_in(help_of(program), "Verbs that need LibTorch"):
        text = found[verb] = help_of(program, verb)
        for part in verbs_in(text, "Subcommands"):
            found[f"{verb}-{part}"] = help_of(program, verb, part)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    expected = texts(options.program)
    if not expected:
        print("write_help.py: the program is built without LibTorch")
        return 1
    present = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.txt")}
    if options.check:
        for name in sorted(expected.keys() | present.keys()):
            if expected.get(name) != present.get(name):
                print(f"data/help/{name}.txt: is not what the program says; run make golden")
        return int(expected != present)
    FOLDER.mkdir(exist_ok=True)
    for name in present.keys() - expected.keys():
        (FOLDER / f"{name}.txt").unlink()
    for name, text in expected.items():
        (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
