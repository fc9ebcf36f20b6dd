#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the commands in the ```console blocks of Markdown files and compares their output.

Usage: check_console.py --program PATH [--update] FILE.md… | --self-test

In a block, `$ spdkfac …`, `$ cat FILE` and `$ head -n N FILE` are run, each file's commands in one
temporary folder that also shows the folder data/. The lines below a command, up to the next `$` or
the end of the block, are its stdout and stderr, byte for byte; a line `…` stands for any lines. A
command that fails on purpose ends in `# exit N`; a long one goes on after a backslash. A block
opened with ```json NAME (any language) is written to the file NAME for the commands below it.
Other commands (make, cmake, git, cd) are not run: targets, presets and files must exist.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

ROOT = Path(__file__).resolve().parents[1]
ANY_LINES = "…"
EXIT = re.compile(r"\s+# exit (\d+)$")
FENCE = re.compile(r"^```([\w+-]+)(?: (\S+))?\s*$")


class Problem(Exception):
    """What is wrong with a command of a Markdown file."""


@dataclass
class Step:
    """A command with the lines expected below it, or a file to write: `command` is its name."""

    line: int  # of the command, from 1
    command: str
    first: int  # lines[first:last] is the output or the file's content
    last: int
    is_file: bool = False


def parse(lines: list[str]) -> Iterator[Step]:
    index = 0
    while index < len(lines):
        fence = FENCE.match(lines[index])
        index += 1
        if not fence:
            continue
        end = next((i for i in range(index, len(lines)) if lines[i].startswith("```")), None)
        if end is None:
            raise Problem(f"line {index}: the block has no end")
        if fence[1] == "console":
            yield from parse_block(lines, index, end)
        elif fence[2]:
            yield Step(index, fence[2], index, end, is_file=True)
        index = end + 1


def parse_block(lines: list[str], first: int, end: int) -> Iterator[Step]:
    index = first
    while index < end:
        if not lines[index].startswith("$ "):
            raise Problem(f"line {index + 1}: a console block starts with a `$ ` command")
        start, command = index, lines[index][2:]
        while command.endswith("\\") and index + 1 < end:
            index += 1
            command = command[:-1] + lines[index].strip()
        output = index = index + 1
        while index < end and not lines[index].startswith("$ "):
            index += 1
        yield Step(start + 1, command, output, index)


def run(command: str, program: Path, folder: Path) -> list[str] | None:
    """The lines a command prints; None for one that is not run."""
    match = EXIT.search(command)
    expected_exit = int(match[1]) if match else 0
    words = shlex.split(command[: match.start()] if match else command)
    if words[0] == "spdkfac":
        words[0] = str(program)
    elif words[0] not in ("cat", "head"):
        check_not_run(words)
        return None
    if {"|", ">", "<", "&&", ";", "2>"} & set(words):
        raise Problem("there is no shell here: write files with --out, show them with cat")
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "COLUMNS": "100"}
    done = subprocess.run(words, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=100, check=False)
    text = done.stdout.decode("utf-8")
    if done.returncode != expected_exit:
        raise Problem(f"exit code {done.returncode}, expected {expected_exit}; it printed\n{text}")
    if text and not text.endswith("\n"):
        raise Problem("the output does not end in a newline")
    return text.split("\n")[:-1]


def check_not_run(words: list[str]) -> None:
    """Rejects commands that are not on the list or that name what does not exist."""
    name, *arguments = words
    if name == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        for target in (word for word in arguments if "=" not in word):
            if not re.search(rf"^{re.escape(target)}:", makefile, re.M):
                raise Problem(f"the Makefile has no target {target}")
    elif name == "cmake":
        presets = (ROOT / "CMakePresets.json").read_text(encoding="utf-8")
        for option, value in zip(arguments, arguments[1:]):
            if option == "--preset" and f'"name": "{value}"' not in presets:
                raise Problem(f"CMakePresets.json has no preset {value}")
    elif name.startswith(("tools/", ".ci/")) and not (ROOT / name).is_file():
        raise Problem(f"there is no file {name}")
    elif not name.startswith(("tools/", ".ci/")) and name not in ("git", "cd"):
        raise Problem(f"{name} is neither run nor on the list of commands that are not run")


def matches(expected: list[str], actual: list[str]) -> bool:
    if ANY_LINES not in expected:
        return expected == actual
    before = expected.index(ANY_LINES)
    if expected[:before] != actual[:before]:
        return False
    rest = expected[before + 1:]
    return any(matches(rest, actual[skip:]) for skip in range(before, len(actual) + 1))


