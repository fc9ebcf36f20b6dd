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
            for arguments in ((verb,), (verb, "--help"), (verb, "--model", "resnet50")):
                done = run(*arguments)
                self.assertEqual(done.returncode, 2, arguments)
                self.assertEqual(done.stdout, "")
                self.assertRegex(done.stderr, rf"^spdkfac: {verb}: needs LibTorch, .*tools/setup\.sh")

    def test_the_other_verbs_work(self) -> None:
        done = run("simulate", "--model", "resnet50", "--cluster", "paper-64x2080ti")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("iteration", done.stdout)

    def test_help_lists_all_verbs(self) -> None:
        self.assertIn("train", run("--help").stdout)


if __name__ == "__main__":
    unittest.main()
