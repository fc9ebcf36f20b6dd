#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mistakes in the flags and data of `spdkfac train`: exit code 2, one message, no files."""

from __future__ import annotations

import concurrent.futures
import gzip
import os
import unittest

from train_support import TINY, TrainTestCase, write_idx

MODELS = "resnet18, resnet50, resnet152, densenet201, inception-v4, cnn28, resnet20"
HELP = "; see spdkfac train --help"
ALGORITHMS = ("auto, sgd, kfac, d-kfac, mpd-kfac, spd-kfac, pipe, lbp, naive, lw-none, lw-threshold, "
              "sp-otf, optimal-fusion, owner-reduce, owner-precondition, owner-blocks, kaisa-mem, "
              "kaisa-hybrid, kaisa-comm, dp-kfac, shampoo, soap, muon")
INSTALL = "apt-get install dataset-fashion-mnist, or pass --data-dir"
CIFAR = "--data-dir must contain the files of cifar-10-binary.tar.gz"


def conflict(first: str, second: str) -> str:
    return f"flags: {first} and {second} cannot be combined; remove one of them"


REAL = {"--lr", "--momentum", "--weight-decay", "--width", "--damping", "--kl-clip",
        "--running-average", "--target-accuracy"}


def range_of(flag: str, value: str, low: str, high: str) -> tuple[list[str], str]:
    kind = "a number" if flag in REAL else "an integer"
    return [flag, value], f"flags: {flag}: expected {kind} from {low} to {high} (got {value}){HELP}"


def with_sgd(*flags: str) -> tuple[list[str], str]:
    return ["--algorithm", "sgd", *flags], conflict("--algorithm sgd", flags[0])


def without_folder(*flags: str) -> tuple[list[str], str]:
    return [*flags], f"flags: {flags[0]} needs --checkpoint-dir; name the folder"


