#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`cmake --install` into a fresh folder: the program finds its data there and predicts the same."""

from __future__ import annotations

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ["SPDKFAC"]
BUILD_DIR = os.environ["SPDKFAC_BUILD_DIR"]
CMAKE = os.environ["CMAKE"]
SIMULATE = ["simulate", "--model", "resnet50", "--cluster", "paper-64x2080ti", "--world", "64"]


def output(*command: str | Path, folder: Path) -> str:
    return subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=60, check=True).stdout


class InstallTest(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.prefix = self.folder / "prefix with space"
        output(CMAKE, "--install", BUILD_DIR, "--prefix", self.prefix, folder=self.folder)

    def test_installs_the_program_and_its_data(self) -> None:
        installed = {str(path.relative_to(self.prefix))
                     for path in self.prefix.rglob("*") if path.is_file()}
        data = {f"share/spdkfac/{path.relative_to(ROOT / 'data')}"
                for kind in ("models", "clusters") for path in (ROOT / "data" / kind).glob("*.json")}
        data |= {f"share/spdkfac/help/{path.name}" for path in (ROOT / "data/help").glob("*.txt")}
        data.add("share/spdkfac/paper.json")
        data |= {f"share/spdkfac/{path.relative_to(ROOT / 'python/spdkfac')}"
                 for path in (ROOT / "python/spdkfac/page").rglob("*")
                 if path.is_file() and "__pycache__" not in path.parts}
        programs = {"bin/spdkfac"}
        if Path(PROGRAM).with_name("spdkfac-torch").exists():
            programs.add("bin/spdkfac-torch")
            # The library has tests of its own: tests/install.
            installed = {path for path in installed if not path.startswith(("include/", "lib/"))}
        self.assertEqual(installed, programs | data)

    def test_installed_program_finds_torch(self) -> None:
        installed = self.prefix / "bin/spdkfac-torch"
        if not installed.exists():
            self.skipTest("this build has no LibTorch")
        built = Path(PROGRAM).with_name("spdkfac-torch")
        self.assertEqual(output(installed, "--version", folder=self.folder),
                         output(built, "--version", folder=self.folder))

    def test_installed_program_answers_as_the_built_one(self) -> None:
        link = self.folder / "link"
        link.symlink_to(self.prefix / "bin/spdkfac")
        for arguments in (["models"], ["clusters"], SIMULATE):
            built = output(PROGRAM, *arguments, folder=self.folder)
            for program in (self.prefix / "bin/spdkfac", link):
                with self.subTest(arguments=arguments, program=program.name):
                    self.assertEqual(output(program, *arguments, folder=self.folder), built)


if __name__ == "__main__":
    unittest.main()
