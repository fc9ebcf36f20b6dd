#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`spdkfac train`: what it prints, writes and computes. Checkpoints are in train_resume_test.py."""

from __future__ import annotations

import json
import unittest

from train_support import TINY, TrainTestCase, write_idx

EPOCH_FIELDS = {"kind", "epoch", "steps", "train_loss", "test_loss", "test_accuracy", "seconds",
                "algorithm", "world"}
EVAL_FIELDS = {"kind", "step", "test_loss", "test_accuracy", "seconds"}
SUMMARY_FIELDS = {"format", "model", "data", "algorithm", "optimizer", "world", "batch", "seed",
                  "device", "ended_by", "step", "epochs", "test_loss", "test_accuracy", "seconds",
                  "examples_per_second", "parameters", "parameters_sha256"}


class TrainTest(TrainTestCase):
    def test_metrics_have_the_documented_fields(self) -> None:
        summary = self.train("--epochs", "2", "--eval-every", "4", "--metrics", "m.jsonl")
        lines = self.metrics("m.jsonl")
        epochs = [line for line in lines if line["kind"] == "epoch"]
        evals = [line for line in lines if line["kind"] == "eval"]
        self.assertEqual(len(epochs) + len(evals), len(lines))
        self.assertEqual([line["step"] for line in evals], [4, 8, 12, 16, 20])
        self.assertEqual([(line["epoch"], line["steps"], line["step"]) for line in epochs],
                         [(1, 10, 10), (2, 10, 20)])
        for line in epochs:
            self.assertLessEqual(EPOCH_FIELDS, line.keys())
            self.assertEqual((line["algorithm"], line["world"]), ("kfac", 1))
            self.assertGreater(line["seconds"], 0)
            self.assertGreater(line["examples_per_second"], 0)
            self.assertEqual(line["kfac"]["steps"], line["step"])
        for line in evals:
            self.assertLessEqual(EVAL_FIELDS, line.keys())
        self.assertLessEqual(SUMMARY_FIELDS, summary.keys())
        self.assertEqual(summary["format"], "spdkfac.training/1")
        self.assertEqual((summary["step"], summary["epochs"], summary["ended_by"]), (20, 2, "end"))
        self.assertEqual(summary["test_accuracy"], epochs[-1]["test_accuracy"])

    def test_a_partial_epoch_is_an_epoch_with_fewer_steps(self) -> None:
        summary = self.train("--max-steps", "13", "--metrics", "m.jsonl", "--out", "s.json")
        written = json.loads((self.folder / "s.json").read_text(encoding="utf-8"))
        self.assertLessEqual(SUMMARY_FIELDS, written.keys())
        self.assertEqual({**summary, **written}, summary)
        self.assertEqual([(line["epoch"], line["steps"]) for line in self.metrics("m.jsonl")],
                         [(1, 10), (2, 3)])

    def test_metrics_are_appended_behind_a_half_written_line(self) -> None:
        (self.folder / "m.jsonl").write_text('{"kind":"epo', encoding="utf-8")
        self.train("--max-steps", "2", "--metrics", "m.jsonl")
        first, second = (self.folder / "m.jsonl").read_text(encoding="utf-8").splitlines()
        self.assertEqual(first, '{"kind":"epo')
        self.assertEqual(json.loads(second)["steps"], 2)

    def test_the_same_seed_gives_the_same_run(self) -> None:
        for name, flags in (("a", []), ("b", []), ("c", ["--seed", "4"])):
            flags = [*TINY[:-2], "--seed", "3", *flags] if not flags else [*TINY[:-2], *flags]
            done = self.run_program(*flags, "--max-steps", "12", "--eval-every", "5", "--augment",
                                    "--metrics", name)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.metrics_without_times("a"), self.metrics_without_times("b"))
        self.assertNotEqual(self.metrics_without_times("a"), self.metrics_without_times("c"))

    def test_every_algorithm_and_optimizer_learns(self) -> None:
        for flags in (["--algorithm", "sgd"], ["--algorithm", "sgd", "--optimizer", "adam"],
                      ["--algorithm", "kfac"], ["--algorithm", "kfac", "--optimizer", "adam"]):
            with self.subTest(flags=flags):
                self.train(*flags, "--epochs", "6", "--metrics", "m.jsonl")
                losses = [line["train_loss"] for line in self.metrics("m.jsonl")]
                self.assertLess(losses[-1], losses[0])
                (self.folder / "m.jsonl").unlink()

    def test_people_get_a_header_and_a_table(self) -> None:
        done = self.run_program(*TINY, "--epochs", "2")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.splitlines()
        self.assertRegex(lines[0], r"^cnn28, \d+ parameters, 100\.0 % of them in 4 layers with "
                                   r"K-FAC; synthetic, 80 \+ 16 images of 1x28x28$")
        self.assertEqual(lines[1],
                         "kfac over sgd, batch 8, 20 steps (10 per epoch), on cpu with 1 thread")
        self.assertEqual(len(lines), 2 + 2 + 2, done.stdout)
        self.assertEqual({len(line) for line in lines[2:]}, {len(lines[2])})

    def test_the_target_accuracy_ends_the_run(self) -> None:
        summary = self.train("--epochs", "50", "--eval-every", "1", "--target-accuracy", "0.2",
                             "--metrics", "m.jsonl")
        self.assertEqual(summary["ended_by"], "target")
        self.assertLess(summary["step"], 500)
        accuracies = [line["test_accuracy"] for line in self.metrics("m.jsonl")
                      if line["kind"] == "eval"]
        self.assertGreaterEqual(accuracies[-1], 0.2)
        self.assertTrue(all(accuracy < 0.2 for accuracy in accuracies[:-1]))
        self.assertIn("reached an accuracy of", summary["stderr"])

    def test_files_of_the_idx_format_are_read(self) -> None:
        write_idx(self.folder)
        done = self.run_program("train", "--data-dir", ".", "--batch", "8", "--width", "0.125",
                                "--epochs", "1", "--algorithm", "sgd")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("; fashion-mnist, 40 + 10 images of 1x28x28\n", done.stdout)

    def test_the_trace_shows_the_last_step(self) -> None:
        self.train("--max-steps", "2", "--inverse-interval", "1", "--trace", "t.json")
        events = json.loads((self.folder / "t.json").read_text(encoding="utf-8"))["traceEvents"]
        categories = {event.get("cat") for event in events}
        self.assertLessEqual({"factor_comp", "inverse_comp", "precondition"}, categories)

    def test_a_loss_that_explodes_is_a_failed_run(self) -> None:
        done = self.run_program(*TINY, "--algorithm", "sgd", "--lr", "1000000", "--epochs", "5")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr,
                         r"^spdkfac: train: the loss is -?(nan|inf) at step \d+ \(learning rate "
                         r"1000000\); lower --lr or use --warmup-steps\n$")


if __name__ == "__main__":
    unittest.main()
