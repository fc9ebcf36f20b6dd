#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every table and figure of the paper: simulated on its cluster, measured here, as records and a page.

Simulations are of the paper's networks and 64 workers; measurements of a quarter-width ResNet-50 on
the ranks that fit this machine, on a slow link where the user may make one (root), else through
shared memory. Usage:
  tools/reproduce.py [--program PATH] [--rate 1gbit] [--ranks 2] [--steps N] [--out-dir out/reproduce]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMPARISONS = ("iteration", "breakdown", "pipelining", "placement", "ablation")
SMALL = ["--width", "0.25", "--input", "3x64x64", "--batch", "8", "--threads", "1"]
NO_LINK = 77  # exit code of with_link.sh where it may not make one


class Reproduction:
    """Runs one command after the other and keeps their records."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.records: list[Path] = []
        self.link = self.find_link()
        # Ranks share few cores: they neither spin nor compute with several threads.
        self.environment = os.environ | {"OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0"}

    def find_link(self) -> list[str]:
        """What stands before mpirun for a slow link; nothing where there cannot be one."""
        command = [str(ROOT / "tools/with_link.sh"), "--rate", self.options.rate, "--"]
        tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            return command
        if tried.returncode != NO_LINK:
            raise SystemExit(f"reproduce: {tried.stderr.strip()}")
        print(f"reproduce: no slow link ({tried.stderr.strip()}); ranks use shared memory")
        return []

    def run(self, what: str, command: list[str], environment: dict[str, str] | None = None) -> None:
        print(f"\n== {what}", flush=True)
        begin = time.monotonic()
        done = subprocess.run(command, env=environment or os.environ, check=False)
        if done.returncode != 0:
            raise SystemExit(f"reproduce: {what} failed (exit code {done.returncode})")
        print(f"   ({time.monotonic() - begin:.0f} s)", flush=True)

    def record(self, name: str) -> list[str]:
        path = self.options.out_dir / f"{name}.json"
        self.records.append(path)
        return ["--out", str(path)]

    def simulate(self, *arguments: str, name: str) -> None:
        self.run(f"simulated: {name}", [str(self.options.program), "bench", *arguments,
                                        *self.record(f"simulated-{name}")])

    def measure(self, *arguments: str, name: str) -> None:
        self.run(f"measured: {name}", [*self.mpirun(), "bench", *arguments,
                                       *self.record(f"measured-{name}")], self.environment)

    def mpirun(self) -> list[str]:
        as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        return [*self.link, "mpirun", *as_root, "--oversubscribe", "--bind-to",
                "core:overload-allowed", "-n",
                str(self.options.ranks), str(self.options.program)]

    def run_all(self) -> None:
        self.simulate("models", name="models")
        for experiment in ("comm", "inverse", *COMPARISONS, "scaling"):
            self.simulate(experiment, "--simulate", name=experiment)

        cluster = self.options.out_dir / "cluster.json"
        self.run("calibrate", [*self.mpirun(), "calibrate", "--threads", "1", "--max-elements",
                               str(1 << 22), "--max-dim", "1280", "--repetitions", "5", "--out",
                               str(cluster)], self.environment)
        few = ["--threads", "1", "--repetitions", "5"]
        self.measure("comm", *few, "--max-elements", str(1 << 21), name="comm")
        self.measure("inverse", *few, "--max-dim", "1280", name="inverse")
        steps = [*SMALL, "--steps", str(self.options.steps), "--profile-steps", "3",
                 "--cluster-file", str(cluster)]
        for experiment in COMPARISONS:
            traces = ["--record-events"] if experiment == "iteration" else []
            self.measure(experiment, *steps, *traces, name=experiment)
        self.measure("memory", *SMALL, "--steps", "1", "--cluster-file", str(cluster), name="memory")
        self.run("emulated: 64 ranks",
                 [str(self.options.program), "bench", "iteration", "--emulate", "64", *SMALL,
                  "--recalibrate", "--steps", str(self.options.steps), *self.record("emulated-iteration")],
                 self.environment)
        self.run("convergence",
                 [sys.executable, str(ROOT / "tools/convergence.py"), "--best", "--seeds", "1",
                  "--program", str(self.options.program), "--record",
                  str(self.options.out_dir / "convergence.json")])
        self.records.append(self.options.out_dir / "convergence.json")

    def report(self, page: Path) -> None:
        self.run("report", [str(self.options.program), "report", *map(str, self.records), "--out",
                            str(page), "--title", "SPD-KFAC, reproduced"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bin/spdkfac")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--out-dir", type=Path, default=ROOT / "out/reproduce")
    parser.add_argument("--page", type=Path, default=ROOT / "out/report.html")
    options = parser.parse_args()
    options.out_dir.mkdir(parents=True, exist_ok=True)
    reproduction = Reproduction(options)
    reproduction.run_all()
    reproduction.report(options.page)
    print(f"\n{options.page}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
