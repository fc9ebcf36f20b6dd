#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How well are iteration times predicted? Eight algorithms, two models, 2 and 4 ranks, a slow link.

For each number of ranks `spdkfac calibrate` measures the link and the machine as they are with so
many ranks; then `spdkfac bench iteration` measures and predicts. Needs root for the link (see
tools/with_link.sh). Usage:
  tools/prediction.py [--program PATH] [--rate 1gbit] [--steps N] [--out-dir out/prediction]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ALGORITHMS = ("sgd", "d-kfac", "mpd-kfac", "spd-kfac", "pipe", "lbp", "owner-blocks", "auto")
MODELS = (("resnet50", "0.25"), ("densenet201", "0.25"))
RANKS = (2, 4)
CLOSE = 0.10  # algorithms nearer than this are not ranked


def on_link(options: argparse.Namespace, ranks: int, *arguments: str) -> None:
    """Runs the program on the ranks of mpirun, in a network of its own with the slow link."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0"}
    subprocess.run([ROOT / "tools" / "with_link.sh", "--rate", options.rate, "--", "mpirun",
                    "--oversubscribe", "--bind-to", "none", "-n", str(ranks), options.program,
                    *arguments], check=True, env=environment)


def measure(options: argparse.Namespace, ranks: int, model: str, width: str) -> dict:
    """The record of one `bench iteration`."""
    record = options.out_dir / f"{model}-{ranks}.json"
    chosen = itertools.chain.from_iterable(("--algorithm", name) for name in ALGORITHMS)
    on_link(options, ranks, "bench", "iteration", "--model", model, "--width", width, "--input",
            "3x64x64", "--batch", "8", "--threads", "1", "--steps", str(options.steps),
            "--cluster-file", str(cluster_file(options, ranks)), "--out", str(record), *chosen)
    return json.loads(record.read_text())


def cluster_file(options: argparse.Namespace, ranks: int) -> Path:
    return options.out_dir / f"link-{ranks}.json"


def misordered(times: dict[str, tuple[float, float]]) -> list[str]:
    """Pairs more than CLOSE apart as measured that the prediction puts the other way round."""
    wrong = []
    for (one, (a, predicted_a)), (other, (b, predicted_b)) in itertools.permutations(times.items(), 2):
        if a * (1 + CLOSE) < b and predicted_a >= predicted_b:
            wrong.append(f"{one} before {other}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bin/spdkfac")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--out-dir", type=Path, default=ROOT / "out/prediction")
    options = parser.parse_args()
    options.out_dir.mkdir(parents=True, exist_ok=True)

    errors: list[float] = []
    lines = [f"{'model':<14}{'ranks':>5}  {'algorithm':<14}{'measured ms':>12}{'predicted ms':>13}{'error %':>9}"]
    for ranks in RANKS:
        on_link(options, ranks, "calibrate", "--threads", "1", "--max-elements", str(1 << 22),
                "--max-dim", "1280", "--repetitions", "7", "--out", str(cluster_file(options, ranks)))
        for model, width in MODELS:
            times = {run["algorithm"]: (run["measured"]["median"], run["predicted"]["iteration"])
                     for run in measure(options, ranks, model, width)["runs"]}
            for algorithm, (measured, predicted) in times.items():
                error = predicted / measured - 1
                errors.append(abs(error))
                lines.append(f"{model:<14}{ranks:>5}  {algorithm:<14}{measured * 1e3:>12.1f}"
                             f"{predicted * 1e3:>13.1f}{error * 100:>+9.1f}")
            wrong = misordered(times)
            lines.append(f"{'':<21}order of those {CLOSE:.0%} apart: " + (", ".join(wrong) or "right"))
    lines.append(f"mean error {statistics.mean(errors):.1%} of {len(errors)} predictions")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