def check_file(path: Path, program: Path, update: bool) -> list[str]:
    """Problems of one Markdown file; with `update`, differences are written to it instead."""
    problems: list[str] = []
    lines = path.read_text(encoding="utf-8").split("\n")
    result, copied = [], 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").symlink_to(ROOT / "data")
        for step in parse(lines):
            expected = lines[step.first:step.last]
            if step.is_file:
                (folder / step.command).write_text("\n".join([*expected, ""]), encoding="utf-8")
                continue
            try:
                actual = run(step.command, program, folder)
            except (Problem, OSError, ValueError, subprocess.TimeoutExpired) as error:
                problems.append(f"{path}:{step.line}: {step.command}: {error}")
                continue
            if actual is None or matches(expected, actual):
                continue
            if update and ANY_LINES not in expected:
                result += lines[copied:step.first] + actual
                copied = step.last
            else:
                diff = difflib.unified_diff(expected, actual, "expected", "actual", lineterm="")
                problems.append("\n".join([f"{path}:{step.line}: {step.command}", *diff]))
    if copied:
        path.write_text("\n".join(result + lines[copied:]), encoding="utf-8")
        print(f"{path}: updated")
    return problems


SELF_TEST_PROGRAM = f"""#!{sys.executable}
import sys
print(*sys.argv[2:], sep='\\n', end='\\n' * (len(sys.argv) > 2))
open('written', 'w').write('kept\\n')
sys.exit(int(sys.argv[1]))
"""
# A console block, and a part of the problem expected (None: there is none).
SELF_TEST_CASES: list[tuple[str, str | None]] = [
    ("$ spdkfac 0 a 'b c'\na\nb c", None),
    ("$ spdkfac 0 a\na\n$ spdkfac 0", None),
    ("$ spdkfac 2 bad # exit 2\nbad", None),
    ("$ spdkfac 0 a b \\\n    c d\n…\nc\nd", None),
    ("$ spdkfac 0 a b c d\na\n…\nd", None),
    ("$ spdkfac 0\n$ cat written\nkept\n$ head -n 1 written\nkept", None),
    ("$ make test\nanything\n$ cmake --workflow --preset dev\n$ git clone x\n$ .ci/run", None),
    ("$ spdkfac 0 a\nb", "+a"),
    ("$ spdkfac 0 a\na\n", "-"),
    ("$ spdkfac 0 a\na ", "-a "),
    ("$ spdkfac 0 a b c\na\n…\nb", "+c"),
    ("$ spdkfac 1", "exit code 1, expected 0"),
    ("$ spdkfac 0 # exit 1", "exit code 0, expected 1"),
    ("$ spdkfac 0 a | cat\na", "no shell"),
    ("$ make coffee", "no target coffee"),
    ("$ cmake --preset coffee", "no preset coffee"),
    ("$ tools/coffee.sh", "no file"),
    ("$ curl x", "neither run nor"),
]


def self_test() -> int:
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        program, page = Path(name, "program"), Path(name, "page.md")
        program.write_text(SELF_TEST_PROGRAM, encoding="utf-8")
        program.chmod(0o755)
        for block, expected in SELF_TEST_CASES:
            page.write_text(f"Text\n```console\n{block}\n```\n", encoding="utf-8")
            found = "".join(check_file(page, program, update=False))
            if (not found) != (expected is None) or (expected or "") not in found:
                failures += 1
                print(f"self-test: {block!r}: expected {expected!r}, found {found!r}")
        page.write_text("```json f\n{}\n```\n```console\n$ spdkfac 0 a\nold\n\n$ cat f\n```\nEnd\n")
        problems = check_file(page, program, True)
        updated = "```json f\n{}\n```\n```console\n$ spdkfac 0 a\na\n$ cat f\n{}\n```\nEnd\n"
        if problems or page.read_text(encoding="utf-8") != updated:
            failures += 1
            print(f"self-test: --update: {problems} {page.read_text(encoding='utf-8')!r}")
    print(f"check_console: {len(SELF_TEST_CASES) + 1} cases, {failures} failed")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE.md")
    parser.add_argument("--program", type=Path, default=ROOT / "build/dev/bin/spdkfac")
    parser.add_argument("--update", action="store_true", help="write the outputs to the files")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    problems: list[str] = []
    for path in options.files:
        try:
            problems += check_file(path, options.program.resolve(), options.update)
        except (Problem, OSError) as error:
            problems.append(f"{path}: {error}")
    for problem in problems:
        print(problem, end="\n\n")
    return 1 if problems or not options.files else 0


if __name__ == "__main__":
    sys.exit(main())
