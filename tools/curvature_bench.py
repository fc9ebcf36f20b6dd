#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seconds of spdkfac.curvature and of curvlinops for the same factors: curvature_bench.py [--fisher mc] …

A small CNN on the first images of Fashion-MNIST (Debian's dataset-fashion-mnist), one thread. Both run in turn, several
times; the table has medians and ranges. The matrices are compared by products with the same vectors: those of `mc` are
drawn by both alike, so all agree to rounding.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch
from curvlinops import KFACLinearOperator
from torch import nn

import spdkfac

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples/python"))
from sample_data import images

TYPES = {"empirical": "empirical", "mc": "mc", "exact": "type-2"}


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(32 * 49, 64), nn.ReLU(), nn.Linear(64, 10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fisher", nargs="+", choices=TYPES, default=list(TYPES))
    parser.add_argument("--approximation", nargs="+", choices=("expand", "reduce"), default=["expand", "reduce"])
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--repetitions", type=int, default=5)
    flags = parser.parse_args()
    torch.set_num_threads(1)
    model, loss = network(), nn.CrossEntropyLoss()
    inputs, labels = images(flags.examples)
    data = list(zip(inputs.split(flags.batch), labels.split(flags.batch), strict=True))
    parameters = list(model.parameters())
    vectors = torch.randn(sum(p.numel() for p in parameters), 4)

    def theirs(fisher: str, approximation: str) -> KFACLinearOperator:
        operator = KFACLinearOperator(model, loss, parameters, data, fisher_type=TYPES[fisher], seed=5,
                                      kfac_approx=approximation, separate_weight_and_bias=False,
                                      check_deterministic=False, num_per_example_loss_terms=1,
                                      num_data=flags.examples)
        operator.compute_kronecker_factors()
        return operator

    print(f"{flags.examples} examples, batches of {flags.batch}, {flags.repetitions} repetitions, "
          f"torch {torch.__version__}, one thread; seconds: median (least to most)")
    for fisher in flags.fisher:
        for approximation in flags.approximation:
            seconds: dict[str, list[float]] = {"spdkfac": [], "curvlinops": []}
            for repetition in range(flags.repetitions + 1):
                begin = time.perf_counter()
                ours = spdkfac.curvature(model, data, loss, fisher=fisher, approximation=approximation, seed=5)
                middle = time.perf_counter()
                operator = theirs(fisher, approximation)
                if repetition > 0:  # the first warms up
                    seconds["spdkfac"].append(middle - begin)
                    seconds["curvlinops"].append(time.perf_counter() - middle)
            reference = operator @ vectors
            error = float(torch.linalg.norm(ours.product(vectors.T).T - reference) / torch.linalg.norm(reference))
            medians = {name: statistics.median(values) for name, values in seconds.items()}
            text = ", ".join(f"{name} {medians[name]:.2f} ({min(values):.2f} to {max(values):.2f})"
                             for name, values in seconds.items())
            print(f"{fisher:9} {approximation}: {text}, × {medians['curvlinops'] / medians['spdkfac']:.1f}; "
                  f"relative difference {error:.0e}", flush=True)


if __name__ == "__main__":
    main()
