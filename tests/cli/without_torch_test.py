#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A build without LibTorch plans and simulates; what trains says that it is not there."""

from __future__ import annotations

import os
import subprocess
import unittest

PROGRAM = os.environ["SPDKFAC"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60,
                          check=False)


class WithoutTorchTest(unittest.TestCase):
    def test_verbs_on_torch_are_errors_that_say_so(self) -> None:
        for verb in ("calibrate", "describe", "train", "bench"):
            for arguments in ((verb,), (verb, "--model", "resnet50"), (verb, "x", "--simulate")):
                done = run(*arguments)
                self.assertEqual(done.returncode, 2, arguments)
                self.assertEqual(done.stdout, "")
                self.assertRegex(done.stderr, rf"^spdkfac: {verb}: needs LibTorch, .*tools/setup\.sh")

    def test_the_other_verbs_work(self) -> None:
        done = run("simulate", "--model", "resnet50", "--cluster", "paper-64x2080ti")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("iteration", done.stdout)

    def test_help_of_these_verbs_says_what_is_missing(self) -> None:
        for verb in ("calibrate", "describe", "train", "bench"):
            for arguments in ((verb, "--help"), ("help", verb), (verb, "x", "-h")):
                done = run(*arguments)
                self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
                self.assertRegex(done.stdout, r"needs LibTorch(.|\n)*tools/setup\.sh")

    def test_help_of_these_verbs_lists_their_flags(self) -> None:
        for words, flag in (("train", "--lr RATE"), ("calibrate", "--max-dim N"), ("describe", "--input CxHxW"),
                            ("bench iteration", "--emulate N"), ("bench", "iteration  "), ("help train", "--damping X")):
            text = run(*words.split(), "--help").stdout if "help" not in words else run(*words.split()).stdout
            self.assertIn(f"Usage: spdkfac {words.removeprefix('help ')} [FLAGS]", text)
            self.assertIn(flag, text)

    def test_help_marks_verbs_that_cannot_run(self) -> None:
        _, marked = run("--help").stdout.split("need LibTorch, which this build does not have:\n")
        for verb in ("calibrate", "describe", "train", "bench"):
            self.assertRegex(marked, rf"(?m)^  {verb} ")

    def test_version_says_that_there_is_none(self) -> None:
        self.assertIn("\nLibTorch none\nCUDA none\nMPI none\nNCCL none\n", run("--version").stdout)


if __name__ == "__main__":
    unittest.main()
