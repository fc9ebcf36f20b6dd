#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far are forecasts and replays from measured iterations? Algorithms, networks, ranks, slow links.

For each link and number of ranks `spdkfac calibrate` measures the link and the machine as they are
with so many ranks; then `spdkfac bench iteration` forecasts with that, measures, and replays what it
measured. Needs root for the link (see tools/with_link.sh). Usage:
  tools/prediction.py [--program PATH] [--rate 1gbit …] [--ranks 2 4 …] [--model resnet50 …]
                      [--algorithm sgd …] [--steps N] [--close 0.1] [--out-dir out/prediction]
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
MODELS = ("resnet50", "densenet201")
INPUTS = {"inception-v4": "3x96x96"}  # smaller ones do not pass through it
INPUT = "3x64x64"
PATIENCE = 3600

SIMULATED = ("replay", "forecast")

# Seconds by algorithm, then by what they are: measured, replay, forecast.
Times = dict[str, dict[str, float]]


def on_link(options: argparse.Namespace, rate: str, ranks: int, *arguments: str) -> None:
    """Runs the program on the ranks of mpirun, in a network of its own with the slow link."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0"}
    subprocess.run([ROOT / "tools" / "with_link.sh", "--rate", rate, "--", "mpirun",
                    "--oversubscribe", "--bind-to", "core:overload-allowed", "-n", str(ranks), options.program,
                    *arguments], check=True, env=environment, timeout=PATIENCE)


def calibrate(options: argparse.Namespace, rate: str, ranks: int) -> Path:
    cluster = options.out_dir / f"link-{rate}-{ranks}.json"
    on_link(options, rate, ranks, "calibrate", "--threads", "1", "--max-elements", str(1 << 22),
            "--max-dim", "1280", "--repetitions", str(options.repetitions), "--out", str(cluster))
    return cluster


def measure(options: argparse.Namespace, rate: str, ranks: int, model: str, cluster: Path) -> Times:
    record = options.out_dir / f"{model}-{rate}-{ranks}.json"
    chosen = itertools.chain.from_iterable(("--algorithm", name) for name in options.algorithm)
    on_link(options, rate, ranks, "bench", "iteration", "--model", model, "--width", "0.25",
            "--input", INPUTS.get(model, INPUT), "--batch", "8", "--threads", "1", "--steps",
            str(options.steps), "--profile-steps", str(options.profile_steps), "--cluster-file",
            str(cluster), "--record-events", "--out", str(record), *chosen)
    return {run["algorithm"]: {"measured": run["measured"]["median"],
                               **{kind: run[kind]["iteration"] for kind in SIMULATED}}
            for run in json.loads(record.read_text(encoding="utf-8"))["runs"]}


def misordered(times: Times, kind: str, close: float) -> list[str]:
    """Pairs more than `close` apart as measured that the simulation puts the other way round."""
    return [f"{one} before {other}"
            for (one, first), (other, second) in itertools.permutations(times.items(), 2)
            if first["measured"] * (1 + close) < second["measured"] and first[kind] >= second[kind]]


def error(times: dict[str, float], kind: str) -> float:
    return times[kind] / times["measured"] - 1


def table(rate: str, ranks: int, model: str, times: Times, close: float) -> list[str]:
    lines = [f"{model:<14}{rate:>8}{ranks:>6}  {algorithm:<16}{1e3 * found['measured']:>12.1f}"
             + "".join(f"{1e3 * found[kind]:>13.1f}{100 * error(found, kind):>+9.1f}"
                       for kind in SIMULATED)
             for algorithm, found in times.items()]
    for kind in SIMULATED:
        wrong = ", ".join(misordered(times, kind, close)) or "right"
        lines.append(f"{'':<30}order of those {close:.0%} apart, {kind}: {wrong}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bin/spdkfac")
    parser.add_argument("--rate", nargs="+", default=["1gbit"])
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--model", nargs="+", default=MODELS)
    parser.add_argument("--algorithm", nargs="+", default=ALGORITHMS)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--profile-steps", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=7, help="repetitions of the calibration")
    parser.add_argument("--close", type=float, default=0.1, help="closer pairs are not ordered")
    parser.add_argument("--out-dir", type=Path, default=ROOT / "out/prediction")
    options = parser.parse_args()
    options.out_dir.mkdir(parents=True, exist_ok=True)

    errors: dict[str, list[float]] = {kind: [] for kind in SIMULATED}
    lines = [f"{'model':<14}{'link':>8}{'ranks':>6}  {'algorithm':<16}{'measured ms':>12}"
             + "".join(f"{kind + ' ms':>13}{'error %':>9}" for kind in SIMULATED)]
    for rate, ranks in itertools.product(options.rate, options.ranks):
        cluster = calibrate(options, rate, ranks)
        for model in options.model:
            times = measure(options, rate, ranks, model, cluster)
            for kind in SIMULATED:
                errors[kind] += [abs(error(found, kind)) for found in times.values()]
            lines += table(rate, ranks, model, times, options.close)
    for kind, found in errors.items():
        lines.append(f"mean absolute error of {len(found)} {kind}s: {statistics.mean(found):.1%}, "
                     f"at most {max(found):.1%}")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