# Behind `spdkfac train`, and behind `spdkfac: `.
CASES: list[tuple[list[str], str]] = [
    (["--model", "cnn"], f'model: unknown name "cnn"; did you mean cnn28? choose one of {MODELS}'),
    (["--algorithm", "kfca"], f'algorithm: unknown name "kfca"; did you mean kfac? choose one of {ALGORITHMS}'),
    (["--algorithm", "dp-kfac"],
     "options: algorithm dp-kfac has factor_reduce=local, which is for plans and forecasts only; "
     "train with an algorithm of this library, such as spd-kfac, owner-blocks or auto"),
    (["--gradient-workers", "0.5", "--placement", "lpt"],
     "options: algorithm kfac has gradient_workers=0.5, which is for plans and forecasts only; "
     "train with an algorithm of this library, such as spd-kfac, owner-blocks or auto"),
    (["--algorithm", "auto", "--fusion", "none"],
     "flags: algorithm=auto chooses the variants itself; remove the other variant flags, or name "
     "the algorithm that they modify"),
    (["--backend", "nccl"],
     "flags: --backend nccl needs several ranks; start the program with mpirun"),
    with_sgd("--damping", "0.1"), with_sgd("--damping-mode", "pi"),
    with_sgd("--running-average", "0.9"), with_sgd("--identity-start"),
    with_sgd("--convention", "kfc"), with_sgd("--kl-clip", "0"), with_sgd("--factor-interval", "1"),
    with_sgd("--inverse-interval", "1"), with_sgd("--patch-memory", "64"),
    with_sgd("--trace", "t.json"), with_sgd("--preset", "cnn"), with_sgd("--graft", "adam"),
    with_sgd("--interval", "auto"), with_sgd("--others", "adamw"), with_sgd("--refresh-change", "0.2"),
    with_sgd("--norms"), with_sgd("--spread-refreshes"),
    (["--optimizer", "adamw", "--momentum", "0.5"], conflict("--optimizer adamw", "--momentum")),
    (["--preset", "cnn", "--kl-clip", "0.1"],
     "kfac: kl_clip=0.1; pass 0, or graft=none: grafting sets the length of updates"),
    (["--interval", "adaptive", "--spread-refreshes"],
     "kfac: spread_refreshes=true; pass false, or interval=auto or fixed: with adaptive intervals each layer has its "
     "own steps"),
    (["--factor-interval", "2", "--inverse-interval", "5", "--spread-refreshes"],
     "kfac: inverse_interval=5; pass a multiple of factor_interval=2: spread_refreshes=true divides a refresh among "
     "steps that renew factors"),
    (["--optimizer", "adam", "--momentum", "0.5"], conflict("--optimizer adam", "--momentum")),
    (["--input", "1x28x28"], conflict("--data fashion-mnist", "--input")),
    (["--no-graphs"], conflict("--device cpu", "--no-graphs")),
    (["--classes", "5"], conflict("--data fashion-mnist", "--classes")),
    (["--data", "cifar10", "--synthetic-examples", "5"],
     conflict("--data cifar10", "--synthetic-examples")),
    (["--data", "synthetic", "--data-dir", "."], conflict("--data synthetic", "--data-dir")),
    (["--data", "cifar10"],
     "flags: --data cifar10 needs --data-dir, a folder with the files of cifar-10-binary.tar.gz"),
    without_folder("--resume"), without_folder("--keep", "2"),
    without_folder("--checkpoint-every", "2"),
    range_of("--batch", "0", "1", "1000000"), range_of("--epochs", "0", "1", "1000000"),
    range_of("--max-steps", "-1", "1", "1000000000"), 
    (["--seed", "-1"], f"flags: --seed: expected an integer of at least 0 (got -1){HELP}"),
    range_of("--threads", "0", "1", "4096"), range_of("--keep", "0", "1", "1000000"),
    range_of("--lr", "0", "1e-12", "1000000"), range_of("--lr", "nan", "1e-12", "1000000"),
    range_of("--lr", "fast", "1e-12", "1000000"), range_of("--momentum", "1", "0", "0.99999"),
    range_of("--weight-decay", "-1", "0", "1000"), range_of("--width", "0", "0.001", "16"),
    range_of("--damping", "-0.1", "0", "1000000"), range_of("--kl-clip", "inf", "0", "1000000"),
    range_of("--running-average", "1.5", "0", "1"), range_of("--target-accuracy", "90", "1e-06", "1"),
    range_of("--eval-every", "0", "1", "1000000000"),
    range_of("--inverse-interval", "0", "1", "1000000"),
    range_of("--patch-memory", "0", "1", "1048576"),
    (["--running-average", "1"],
     "kfac: running_average=1; pass a number from 0 to below 1, such as 0.95"),
    (["--data", "synthetic", "--input", "28x28"],
     "flags: --input 28x28: expected channels x height x width, each from 1 to 65536; for example "
     "3x224x224"),
    (["--data", "synthetic", "--synthetic-examples", "10", "--batch", "16"],
     "train: --batch 16 exceeds the 10 examples of the training split; lower it"),
    (["--data-dir", "nowhere"],
     "nowhere/train-images-idx3-ubyte.gz: cannot be opened (No such file or directory); " + INSTALL),
    (["--data", "cifar10", "--data-dir", "nowhere"],
     "nowhere/data_batch_1.bin: cannot be opened (No such file or directory); " + CIFAR),
    (["--data", "synthetic", "--input", "3x32x32"],
     "model: cnn28 takes images of 28x28 (got a tensor [1, 3, 32, 32]); resize them, or use "
     "resnet20"),
    (["--metrics", "absent/m.jsonl"],
     "absent/m.jsonl: cannot be written (No such file or directory); check the path of --metrics"),
    (["--trace", "absent/t.json"],
     "absent/t.json: cannot be written (No such file or directory); check the path of --trace"),
    (["--out", "absent/s.json"],
     "absent/s.json: cannot be written (No such file or directory); check the path of --out"),
    *[([*words, "--data", "synthetic"],
       f"flags: {words[0]} needs several ranks; start the program with mpirun, or remove it")
      for words in (["--plan", "p.json"], ["--plan-out", "p.json"], ["--cluster", "paper-64x2080ti"],
                    ["--cluster-file", "c.json"], ["--recalibrate"],
                    ["--plan-out", "p.json", "--algorithm", "sgd"])],
]
# What the parser says in its own words: the flags, and a part of the message.
PARSER_CASES = [(["--coffee"], "--coffee"), (["--lr"], "--lr"), (["--data", "mnist"], "mnist"),
                (["--optimizer", "lamb"], "lamb"), (["--schedule", "linear"], "linear"),
                (["--device", "tpu"], "tpu"), (["--convention", "kfca"], "kfca"),
                (["--damping-mode", "none"], "none"), (["--preset", "rnn"], "rnn"), (["--graft", "lion"], "lion"),
                (["--others-lr", "0.1"], "--others"), (["--interval", "never"], "never"), (["--seed", "1", "--seed", "2"], "--seed")]


class FlagsTest(TrainTestCase):
    def assert_mistake(self, arguments: list[str], message: str, part: bool = False) -> None:
        done = self.run_program("train", *arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        if part:
            self.assertRegex(done.stderr, r"\Aspdkfac: flags: [^\n]*; see spdkfac train --help\n\Z")
            self.assertIn(message, done.stderr)
        else:
            self.assertEqual(done.stderr, f"spdkfac: {message}\n")

    def test_mistakes_are_named(self) -> None:
        before = sorted(self.folder.rglob("*"))
        cases = [(*case, False) for case in CASES] + [(*case, True) for case in PARSER_CASES]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            results = [(case, pool.submit(self.assert_mistake, *case)) for case in cases]
        for (arguments, _, _), result in results:
            with self.subTest(arguments=arguments):
                result.result()
        self.assertEqual(sorted(self.folder.rglob("*")), before)

    def test_damaged_data_is_named(self) -> None:
        write_idx(self.folder)
        path = self.folder / "train-labels-idx1-ubyte.gz"
        path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1]))
        self.assert_mistake(["--data-dir", "."],
                            f"./train-labels-idx1-ubyte.gz: has 39 bytes after its header, which "
                            f"announces 40; {INSTALL}")

    def test_a_gpu_that_is_not_there_is_named(self) -> None:
        done = self.run_program(*TINY, "--device", "cuda", "--max-steps", "1")
        if done.returncode == 0:
            self.skipTest("there is a GPU")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, r"\Aspdkfac: flags: --device cuda: this (build has no CUDA; "
                                      r"build with|machine has no GPU that torch can use; use) ")


if __name__ == "__main__":
    unittest.main()
