#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`spdkfac calibrate`, alone and under mpirun: what it writes, and what the simulator makes of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

PROGRAM = os.environ["SPDKFAC"]
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"]
QUICK = ["calibrate", "--quick", "--threads", "1"]
USAGE_MISTAKE = 2


class CalibrateTestCase(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def run_command(self, *command: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(command, cwd=self.folder, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=300, check=False)
        if "this build has no MPI" in done.stderr:
            self.skipTest("this build has no MPI")
        return done

    def calibrate(self, *arguments: str, launcher: list[str] | None = None) -> str:
        done = self.run_command(*(launcher or []), PROGRAM, *QUICK, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def cluster(self, name: str) -> dict:
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def simulate(self, name: str, *arguments: str) -> dict:
        done = self.run_command(PROGRAM, "simulate", "--model", "resnet50", "--batch", "8",
                                "--cluster-file", name, "--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        prediction, = json.loads(done.stdout)
        return prediction


class AloneTest(CalibrateTestCase):
    def test_the_file_is_a_cluster_of_one_worker(self) -> None:
        text = self.calibrate("--out", "here.json")
        self.assertIn("One rank: collectives cost nothing", text)
        self.assertTrue(text.endswith("here.json: written\n"), text)
        cluster = self.cluster("here.json")
        self.assertEqual((cluster["name"], cluster["world"]), ("here", 1))
        self.assertIn("cost nothing", cluster["source"])
        self.assertEqual(cluster["provenance"]["threads"], "1")
        prediction = self.simulate("here.json")
        self.assertGreater(prediction["iteration_seconds"], 0)
        self.assertEqual(prediction["breakdown_seconds"]["grad_comm"], 0)
        self.assertEqual(list(self.folder.iterdir()), [self.folder / "here.json"])

    def test_json_has_measurements_fits_and_the_file(self) -> None:
        report = json.loads(self.calibrate("--out", "c.json", "--name", "my cluster", "--json"))
        self.assertEqual(report["format"], "spdkfac.calibration/1")
        self.assertEqual(report["cluster"], self.cluster("c.json"))
        self.assertEqual(report["cluster"]["name"], "my cluster")
        self.assertEqual(report["collectives"], {})
        dims = [dim for dim, _ in report["inverse"]["measured"]]
        self.assertEqual(dims, sorted(dims))
        self.assertIn(report["inverse"]["chosen"], ("cubic", "table"))
        for form in ("exponential", "cubic", "table"):
            self.assertGreaterEqual(report["inverse"][form]["max_relative_error"], 0)
        self.assertGreater(report["elapsed"], 0)
        self.assertGreater(report["estimate"], 0)

    def assert_mistake(self, arguments: list[str], part: str) -> None:
        with self.subTest(arguments=arguments):
            done = self.run_command(PROGRAM, "calibrate", *arguments)
            self.assertEqual(done.returncode, USAGE_MISTAKE, done.stderr)
            self.assertEqual(done.stdout, "")
            self.assertTrue(done.stderr.startswith("spdkfac: flags: "), done.stderr)
            self.assertIn(part, done.stderr)

    def test_mistakes_end_before_anything_is_measured(self) -> None:
        (self.folder / "folder").mkdir()
        self.assert_mistake([], "--out")
        self.assert_mistake(["--out", ""], "--out")
        self.assert_mistake(["--out", "no/such/c.json"], "cannot be written")
        self.assert_mistake(["--out", "folder"], "is a directory")
        good = ["--out", "c.json"]
        self.assert_mistake([*good, "--max-elements", "100"], "--max-elements")
        self.assert_mistake([*good, "--max-dim", "64"], "--max-dim")
        self.assert_mistake([*good, "--max-dim", "large"], "--max-dim")
        self.assert_mistake([*good, "--repetitions", "0"], "--repetitions")
        self.assert_mistake([*good, "--threads", "0"], "--threads")
        self.assert_mistake([*good, "--device", "tpu"], "--device")
        self.assert_mistake([*good, "--backend", "nccl"], "--backend")
        self.assert_mistake([*good, "--quick", "--max-dim", "512"], "--quick")
        self.assert_mistake([*good, "--name", "two\nlines"], "--name")
        self.assert_mistake([*good, "--name", ""], "--name")
        self.assertFalse((self.folder / "c.json").exists())


@unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
class MpirunTest(CalibrateTestCase):
    def test_two_ranks_measure_collectives_and_one_of_them_speaks(self) -> None:
        text = self.calibrate("--out", "two.json", launcher=MPIRUN)
        self.assertEqual(text.count("two.json: written"), 1)
        cluster = self.cluster("two.json")
        self.assertEqual(cluster["world"], 2)
        self.assertNotIn("all_gather", text)
        self.assertEqual(cluster["task_order"], "factors_between_passes")
        for name in ("all_reduce", "reduce", "broadcast"):
            self.assertIn(name, text)
            cost = cluster["collectives"][name]
            seconds = cost["table"][-1][1] if "table" in cost else cost["alpha"] + cost["beta"]
            self.assertGreater(seconds, 0)
        overheads = cluster["overheads"]
        rates = (overheads["compute_rate_under_communication"],
                 overheads.get("communication_rate_under_computation", 1))
        self.assertTrue(all(0.01 <= rate <= 1 for rate in rates), rates)
        alone = self.simulate("two.json", "--world", "1")
        four = self.simulate("two.json", "--world", "4", "--algorithm", "auto")
        self.assertEqual((alone["world"], four["world"]), (1, 4))
        self.assertGreater(alone["iteration_seconds"], 0)

    def test_a_mistake_ends_all_ranks(self) -> None:
        done = self.run_command(*MPIRUN, PROGRAM, *QUICK, "--out", "no/such/c.json")
        self.assertEqual(done.returncode, USAGE_MISTAKE, done.stderr)
        self.assertEqual(done.stderr.count("flags: --out no/such/c.json: cannot be written"), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
