#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`spdkfac train` under mpirun: schedules agree, runs continue, and whatever fails ends the job with
a message that names the cause, leaving whole checkpoints and no process. Skipped (77) without mpirun.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path
from typing import Any

from train_support import PROGRAM, TINY, TrainTestCase, checkpoint_is_whole, write_idx

MPIRUN = [os.environ.get("MPIRUN", ""), *shlex.split(os.environ.get("MPIRUN_FLAGS", ""))]
# mpirun waits one second before SIGTERM, and one more before SIGKILL, unless told otherwise.
PATIENT = ["--mca", "odls_base_sigkill_timeout", "5"]
BOUND = 180
CLUSTER = {
    "format": "spdkfac.cluster/1", "name": "test", "world": 2, "source": "made up for a test",
    "collectives": {name: {"alpha": 1e-5, "beta": 1e-9}
                    for name in ("all_reduce", "reduce", "broadcast")},
    "inverse": {"kind": "cubic", "c0": 1e-4, "c1": 0, "c2": 0, "c3": 1e-8},
    "compute": {"forward": 1e9, "factor": 1e9, "precondition": 1e9},
}


def children(pid: int) -> list[int]:
    """Processes that a process has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] not in "ZX":
            found.append(int(path.parent.name))
    return found


class RanksTest(TrainTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.write_cluster("cluster.json")

    def write_cluster(self, name: str, **changes: Any) -> None:
        (self.folder / name).write_text(json.dumps(CLUSTER | changes), encoding="utf-8")

    def start_ranks(self, *groups: list[str], mca: list[str] | None = None
                    ) -> subprocess.Popen[str]:
        """One or more groups of ranks, each as its count and its arguments."""
        command = [*MPIRUN, *(mca or [])]
        for index, (count, *arguments) in enumerate(groups):
            command += [":"] * (index > 0) + ["-np", count, PROGRAM, *arguments]
        process = subprocess.Popen(command, cwd=self.folder, text=True, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(self.clean_up, process)
        return process

    def clean_up(self, process: subprocess.Popen[str]) -> None:
        for pid in children(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.communicate()

    def finish(self, process: subprocess.Popen[str]) -> tuple[int, str, str]:
        ranks = children(process.pid)
        out, err = process.communicate(timeout=BOUND)
        for pid in ranks:
            self.assertFalse(Path(f"/proc/{pid}/exe").exists(), f"rank {pid} is left")
        return process.returncode, out, err

    def flags(self, *arguments: str, cluster: str = "cluster.json", timeout: int = 15) -> list[str]:
        return [*TINY, "--cluster-file", cluster, "--timeout", str(timeout), *arguments]

    def train_ranks(self, ranks: int, *arguments: str) -> dict[str, Any]:
        code, out, err = self.finish(
            self.start_ranks([str(ranks), *self.flags("--json", *arguments)]))
        self.assertEqual(code, 0, err)
        return json.loads(out) | {"stderr": err}

    def assert_fails(self, *groups: list[str], says: str, code: int | None = None) -> None:
        """Every rank of the job ends, within the bound, and one of them says why."""
        found, _, err = self.finish(self.start_ranks(*groups))
        self.assertNotEqual(found, 0, err)
        if code is not None:
            self.assertEqual(found, code, err)
        self.assertRegex(err, says)

    # --- what comes out ---

    def test_schedules_end_with_the_same_parameters(self) -> None:
        flags = ["--max-steps", "8", "--inverse-interval", "2"]
        expected = self.train_ranks(2, *flags, "--algorithm", "d-kfac")
        self.assertEqual(expected["world"], 2)
        for algorithm in ("mpd-kfac", "spd-kfac", "owner-blocks", "auto"):
            found = self.train_ranks(2, *flags, "--algorithm", algorithm)
            self.assertEqual(found["parameters_sha256"], expected["parameters_sha256"], algorithm)
        owners = self.train_ranks(2, *flags, "--algorithm", "owner-precondition", "--placement",
                                  "lpt")
        self.assertEqual(owners["parameters_sha256"], expected["parameters_sha256"])
        together = sum(rank["factor_bytes"] for rank in owners["ranks"])
        self.assertEqual(together, expected["ranks"][0]["factor_bytes"])

    def test_two_ranks_see_what_one_sees_with_twice_the_batch(self) -> None:
        for algorithm in ("kfac", "sgd"):
            flags = ["--algorithm", algorithm, "--max-steps", "5"]
            batch = TINY.index("--batch") + 1
            doubled = [*TINY[:batch], "16", *TINY[batch + 1:], "--json", *flags]
            done = self.run_program(*doubled)
            self.assertEqual(done.returncode, 0, done.stderr)
            one = json.loads(done.stdout)
            two = self.train_ranks(2, *flags)
            self.assertAlmostEqual(one["test_loss"], two["test_loss"], delta=1e-4)
            self.assertEqual(one["test_accuracy"], two["test_accuracy"])
            self.assertEqual(one["epochs"], two["epochs"])

    def test_only_the_first_rank_speaks_and_metrics_are_of_all(self) -> None:
        process = self.start_ranks(["2", *self.flags("--epochs", "1", "--metrics", "m")])
        code, out, err = self.finish(process)
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(out.count("accuracy %"), 1)
        self.assertIn("kfac over sgd, batch 8, on each of 2 ranks, 5 steps (5 per epoch)", out)
        (line,) = self.metrics("m")
        self.assertEqual((line["world"], line["step"]), (2, 5))

    def test_a_stopped_run_continues_bit_for_bit(self) -> None:
        for algorithm in ("sgd", "spd-kfac", "owner-blocks"):
            with self.subTest(algorithm):
                self.setUp()
                flags = ["--algorithm", algorithm]
                whole = self.train_ranks(2, *flags, "--max-steps", "12")
                save = ["--checkpoint-dir", "run"]
                self.train_ranks(2, *flags, *save, "--max-steps", "7")
                rest = self.train_ranks(2, *flags, *save, "--resume", "--max-steps", "12")
                self.assertEqual(rest["parameters_sha256"], whole["parameters_sha256"])
                self.assertIn("continuing from run/step-00000007.ckpt after 7 steps",
                              rest["stderr"])

    def test_another_number_of_ranks_continues_with_the_same_examples(self) -> None:
        # Two ranks with batches of 8 and one with 16 see the same, before and after: 5 steps an epoch.
        save = ["--checkpoint-dir", "run"]
        doubled = [*(word if word != "8" else "16" for word in TINY), "--json"]
        for algorithm in ("kfac", "sgd"):
            with self.subTest(algorithm):
                self.setUp()
                flags = ["--algorithm", algorithm, "--inverse-interval", "2"][:2 + 2 * (
                    algorithm == "kfac")]
                whole = self.run_program(*doubled, *flags, "--epochs", "3")
                expected = json.loads(whole.stdout)
                self.train_ranks(2, *flags, *save, "--epochs", "3", "--max-steps", "7")
                done = self.run_program(*doubled, *flags, *save, "--epochs", "3", "--resume",
                                        "--max-steps", "12")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("continuing from run/step-00000007.ckpt after 7 steps", done.stderr)
                rest = self.train_ranks(2, *flags, *save, "--epochs", "3", "--resume", "--metrics", "m")
                self.assertIn("after 12 steps", rest["stderr"])
                self.assertEqual((rest["step"], rest["epochs"]), (15, 3))
                self.assertAlmostEqual(rest["test_loss"], expected["test_loss"], delta=1e-4)
                self.assertEqual(self.metrics("m")[-1]["steps"], 5)

    def test_another_number_of_ranks_with_another_batch_goes_on_in_the_epoch(self) -> None:
        # Two ranks take 3·16 of 80 examples; one goes on with 8 at a time: 4 steps of the epoch are
        # left, and 10 make the next one.
        self.train_ranks(2, "--checkpoint-dir", "run", "--epochs", "2", "--max-steps", "3")
        rest = self.train("--checkpoint-dir", "run", "--epochs", "2", "--resume", "--metrics", "m")
        self.assertEqual((rest["step"], rest["epochs"]), (3 + 4 + 10, 2))
        self.assertEqual([(line["epoch"], line["steps"]) for line in self.metrics("m")],
                         [(1, 7), (2, 10)])

    def test_a_write_that_takes_longer_than_the_timeout_kills_no_job(self) -> None:
        slow = ["-x", f"LD_PRELOAD={os.environ['SLOW_FSYNC']}", "-x", "SLOW_FSYNC_SECONDS=10"]
        process = self.start_ranks(
            ["2", *self.flags("--max-steps", "3", "--checkpoint-dir", "run", "--json", timeout=4)],
            mca=slow)
        code, out, err = self.finish(process)
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)["step"], 3)
        self.assert_checkpoints_are_whole()

    def test_a_checkpoint_that_cannot_be_written_ends_all_ranks(self) -> None:
        (self.folder / "run/step-00000002.ckpt").mkdir(parents=True)
        self.assert_fails(
            ["2", *self.flags("--max-steps", "4", "--checkpoint-dir", "run", "--resume",
                              "--checkpoint-every", "2")],
            says=r"run/step-00000002\.ckpt: ", code=2)

    def test_a_plan_is_written_and_followed(self) -> None:
        flags = ["--algorithm", "spd-kfac", "--max-steps", "3"]
        first = self.train_ranks(2, *flags, "--plan-out", "plan.json", "--profile-steps", "0")
        done = subprocess.run(
            [*MPIRUN, "-np", "2", PROGRAM, *TINY, *flags, "--plan", "plan.json", "--json"],
            cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=BOUND, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["plan"], first["plan"])

    # --- what goes wrong ---

    def test_ranks_with_different_options(self) -> None:
        self.assert_fails(["1", *self.flags("--lr", "0.01")], ["1", *self.flags("--lr", "0.02")],
                          says=r"the options", code=2)

    def test_ranks_with_different_models(self) -> None:
        self.assert_fails(["1", *self.flags()], ["1", *self.flags("--model", "resnet20")],
                          says=r"the options", code=2)

    def test_ranks_with_different_numbers_of_examples(self) -> None:
        groups = []
        for name, examples in (("some", 40), ("more", 44)):
            (self.folder / name).mkdir()
            write_idx(self.folder / name, train=examples)
            groups.append(["1", "train", "--data-dir", name, "--batch", "8", "--max-steps", "2",
                           "--threads", "1", "--cluster-file", "cluster.json"])
        self.assert_fails(*groups, says=r"the number of examples", code=2)

    def test_ranks_with_different_plans(self) -> None:
        flags = self.flags("--max-steps", "2")
        self.write_cluster("other.json", inverse={"kind": "cubic", "c0": 0, "c1": 0, "c2": 0,
                                                  "c3": 1e-15})
        self.assert_fails(["1", *flags, "--algorithm", "spd-kfac"],
                          ["1", *self.flags("--max-steps", "2", "--algorithm", "spd-kfac",
                                            cluster="other.json")],
                          says=r"the plan", code=2)

    def test_a_cluster_file_for_another_number_of_ranks(self) -> None:
        self.write_cluster("eight.json", world=8)
        self.assert_fails(["2", *self.flags("--max-steps", "2", cluster="eight.json")],
                          says=r"eight\.json: is for 8 ranks, this run has 2; calibrate", code=2)

    def test_a_plan_for_another_number_of_ranks(self) -> None:
        self.train_ranks(2, "--max-steps", "1", "--plan-out", "plan.json")
        flags = [*TINY, "--max-steps", "2", "--plan", "plan.json"]
        self.assert_fails(["3", *flags], says=r"plan\.json: is for 2 ranks, this run has 3",
                          code=2)

    def test_a_rank_without_data(self) -> None:
        flags = ["train", "--max-steps", "2", "--threads", "1", "--cluster-file", "cluster.json"]
        self.assert_fails(["1", *flags], ["1", *flags, "--data-dir", "nowhere"],
                          says=r"rank 1: nowhere", code=2)

    def running(self, mca: list[str] | None = None, timeout: int = 15) -> subprocess.Popen[str]:
        """Two ranks in the middle of a long run, with a checkpoint already written."""
        process = self.start_ranks(
            ["2", *self.flags("--max-steps", "1000000", "--checkpoint-dir", "run",
                              "--checkpoint-every", "5", "--keep", "2", "--plan-out", "plan.json",
                              timeout=timeout)],
            mca=mca)
        deadline = time.monotonic() + BOUND
        while not list(self.folder.glob("run/step-*.ckpt")):
            self.assertIsNone(process.poll(), "the job ended early")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        return process

    def assert_checkpoints_are_whole(self) -> None:
        files = list(self.folder.glob("run/step-*.ckpt"))
        self.assertTrue(files)
        for file in files:
            self.assertTrue(checkpoint_is_whole(file), file)

    def test_a_killed_rank(self) -> None:
        process = self.running()
        os.kill(children(process.pid)[1], signal.SIGKILL)
        code, _, err = self.finish(process)
        self.assertNotEqual(code, 0)
        self.assertIn("signal 9", err)  # mpirun's own words
        self.assert_checkpoints_are_whole()

    def test_a_rank_that_stands_still(self) -> None:
        process = self.running(timeout=4)
        ranks = children(process.pid)
        os.kill(ranks[1], signal.SIGSTOP)
        try:
            code, _, err = self.finish(process)
        finally:
            for pid in ranks:
                if Path(f"/proc/{pid}/exe").exists():
                    os.kill(pid, signal.SIGCONT)
        self.assertNotEqual(code, 0)
        self.assertRegex(err, r"spdkfac: rank [01]: .*has not ended after 4")
        self.assert_checkpoints_are_whole()

    def test_a_signal_saves_and_ends_all_ranks(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number.name):
                self.setUp()
                process = self.running(mca=PATIENT)
                process.send_signal(number)
                code, out, err = self.finish(process)
                self.assertNotEqual(code, 0, out + err)
                # Written last. While mpirun waits it reads no output, and may drop what came then.
                self.assertTrue((self.folder / "plan.json").exists(), out[-400:] + err)
                self.assert_checkpoints_are_whole()


if __name__ == "__main__":
    if not MPIRUN[0]:
        print("skipped: this build has no MPI, or there is no mpirun")
        sys.exit(77)
    unittest.main()
