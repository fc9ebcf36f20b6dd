#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The example of the README: it is short, it is the listing there, and it learns.

Usage: minimal_test.py PROGRAM
"""

from __future__ import annotations

import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = sys.argv.pop() if len(sys.argv) > 1 else ""
SOURCE = (ROOT / "examples" / "minimal.cpp").read_text(encoding="utf-8")


class MinimalExampleTest(unittest.TestCase):
    def test_is_shorter_than_sixty_lines(self) -> None:
        self.assertLess(len(SOURCE.splitlines()), 60)

    def test_is_the_listing_in_the_readme(self) -> None:
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        listing = re.search(r"```cpp\n(.*?)```", readme, re.S)
        self.assertIsNotNone(listing, "the README has no ```cpp block")
        self.assertIn(listing[1], SOURCE)

    def test_learns_to_tell_the_spirals_apart(self) -> None:
        done = subprocess.run([PROGRAM], capture_output=True, text=True, timeout=600, check=True)
        accuracy = re.search(r"accuracy: ([0-9.]+) %", done.stdout)
        self.assertIsNotNone(accuracy, done.stdout)
        self.assertGreater(float(accuracy[1]), 95, done.stdout)


if __name__ == "__main__":
    unittest.main()
