#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps and seconds to 90 % test accuracy on Fashion-MNIST: SGD, Adam and K-FAC.

Each optimizer gets the same model, batch and number of tuning trials (one seed); the best trial is
run again with three other seeds. Usage:
  tools/convergence.py [--program PATH] [--device cpu|cuda] [--max-steps N] [--out FILE.json]
  tools/convergence.py --best      # only the settings found before (BEST below), three seeds
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = 0.9
EVAL_EVERY = 20
TUNING_SEED = 1
SEEDS = (2, 3, 4)

Setting = dict[str, float]

# Eight trials each. SGD with momentum: rate and momentum; Adam: rate; K-FAC: damping,
# rate and clip.
GRIDS: dict[str, list[Setting]] = {
    "sgd": [{"lr": lr, "momentum": m} for m in (0.9, 0.95) for lr in (0.01, 0.02, 0.05, 0.1)],
    "adam": [{"lr": lr} for lr in (2e-4, 5e-4, 1e-3, 1.5e-3, 2e-3, 3e-3, 5e-3, 1e-2)],
    "kfac": [{"damping": d, "lr": lr, "kl-clip": clip}
             for d, lr, clip in ((0.003, 0.003, 0.001), (0.003, 0.003, 0.003), (0.01, 0.003, 0.001),
                                 (0.01, 0.005, 0.001), (0.01, 0.005, 0.003), (0.01, 0.01, 0.003),
                                 (0.03, 0.01, 0.003), (0.03, 0.02, 0.003))],
}
ALGORITHM = {
    "sgd": ["--algorithm", "sgd", "--optimizer", "sgd"],
    "adam": ["--algorithm", "sgd", "--optimizer", "adam"],
    "kfac": ["--algorithm", "kfac", "--optimizer", "sgd", "--inverse-interval", "5"],
}
# What the grids gave, see docs/benchmarking.md.
BEST: dict[str, Setting] = {
    "sgd": {"lr": 0.05, "momentum": 0.9},
    "adam": {"lr": 0.005},
    "kfac": {"damping": 0.01, "lr": 0.005, "kl-clip": 0.001},
}


def run(options: argparse.Namespace, name: str, setting: Setting, seed: int) -> dict:
    """One training run until the target or the last step; its last evaluation."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder) / "metrics.jsonl"
        command = [str(options.program), "train", *ALGORITHM[name], "--model", "cnn28",
                   "--data", "fashion-mnist", "--batch", "256", "--seed", str(seed),
                   "--device", options.device, "--max-steps", str(options.max_steps),
                   "--eval-every", str(EVAL_EVERY), "--target-accuracy", str(TARGET),
                   "--metrics", str(metrics)]
        command += ["--data-dir", options.data_dir] if options.data_dir else []
        for flag, value in setting.items():
            command += [f"--{flag}", repr(value)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              check=False)
        diverged = done.returncode == 1 and "the loss is" in done.stderr
        if done.returncode != 0 and not diverged:
            raise SystemExit(f"convergence: {' '.join(command)} failed:\n{done.stderr}")
        text = metrics.read_text(encoding="utf-8") if metrics.exists() else ""
        lines = [json.loads(line) for line in text.splitlines()]
    evaluations = [line for line in lines if "test_accuracy" in line]
    # Of an epoch's line, "seconds" are those of the epoch.
    evaluations = [{**line, "seconds": line.get("total_seconds", line["seconds"])}
                   for line in evaluations]
    if diverged or not evaluations:
        evaluations.append({"step": options.max_steps, "seconds": 0, "test_accuracy": 0})
    last = evaluations[-1]
    reached = last["test_accuracy"] >= TARGET
    what = ", ".join(f"{key} {value:g}" for key, value in setting.items())
    result = {"optimizer": name, **setting, "settings": what, "seed": seed, "reached": reached, "steps": last["step"],
              "seconds": last["seconds"],
              "best_accuracy": max(line["test_accuracy"] for line in evaluations),
              "points": [{"step": line["step"], "seconds": line["seconds"],
                          "loss": line["test_loss"], "accuracy": line["test_accuracy"]}
                         for line in evaluations if "test_loss" in line]}
    outcome = (f"{last['step']} steps, {last['seconds']:.1f} s" if reached
               else f"not in {last['step']} steps (best {100 * result['best_accuracy']:.2f} %)")
    print(f"{name:5} {what:24} seed {seed}: {outcome}", flush=True)
    return result


def record_of(options: argparse.Namespace, runs: list[dict]) -> dict:
    """The runs with the chosen settings as a record (docs/records.md)."""
    head = subprocess.run([str(options.program), "bench", "models", "--json"], check=True,
                          capture_output=True, text=True).stdout
    record = {key: value for key, value in json.loads(head).items() if key != "models"}
    labels = {"sgd": "SGD", "adam": "Adam", "kfac": "K-FAC"}
    return record | {
        "experiment": "convergence", "mode": "measured",
        "options": {"model": "cnn28", "data": "fashion-mnist", "batch": 256, "target": TARGET},
        "made": record["made"] | {"device": options.device},
        "convergence": [{"label": labels[run["optimizer"]], "seed": run["seed"],
                         "settings": run["settings"], "points": run["points"]}
                        for run in runs]}


def cost(result: dict) -> tuple[bool, int, float]:
    return (not result["reached"], result["steps"], -result["best_accuracy"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bin/spdkfac")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--data-dir", default="")
    parser.add_argument("--max-steps", type=int, default=1400)
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="seeds for the chosen settings")
    parser.add_argument("--record", type=Path, help="write their curves to this file, for 'spdkfac report'")
    parser.add_argument("--best", action="store_true", help="skip the tuning trials")
    parser.add_argument("--out", type=Path, help="write all runs to this file, as JSON")
    options = parser.parse_args()
    seeds = SEEDS[:options.seeds]
    runs: list[dict] = []
    chosen: list[dict] = []
    summary: dict[str, dict] = {}
    for name, grid in GRIDS.items():
        setting = BEST[name]
        if not options.best:
            trials = [(run(options, name, trial, TUNING_SEED), trial) for trial in grid]
            runs += [result for result, _ in trials]
            setting = min(trials, key=lambda trial: cost(trial[0]))[1]
        results = [run(options, name, setting, seed) for seed in seeds]
        runs += results
        chosen += results
        summary[name] = {"setting": setting, "reached": sum(result["reached"] for result in results),
                         "steps": statistics.median(result["steps"] for result in results),
                         "seconds": statistics.median(result["seconds"] for result in results)}
    print(f"\nto {100 * TARGET:g} % test accuracy, median of {len(seeds)} seeds")
    for name, row in summary.items():
        print(f"{name:5} {row['steps']:6g} steps  {row['seconds']:7.1f} s   reached by "
              f"{row['reached']} of {len(seeds)}   {row['setting']}")
    first_order = min(summary["sgd"]["steps"], summary["adam"]["steps"])
    print(f"K-FAC needs {summary['kfac']['steps'] / first_order:.2f} times the steps of the better of the others")
    if options.out:
        options.out.write_text(json.dumps({"summary": summary, "runs": runs}, indent=1) + "\n",
                               encoding="utf-8")
    if options.record:
        options.record.write_text(json.dumps(record_of(options, chosen), indent=1) + "\n",
                                  encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
