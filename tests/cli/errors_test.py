#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mistakes that the parser of flags finds: exit code 2, one `spdkfac: …` message, empty stdout.

Its words are its own, so only the part that names the mistake is compared. Messages of ours are
compared whole in bad_input_test.py.
"""

from __future__ import annotations

import os
import subprocess
import unittest

PROGRAM = os.environ["SPDKFAC"]
GOOD = ["--model", "resnet50", "--cluster", "paper-64x2080ti", "--world", "4"]
USAGE_MISTAKE = 2


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=60, check=False)


class ErrorsTest(unittest.TestCase):
    def assert_mistake(self, arguments: list[str], part: str = "") -> None:
        with self.subTest(arguments=arguments):
            done = run(*arguments)
            self.assertEqual(done.returncode, USAGE_MISTAKE, done.stderr)
            self.assertEqual(done.stdout, "")
            self.assertTrue(done.stderr.startswith("spdkfac: "), done.stderr)
            self.assertTrue(done.stderr.endswith("\n"), done.stderr)
            self.assertIn(part, done.stderr)

    def test_good_arguments_succeed(self) -> None:
        for verb in ("plan", "simulate"):
            done = run(verb, *GOOD)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_unknown_verbs_and_options(self) -> None:
        self.assert_mistake(["coffee"], "coffee")
        self.assert_mistake(["simulate", *GOOD, "--coffee"], "--coffee")
        self.assert_mistake(["simulate", *GOOD, "coffee"], "coffee")

    def test_values_out_of_range(self) -> None:
        for verb in ("plan", "simulate"):
            for world in ("0", "-1", "1.5", "four", "99999999999999999999"):
                self.assert_mistake([verb, *GOOD[:-1], world], world)
            self.assert_mistake([verb, *GOOD, "--fusion", "coffee"], "coffee")
            self.assert_mistake([verb, *GOOD, "--batch", "0"], "--batch")
            self.assert_mistake([verb, *GOOD, "--factor-interval", "0"], "--factor-interval")
        for jitter in ("-0.1", "1", "much"):
            self.assert_mistake(["simulate", *GOOD, "--jitter", jitter], jitter)

    def test_flags_without_value_or_given_twice(self) -> None:
        for verb in ("plan", "simulate"):
            self.assert_mistake([verb, *GOOD[:-1]], "--world")
            self.assert_mistake([verb, *GOOD, "--world", "8"], "--world")
            self.assert_mistake([verb, *GOOD, "--cluster", "h200-400g-64"], "--cluster")
            self.assert_mistake([verb, *GOOD, "--cluster-file", "c.json"], "--cluster-file")


if __name__ == "__main__":
    unittest.main()
