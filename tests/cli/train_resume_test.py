#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of `spdkfac train`: a run that was stopped, interrupted or killed continues as if it
had not been, bit for bit."""

from __future__ import annotations

import random
import signal
import time
import unittest
import zlib

from train_support import TINY, TrainTestCase, checkpoint_is_whole, with_checksum

KFAC = ["--algorithm", "kfac", "--inverse-interval", "3"]
RUNS = {
    "sgd": ["--algorithm", "sgd"],
    "adam": ["--algorithm", "sgd", "--optimizer", "adam", "--weight-decay", "0.01"],
    "kfac": KFAC,
    "kfac with all": [*KFAC, "--optimizer", "adam", "--factor-interval", "2", "--identity-start",
                      "--damping-mode", "plain", "--augment", "--warmup-steps", "20"],
    "preset": ["--preset", "cnn", "--optimizer", "adamw", "--weight-decay", "0.1"],
    "adaptive": ["--preset", "cnn", "--interval", "adaptive"],
    "spread": [*KFAC, "--spread-refreshes"],
    "damping": [*KFAC, "--lm-damping"],
    "graft": ["--graft", "sgd", "--damping-mode", "relative", "--interval", "auto"],
}
SAVE = ["--checkpoint-dir", "run"]
NEWEST = "step-00000014.ckpt"


class ResumeTest(TrainTestCase):
    def assert_resumes(self, *flags: str) -> None:
        """Stops in the middle of the second epoch of 10 steps."""
        whole = self.train(*flags, "--max-steps", "25", "--metrics", "whole")
        self.train(*flags, *SAVE, "--max-steps", "14", "--metrics", "parts")
        rest = self.train(*flags, *SAVE, "--resume", "--max-steps", "25", "--metrics", "parts")
        self.assertEqual(rest["parameters_sha256"], whole["parameters_sha256"])
        self.assertIn(f"continuing from run/{NEWEST} after 14 steps\n", rest["stderr"])
        # Epoch 1, the first part of epoch 2, all of it, the first part of epoch 3.
        parts = self.metrics_without_times("parts")
        self.assertEqual([line["step"] for line in parts], [10, 14, 20, 25])
        self.assertEqual([parts[0], *parts[2:]], self.metrics_without_times("whole"))

    def test_a_stopped_run_continues_bit_for_bit(self) -> None:
        for name, flags in RUNS.items():
            with self.subTest(name):
                self.setUp()
                self.assert_resumes(*flags)

    def test_batch_statistics_are_saved(self) -> None:
        flags = ["train", "--model", "resnet20", "--width", "0.25", "--data", "synthetic",
                 "--input", "3x16x16", "--synthetic-examples", "12", "--batch", "4", "--threads",
                 "1", *KFAC]
        done = [self.run_program(*flags, *SAVE, "--max-steps", steps, "--json", *more)
                for steps, more in (("2", []), ("5", ["--resume"]))]
        done.append(self.run_program(*flags, "--max-steps", "5", "--json"))
        self.assertEqual([one.returncode for one in done], [0, 0, 0], done[1].stderr)
        digests = [line for one in done for line in one.stdout.splitlines() if "sha256" in line]
        self.assertEqual(digests[1], digests[2])
        self.assertNotEqual(digests[0], digests[1])

    def test_a_second_optimizer_is_saved(self) -> None:
        flags = ["train", "--model", "resnet20", "--width", "0.25", "--data", "synthetic",
                 "--input", "3x16x16", "--synthetic-examples", "12", "--batch", "4", "--threads",
                 "1", "--graft", "sgd", "--others", "adamw", "--others-lr", "0.01", "--json"]
        done = [self.run_program(*flags, *SAVE, "--max-steps", steps, *more)
                for steps, more in (("2", []), ("5", ["--resume"]))]
        done.append(self.run_program(*flags, "--max-steps", "5"))
        self.assertEqual([one.returncode for one in done], [0, 0, 0], done[1].stderr)
        digests = [line for one in done for line in one.stdout.splitlines() if "sha256" in line]
        self.assertEqual(digests[1], digests[2])
        at = flags.index("--others")
        without = self.run_program(*flags[:at], *flags[at + 4:], "--max-steps", "5")
        self.assertEqual(without.returncode, 0, without.stderr)
        self.assertNotIn(digests[2], without.stdout.splitlines())

    def test_keeps_the_newest_checkpoints_only(self) -> None:
        self.train("--max-steps", "7", *SAVE, "--checkpoint-every", "2", "--keep", "2")
        self.assertEqual(self.checkpoints(), ["step-00000006.ckpt", "step-00000007.ckpt"])

    def test_saves_after_each_epoch_by_default(self) -> None:
        self.train("--epochs", "2", *SAVE)
        self.assertEqual(self.checkpoints(), ["step-00000010.ckpt", "step-00000020.ckpt"])

    def test_without_a_checkpoint_it_starts_from_the_beginning(self) -> None:
        (self.folder / "run").mkdir()
        (self.folder / "run/.spdkfac-1-0.tmp").write_text("half", encoding="utf-8")
        summary = self.train("--max-steps", "2", *SAVE, "--resume")
        self.assertIn("no checkpoint in run; starting from the beginning\n", summary["stderr"])
        self.assertEqual(self.checkpoints(), ["step-00000002.ckpt"])

    def test_a_finished_run_ends_at_once(self) -> None:
        first = self.train("--epochs", "1", *SAVE)
        again = self.train("--epochs", "1", *SAVE, "--resume", "--metrics", "m")
        for field in ("parameters_sha256", "test_loss", "test_accuracy", "step"):
            self.assertEqual(again[field], first[field])
        self.assertEqual(self.metrics("m"), [])

    def test_a_damaged_newest_checkpoint_is_set_aside(self) -> None:
        whole = self.train("--max-steps", "20")
        for damage in ("flip", "cut", "empty"):
            with self.subTest(damage):
                self.setUp()
                self.train("--max-steps", "14", *SAVE, "--checkpoint-every", "6")
                path = self.folder / "run" / NEWEST
                content = bytearray(path.read_bytes())
                content[len(content) // 2] ^= 1
                path.write_bytes({"flip": content, "cut": content[:-9], "empty": b""}[damage])
                rest = self.train("--max-steps", "20", *SAVE, "--resume")
                self.assertIn(f"spdkfac: warning: run/{NEWEST}: cannot be read (", rest["stderr"])
                self.assertIn(f"; renamed it to {NEWEST}.damaged and using the previous "
                              "checkpoint\n", rest["stderr"])
                self.assertIn("continuing from run/step-00000012.ckpt after 12 steps\n",
                              rest["stderr"])
                self.assertEqual(rest["parameters_sha256"], whole["parameters_sha256"])

    def test_a_run_whose_checkpoints_all_are_damaged_never_starts_from_zero_by_itself(self) -> None:
        self.train("--max-steps", "12", *SAVE, "--checkpoint-every", "6")
        for path in (self.folder / "run").iterdir():
            path.write_bytes(b"")
        for says in ("none of its 2 checkpoints can be read; pass another --checkpoint-dir",
                     "run: its only checkpoints are damaged (step-00000012.ckpt.damaged and 1 more); "
                     "delete them to start from the beginning, or pass another --checkpoint-dir"):
            done = self.run_program(*TINY, *SAVE, "--resume", "--max-steps", "12")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(says, done.stderr.splitlines()[-1])
        for path in (self.folder / "run").iterdir():
            path.unlink()
        again = self.train("--max-steps", "12", *SAVE, "--resume")
        self.assertIn("no checkpoint in run; starting from the beginning\n", again["stderr"])

    def assert_refused_and_untouched(self, content: bytes, says: str) -> None:
        """An error, and every file is as it was: the next attempt can succeed."""
        path = self.folder / "run" / NEWEST
        path.write_bytes(content)
        before = {one.name: one.read_bytes() for one in (self.folder / "run").iterdir()}
        done = self.run_program(*TINY, *KFAC, *SAVE, "--resume", "--max-steps", "20")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(says, done.stderr.splitlines()[-1])
        after = {one.name: one.read_bytes() for one in (self.folder / "run").iterdir()}
        self.assertEqual(after, before)

    def test_only_size_and_checksum_are_damage(self) -> None:
        self.train(*KFAC, "--max-steps", "14", *SAVE, "--checkpoint-every", "6")
        good = (self.folder / "run" / NEWEST).read_bytes()
        for old, new, says in (
                (b"spdkfac.checkpoint/2", b"spdkfac.checkpoint/3", "its format is"),
                (b'"F32","shape"', b'"F31","shape"', "dtype"),
                (b'"model.', b'"nodel.', "has unknown tensors"),
                (b'.a_average"', b'.a_everage"', "a_everage, which the model has not"),
                (b'\\"epoch\\":1', b'\\"epoch\\":x', "position"),
                (b'"position"', b'"positiom"', "has no position"),
                (b'\\"steps\\":14', b'\\"steps\\":-4', "counters"),
        ):
            with self.subTest(old=old):
                self.assertIn(old, good)
                self.assert_refused_and_untouched(with_checksum(good.replace(old, new, 1)), says)
        (self.folder / "run" / NEWEST).write_bytes(good)
        rest = self.train(*KFAC, "--max-steps", "20", *SAVE, "--resume")
        whole = self.train(*KFAC, "--max-steps", "20")
        self.assertEqual(rest["parameters_sha256"], whole["parameters_sha256"])

    def test_a_checkpoint_that_cannot_be_opened_is_not_damaged(self) -> None:
        # What may be gone in a minute: a link that leads nowhere, a folder in its place.
        self.train("--max-steps", "2", *SAVE)
        path = self.folder / "run/step-00000003.ckpt"
        for make, says in ((lambda: path.symlink_to(path.name), "cannot be opened (Too many levels"),
                           (path.mkdir, "is not a file")):
            make()
            done = self.run_program(*TINY, *SAVE, "--resume", "--max-steps", "4")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"run/{path.name}: {says}", done.stderr.splitlines()[-1])
            self.assertEqual(self.checkpoints(), ["step-00000002.ckpt", path.name])
            path.unlink() if path.is_symlink() else path.rmdir()
        rest = self.train("--max-steps", "4", *SAVE, "--resume")
        self.assertIn("continuing from run/step-00000002.ckpt after 2 steps", rest["stderr"])

    def test_a_checkpoint_of_an_earlier_version_is_refused(self) -> None:
        # Those were archives of TorchScript, whose code ran when they were loaded.
        self.train(*KFAC, "--max-steps", "14", *SAVE)
        archive = b"PK\x03\x04 an archive with code"
        trailer = (f"\nspdkfac.checkpoint/1 size={len(archive):020} "
                   f"crc32={zlib.crc32(archive):08x}\n").encode()
        self.assert_refused_and_untouched(archive + trailer, "by an earlier version of spdkfac")

    def test_safetensors_opens_checkpoints(self) -> None:
        try:
            from safetensors import safe_open  # type: ignore[import-not-found]
        except ImportError:
            self.skipTest("the Python package safetensors is not installed")
        self.train(*KFAC, "--max-steps", "14", *SAVE)
        with safe_open(self.folder / "run" / NEWEST, framework="numpy") as file:
            self.assertEqual(file.metadata()["format"], "spdkfac.checkpoint/2")
            names = list(file.keys())
            self.assertIn("random.cpu", names)
            for name in names:
                file.get_tensor(name)

    def test_only_damaged_checkpoints_are_a_mistake(self) -> None:
        self.train("--max-steps", "2", *SAVE)
        (self.folder / "run/step-00000002.ckpt").write_bytes(b"x" * 1000)
        done = self.run_program(*TINY, *SAVE, "--resume")
        self.assertEqual(done.returncode, 2)
        self.assertIn("spdkfac: run: none of its 1 checkpoints can be read; pass another "
                      "--checkpoint-dir to start again\n", done.stderr)

    def test_other_options_than_the_checkpoint_are_named(self) -> None:
        self.train("--epochs", "1", *SAVE)
        cases = {
            ("--batch", "16"): "--batch 8 (now 16)",
            ("--seed", "4"): "--seed 3 (now 4)",
            ("--width", "0.25"): "--width 0.125 (now 0.25)",
            ("--synthetic-examples", "88"):
                "--synthetic-examples 80 (now 88), training examples 80 (now 88)",
            ("--lr", "0.1", "--damping", "0.5"): "--lr 0.003 (now 0.1), --damping 0.01 (now 0.5)",
            ("--schedule", "cosine"):
                "--schedule constant (now cosine), steps of the run absent (now 30)",
        }
        for flags, difference in cases.items():
            with self.subTest(flags=flags):
                kept = [word for i, word in enumerate(TINY)
                        if word not in flags and (i == 0 or TINY[i - 1] not in flags)]
                done = self.run_program(*kept, *SAVE, "--resume", "--json", *flags)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertEqual(done.stderr.splitlines()[-1],
                                 "spdkfac: run/step-00000010.ckpt: was made with other options: "
                                 f"{difference}; use the same options, or another --checkpoint-dir")

    def test_a_folder_with_checkpoints_needs_resume(self) -> None:
        self.train("--epochs", "1", *SAVE)
        done = self.run_program(*TINY, *SAVE)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr,
                         "spdkfac: run: contains checkpoints of an earlier run "
                         "(step-00000010.ckpt); "
                         "pass --resume to continue it, or another --checkpoint-dir\n")


class SignalTest(TrainTestCase):
    ENDLESS = ["--max-steps", "1000000"]

    def test_a_signal_saves_and_resume_continues(self) -> None:
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with self.subTest(number.name):
                self.setUp()
                flags = [*TINY, *KFAC, *SAVE, "--metrics", "m", "--eval-every", "1"]
                process = self.start(*flags, *self.ENDLESS)
                metrics = self.folder / "m"
                self.wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0, process)
                stdout, stderr = self.end(process, number)
                self.assertEqual((process.returncode, stderr), (code, ""))
                step = self.metrics("m")[-1]["step"]
                self.assertEqual(stdout.splitlines()[-1],
                                 f"stopped by {number.name} after {step} of 1000000 steps; to "
                                 "continue, repeat the command with --resume")
                self.assertEqual(self.checkpoints()[-1], f"step-{step:08}.ckpt")
                end = str(step + 7)
                rest = self.train(*KFAC, *SAVE, "--resume", "--max-steps", end)
                whole = self.train(*KFAC, "--max-steps", end)
                self.assertEqual(rest["parameters_sha256"], whole["parameters_sha256"])

    def test_without_a_folder_nothing_is_saved(self) -> None:
        process = self.start(*TINY, *self.ENDLESS, "--metrics", "m", "--eval-every", "1")
        metrics = self.folder / "m"
        self.wait_for(lambda: metrics.exists() and metrics.stat().st_size > 0, process)
        stdout, _ = self.end(process, signal.SIGINT)
        self.assertEqual(process.returncode, 130)
        self.assertIn("nothing was saved because there is no --checkpoint-dir", stdout)

    def test_a_second_signal_ends_at_once(self) -> None:
        # One step takes seconds.
        process = self.start("train", "--data", "synthetic", "--synthetic-examples", "2048",
                             "--batch", "2048", "--width", "2", "--threads", "1")
        process.stdout.readline()  # the header
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        self.assertIsNone(process.poll())
        begin = time.monotonic()
        self.end(process, signal.SIGINT)
        self.assertLess(time.monotonic() - begin, 5)
        self.assertEqual(process.returncode, -signal.SIGINT)


class KillTest(TrainTestCase):
    KILLS = 20
    STEPS = "1000"

    def test_kills_at_random_moments_leave_a_folder_that_resumes(self) -> None:
        moments = random.Random(1)
        flags = [*TINY, *KFAC, *SAVE, "--resume", "--checkpoint-every", "1", "--max-steps",
                 self.STEPS]
        begin = time.monotonic()
        self.assertEqual(self.run_program(*flags[:-1], "1").returncode, 0)
        start_up = time.monotonic() - begin
        for kill in range(self.KILLS):
            before = self.checkpoints()
            process = self.start(*flags)
            if kill % 2 == 0:  # at any moment
                time.sleep(moments.uniform(0, 1.5 * start_up))
            else:  # while it saves one checkpoint after the other
                while process.poll() is None and self.checkpoints() == before:
                    time.sleep(0.005)
                time.sleep(moments.uniform(0, 0.1))
            _, stderr = self.end(process, signal.SIGKILL)
            self.assertIn(process.returncode, (0, -signal.SIGKILL), stderr)
            self.assertEqual(stderr, "", f"kill {kill}")
            for path in (self.folder / "run").glob("*.ckpt"):
                self.assertTrue(checkpoint_is_whole(path), f"kill {kill}: {path.name}")
        rest = self.train(*KFAC, *flags[len(TINY) + len(KFAC):])
        self.assertNotIn("damaged", rest["stderr"])
        self.assertEqual(len(self.checkpoints()), 3)
        whole = self.train(*KFAC, "--max-steps", self.STEPS)
        self.assertEqual(rest["parameters_sha256"], whole["parameters_sha256"])


if __name__ == "__main__":
    unittest.main()
