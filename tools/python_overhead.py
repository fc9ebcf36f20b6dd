#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times a K-FAC step through Python against the C++ program, one after the other, several times.

Usage: python_overhead.py --program build/release/bin/spdkfac [--device cuda] [--model resnet50 …]

Both train the same model on the same shape with one process; each round starts the program
(`bench step`) and then takes as many steps here. The figure is the median over the rounds of the ratio of
their median step times, with the lowest and the highest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
import warnings
from pathlib import Path

import torch
import torchvision
from torch import nn

import spdkfac


def program_seconds(options: argparse.Namespace) -> float:
    """The median step of the variant kfac."""
    command = [str(options.program), "bench", "step", "--model", options.model, "--input",
               "x".join(map(str, options.input)), "--batch", str(options.batch), "--steps",
               str(options.steps), "--device", options.device, "--threads", str(options.threads),
               "--precision", options.precision, "--inverse-interval",
               str(options.inverse_interval), "--json", *(["--graphs"] if options.graphs else [])]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return statistics.median(json.loads(output)["seconds"]["kfac, graphs" if options.graphs else "kfac"])


class Trainee:
    """The same training in Python."""

    def __init__(self, options: argparse.Namespace) -> None:
        torch.manual_seed(1)
        self.device = torch.device(options.device)
        self.model = torchvision.models.get_model(options.model).to(self.device)
        self.images = torch.randn(options.batch, *options.input, device=self.device)
        self.labels = torch.randint(1000, (options.batch,), device=self.device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.optimizer = spdkfac.SPDKFACOptimizer(
                torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9), self.model, preset="paper",
                inverse_interval=options.inverse_interval, precision=options.precision)
        self.run = spdkfac.RecordedSteps(self.optimizer, self.train).run if options.graphs else self.train

    def train(self) -> None:
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(self.images), self.labels).backward()
        self.optimizer.step()

    def step(self) -> float:
        self.wait()
        begin = time.perf_counter()
        self.run()
        self.wait()
        return time.perf_counter() - begin

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--program", type=Path, default=Path("build/release/bin/spdkfac"))
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--input", type=lambda text: [int(n) for n in text.split("x")],
                        default=[3, 64, 64], metavar="CxHxW")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--precision", default="fp32", choices=["fp32", "tf32"], help="on a GPU")
    parser.add_argument("--graphs", action="store_true", help="on a GPU, both with steps as CUDA graphs")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--inverse-interval", type=int, default=100,
                        help="longer than a round: inverses would hide the rest")
    parser.add_argument("--steps", type=int, default=10, help="steps per round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.backends.cuda.matmul.allow_tf32 = options.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = options.precision == "tf32"
    torch.backends.cudnn.benchmark = True  # as the program does
    trainee = Trainee(options)
    for _ in range(3):
        trainee.step()
    ratios = []
    for index in range(1, options.rounds + 1):
        program = program_seconds(options)
        python = statistics.median(trainee.step() for _ in range(options.steps))
        ratios.append(python / program)
        print(f"round {index}: program {1e3 * program:.1f} ms, Python {1e3 * python:.1f} ms, "
              f"{ratios[-1]:.3f} ×", flush=True)
    print(f"{options.model}, batch {options.batch}, {options.device}: "
          f"Python takes {statistics.median(ratios):.3f} × the program "
          f"({min(ratios):.3f} to {max(ratios):.3f} in {options.rounds} rounds)")


if __name__ == "__main__":
    main()
