#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/with_link.sh: ranks under mpirun share a link of the rate that was asked for.

Skipped (exit code 77) without root, tc or mpirun, or where a container may not shape its loopback.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = os.environ["SPDKFAC"]
WITH_LINK = str(Path(__file__).resolve().parents[2] / "tools" / "with_link.sh")
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"]
SKIPPED = 77

RATE = 200e6 / 8  # bytes per second
BUCKET = 512 * 1024  # bytes that pass at once
ELEMENTS = 1 << 20
# Ends of TCP, acknowledgements and a busy machine: what is slower than this is not the link.
SLOWEST = 6


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([WITH_LINK, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=250, check=False)


class WithLinkTest(unittest.TestCase):
    def test_an_all_reduce_takes_what_the_rate_says(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            done = run("--rate", "200mbit", "--", *MPIRUN, PROGRAM, "calibrate", "--json", "--out",
                       f"{folder}/slow.json", "--max-elements", str(ELEMENTS), "--max-dim", "256",
                       "--repetitions", "2", "--threads", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertIn("SPDKFAC_LINK=200mbit", report["cluster"]["provenance"]["transport"])
        # Both ranks send a whole message at least; of a broadcast one does.
        for name, messages in (("all_reduce", 2), ("broadcast", 1)):
            elements, seconds = report["collectives"][name]["measured"][-1]
            self.assertEqual(elements, ELEMENTS)
            least = (4 * ELEMENTS * messages - BUCKET) / RATE
            self.assertGreater(seconds, 0.95 * least, name)
            self.assertLess(seconds, SLOWEST * least, name)

    def test_the_exit_code_is_that_of_the_command(self) -> None:
        self.assertEqual(run("--rate", "1gbit", "--", "sh", "-c", "exit 5").returncode, 5)

    def test_the_namespace_goes_with_the_command(self) -> None:
        inside = run("--rate", "1gbit", "--", "sh", "-c", "cat /proc/net/dev; tc qdisc show dev lo")
        self.assertNotIn("eth0", inside.stdout)
        self.assertIn("tbf", inside.stdout)
        here = subprocess.run(["tc", "qdisc", "show", "dev", "lo"], capture_output=True, text=True,
                              check=True).stdout
        self.assertNotIn("tbf", here)

    def test_mistakes_in_flags(self) -> None:
        for arguments in ((), ("--rate", "1gbit"), ("--rate",), ("--", "true"),
                          ("--rate", "fast", "--", "true"), ("--speed", "1", "--", "true"),
                          ("--rate", "1gbit", "--latency", "long", "--", "true")):
            done = run(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertRegex(done.stderr, r"^with_link: .*; write with_link\.sh --rate")


def main() -> None:
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if not shutil.which("mpirun"):
        print("skipped: there is no mpirun")
        sys.exit(SKIPPED)
    trial = run("--rate", "1gbit", "--", "true")
    if trial.returncode == SKIPPED:
        print(f"skipped: {trial.stderr}")
        sys.exit(SKIPPED)
    unittest.main()


if __name__ == "__main__":
    main()
