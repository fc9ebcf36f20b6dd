#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/reproduce.py asks for every experiment, hands all records to the page, and stops at a failure.

A stand-in takes the place of the program: it writes down how it was called.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in *"$FAIL_AT"*) test -n "$FAIL_AT" && exit 3;; esac
case "$*" in *"bench models --json"*) echo '{"format": "spdkfac.record/1", "made": {}, "models": []}';; esac
previous=
for argument in "$@"; do
  test "$previous" = --metrics && echo '{"kind": "eval", "step": 20, "seconds": 1, "test_loss": 0.2, \
"test_accuracy": 0.91}' > "$argument"
  test "$previous" = --out && echo '{}' > "$argument"
  previous=$argument
done
exit 0
"""


class ReproduceTest(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.program = self.folder / "spdkfac"
        self.program.write_text(STAND_IN, encoding="utf-8")
        self.program.chmod(0o755)
        mpirun = self.folder / "mpirun"  # drops its own flags
        mpirun.write_text('#!/bin/sh\nwhile test "$1" != "$PROGRAM"; do shift; done\nexec "$@"\n',
                          encoding="utf-8")
        mpirun.chmod(0o755)

    def reproduce(self, fail_at: str = "") -> tuple[subprocess.CompletedProcess[str], list[str]]:
        calls = self.folder / "calls"
        environment = os.environ | {"CALLS": str(calls), "FAIL_AT": fail_at,
                                    "PROGRAM": str(self.program),
                                    "PATH": f"{self.folder}:{os.environ['PATH']}"}
        done = subprocess.run([sys.executable, ROOT / "tools/reproduce.py", "--program",
                               self.program, "--out-dir", self.folder / "out", "--page",
                               self.folder / "page.html"], env=environment, capture_output=True,
                              text=True, timeout=60, check=False)
        return done, calls.read_text(encoding="utf-8").splitlines()

    def test_every_experiment_is_simulated_and_measured(self) -> None:
        done, calls = self.reproduce()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for experiment in ("iteration", "breakdown", "pipelining", "placement", "ablation", "comm",
                           "inverse"):
            asked = [call for call in calls if call.startswith(f"bench {experiment} ")]
            self.assertEqual(sum("--simulate" in call for call in asked), 1, experiment)
            self.assertEqual(sum("measured-" in call for call in asked), 1, experiment)
        self.assertTrue(any(call.startswith("bench memory") for call in calls))
        self.assertTrue(any("--emulate 64" in call for call in calls))

    def test_the_page_gets_every_record_that_was_written(self) -> None:
        _, calls = self.reproduce()
        self.assertTrue(calls[-1].startswith("report "))
        records = {str(path) for path in (self.folder / "out").glob("*.json")}
        shown = {word for word in calls[-1].split() if word.endswith(".json")}
        self.assertEqual(shown, records - {str(self.folder / "out/cluster.json")})
        curves = json.loads((self.folder / "out/convergence.json").read_text())["convergence"]
        self.assertEqual([curve["label"] for curve in curves], ["SGD", "Adam", "K-FAC"])
        self.assertEqual(curves[0]["points"],
                         [{"step": 20, "seconds": 1, "loss": 0.2, "accuracy": 0.91}])

    def test_a_failure_ends_it(self) -> None:
        done, calls = self.reproduce(fail_at="bench ablation")
        self.assertEqual(done.returncode, 1)
        self.assertIn("simulated: ablation failed (exit code 3)", done.stderr)
        self.assertFalse(any(call.startswith("report") for call in calls))


if __name__ == "__main__":
    unittest.main()
