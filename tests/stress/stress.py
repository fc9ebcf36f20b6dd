#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks for runs that are wrong or lost: random faults, plans, networks and files, for some minutes.

    stress.py --minutes 60 --seed 1          all of it, as `make stress` does
    stress.py --case mpi --seed 17           one case again

Prints what it tried and found. Exit code: 0 nothing found; 1 with commands that repeat each finding,
or with fewer than 100 cases of killed processes in an hour; 2 nothing found, but a part tried nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import c10d_faults
import mpi_faults
from processes import Finding

ROOT = Path(__file__).resolve().parents[2]
COMMON = {"OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0", "PYTHONDONTWRITEBYTECODE": "1"}
SANITIZERS = {
    "dev": {},
    # Processes that are killed show no leaks. GCC 12's check crashes over plugins that MPI unloads.
    "asan": {"ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1:"
                             "check_initialization_order=1:detect_leaks=0:intercept_tls_get_addr=0",
             "UBSAN_OPTIONS": "print_stacktrace=1"},
    "tsan": {"TSAN_OPTIONS": "halt_on_error=1:ignore_noninstrumented_modules=1"},
}
PATIENCE = {"dev": 1.0, "asan": 4.0, "tsan": 8.0}
JOBS = 2  # cases at once: ranks mostly wait
MOST_FINDINGS = 5  # of a part, which then ends
LIMIT = 120  # seconds of one case of plan_stress, without a sanitizer
# Cases of processes that are killed, stopped and paused: as many are owed in so many minutes.
KILLING = ("mpi", "c10d")
OWED_CASES = 100
OWED_MINUTES = 60


@dataclass
class Part:
    """What is tried in one build, for a share of the time."""

    kind: str
    build: str
    share: float
    what: str


PARTS = [
    Part("mpi", "dev", 0.26, "ranks of mpirun killed, stopped, paused"),
    Part("c10d", "dev", 0.18, "ranks of gloo killed, stopped, paused"),
    Part("plans", "dev", 0.11, "random plans and networks against one rank"),
    Part("faults", "dev", 0.04, "ranks that are threads: throw, leave, stall"),
    Part("states", "dev", 0.03, "damaged states of Python, damaged checkpoints"),
    Part("mpi", "asan", 0.10, "ranks of mpirun killed, stopped, paused"),
    Part("plans", "asan", 0.07, "random plans and networks against one rank"),
    Part("faults", "asan", 0.03, "ranks that are threads: throw, leave, stall"),
    Part("readers", "asan", 0.04, "damaged files for the readers"),
    Part("states", "asan", 0.03, "damaged checkpoints"),
    Part("plans", "tsan", 0.04, "random plans and networks against one rank"),
    Part("faults", "tsan", 0.03, "ranks that are threads: throw, leave, stall"),
    Part("comm", "tsan", 0.04, "tests of all communicators, 1 to 4 ranks"),
]


@dataclass
class Result:
    part: Part
    cases: int = 0
    seconds: float = 0.0
    outcome: str = ""
    findings: list[str] = field(default_factory=list)
    skipped: bool = False


class Stress:
    def __init__(self, builds: Path, python: str) -> None:
        self.builds = builds
        self.python = python

    def folder(self, build: str) -> Path:
        """Tests of ctest run what their own build made."""
        own = os.environ.get("SPDKFAC_BUILD_DIR")
        return Path(own) if own else self.builds / build

    def environment(self, build: str) -> dict[str, str]:
        return {**os.environ, **COMMON, **SANITIZERS[build],
                "PYTHONPATH": str(self.folder(build) / "python")}

    def missing(self, part: Part) -> str:
        """What a part needs and this machine or build lacks."""
        package = self.folder(part.build) / "python/spdkfac"
        if part.build == "dev" and part.kind in ("c10d", "states") and not package.exists():
            return "the Python package is not built"
        if part.kind in ("mpi", "comm") and not (os.environ.get("MPIRUN") or shutil.which("mpirun")):
            return "there is no mpirun"
        programs = {"mpi": "spdkfac-torch", "plans": "plan_stress", "faults": "plan_stress",
                    "readers": "reader_fuzz", "comm": "comm_tests", "states": "checkpoint_fuzz"}
        if part.kind not in programs:
            return ""
        program = self.folder(part.build) / "bin" / programs[part.kind]
        return "" if program.exists() else f"{program} is not built"

    def run(self, part: Part, seed: int, seconds: float, cases: int = 0) -> Result:
        result = Result(part)
        if missing := self.missing(part):
            result.outcome, result.skipped = f"skipped: {missing}", True
            return result
        begin = time.monotonic()
        runner = {"mpi": self.processes, "c10d": self.processes, "plans": self.plans,
                  "faults": self.plans, "readers": self.readers, "comm": self.comm,
                  "states": self.states}[part.kind]
        runner(result, seed, seconds, cases)
        result.seconds = time.monotonic() - begin
        if result.cases == 0 and not result.findings:
            result.outcome = f"tried nothing {result.outcome}".strip()
        return result

    def processes(self, result: Result, seed: int, seconds: float, cases: int) -> None:
        """Cases of the seeds from `seed` on, until the time has passed or a few have failed."""
        part = result.part
        environment = self.environment(part.build)
        counts: Counter[str] = Counter()
        slowest = [0.0]
        program = mpi_faults.program_of(self.folder(part.build), environment, PATIENCE[part.build])
        end = time.monotonic() + seconds

        def next_seed() -> int | None:
            more = result.cases < cases if cases else time.monotonic() < end
            if not more or len(result.findings) >= MOST_FINDINGS:
                return None
            result.cases += 1
            return seed + result.cases - 1

        def work() -> None:
            with c10d_faults.Zygote(self.python, environment) as zygote:
                while True:
                    with lock:
                        number = next_seed()
                    if number is None:
                        return
                    case = (mpi_faults.MpiCase(program, number) if part.kind == "mpi"
                            else c10d_faults.C10dCase(zygote, number))
                    finding = ""
                    try:
                        case.run()
                    except Finding as found:
                        finding = (f"{part.kind} ({part.build}) seed {number}: {found}\n"
                                   f"  case: {case.text}\n  rerun: {rerun(part, number)}")
                    with lock:
                        result.findings += [finding] if finding else []
                        counts.update(case.counts)
                        slowest.append(case.slowest)

        lock = threading.Lock()
        with ThreadPoolExecutor(JOBS) as pool:
            for done in [pool.submit(work) for _ in range(JOBS)]:
                done.result()
        result.outcome = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        result.outcome += f"; slowest end {max(slowest):.1f} s"

    def output_of(self, result: Result, command: list[str], limit: float) -> str:
        part = result.part
        try:
            done = subprocess.run(command, cwd=ROOT, env=self.environment(part.build), text=True,
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=limit,
                                  errors="replace", check=False)
        except subprocess.TimeoutExpired:
            result.findings.append(f"{part.kind} ({part.build}): has not ended after {limit:.0f} s: "
                                   f"{' '.join(command)}")
            return ""
        if done.returncode != 0:
            text = (done.stdout[-3000:] + done.stderr[-3000:]).strip()
            result.findings.append(f"{part.kind} ({part.build}): exit code {done.returncode}: "
                                   f"{text}\n  command: {' '.join(command)}")
        return done.stdout

    def plans(self, result: Result, seed: int, seconds: float, cases: int) -> None:
        part = result.part
        limit = LIMIT * PATIENCE[part.build]
        command = [str(self.folder(part.build) / "bin/plan_stress"), "--case", part.kind,
                   "--limit", str(limit)]
        amount = ["--cases", str(cases), "--seconds", "3600"] if cases else ["--seconds", str(seconds)]
        text = self.output_of(result, [*command, "--seed", str(seed), *amount],
                              seconds + 2 * limit + 60)
        if found := re.search(r"^\w+: (\d+) cases from .*?; (.*)$", text, re.MULTILINE):
            result.cases, result.outcome = int(found[1]), found[2]
        if result.findings and cases != 1:
            if again := re.search(r"seed (\d+)", result.findings[0]):
                result.findings[0] += f"\n  rerun: {rerun(part, int(again[1]))}"

    def readers(self, result: Result, seed: int, seconds: float, _: int) -> None:
        command = [str(self.folder(result.part.build) / "bin/reader_fuzz"), "--seconds",
                   str(seconds), "--seed", str(seed)]
        text = self.output_of(result, command, seconds + 120)
        if found := re.search(r"^(\d+) cases", text, re.MULTILINE):
            result.cases = int(found[1])
        result.outcome = "; ".join(re.findall(r"^\w+: .*used", text, re.MULTILINE))

    def states(self, result: Result, seed: int, seconds: float, cases: int) -> None:
        """Python has no build with the sanitizers, so its states are loaded without them only."""
        folder = self.folder(result.part.build)
        programs = [[str(folder / "bin/checkpoint_fuzz")]]
        if result.part.build == "dev":
            programs.append([self.python, str(ROOT / "tests/stress/state_fuzz.py")])
        amount = ["--cases", str(cases)] if cases else ["--seconds", str(seconds / len(programs))]
        outcomes = []
        for program in programs:
            text = self.output_of(result, [*program, "--seed", str(seed), *amount], seconds + 600)
            if found := re.search(r"^\w+: (\d+) cases from .*?; (.*)$", text, re.MULTILINE):
                result.cases += int(found[1])
                outcomes.append(found[2])
        result.outcome = "; ".join(outcomes)

    def comm(self, result: Result, _: int, __: float, ___: int) -> None:
        command = ["ctest", "--test-dir", str(self.folder(result.part.build)), "-R", "^comm",
                   "--timeout", "600"]
        text = self.output_of(result, command, 1800)
        if found := re.search(r"tests? failed out of (\d+)", text):
            result.cases, result.outcome = int(found[1]), f"{found[1]} programs"


def rerun(part: Part, seed: int) -> str:
    return (f"python3 tests/stress/stress.py --case {part.kind} --build {part.build} --seed {seed}")


def table(rows: list[list[str]], right: set[int]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for number, row in enumerate(rows):
        lines.append("  ".join(cell.rjust(width) if i in right else cell.ljust(width)
                               for i, (cell, width) in enumerate(zip(row, widths))).rstrip())
        if number == 0:
            lines.append("  ".join("─" * width for width in widths))
    return "\n".join(lines)


def exit_code_of(results: list[Result], minutes: float) -> int:
    """Says what was owed and not done; `minutes` is 0 for a single case."""
    if any(one.findings for one in results):
        return 1
    killing = sum(one.cases for one in results if one.part.kind in KILLING)
    if minutes >= OWED_MINUTES and killing < OWED_CASES:
        print(f"stress: {killing} cases of killed processes are fewer than the {OWED_CASES} owed in "
              f"{minutes:g} minutes")
        return 1
    idle = [f"{one.part.kind} ({one.part.build})" for one in results if one.cases == 0]
    if idle:
        print(f"stress: nothing was tried of {', '.join(idle)}, so this is no success")
        return 2
    return 0


def report(results: list[Result], seed: int, minutes: float = 0) -> int:
    rows = [["part", "build", "what", "cases", "seconds", "findings", "outcome"]]
    for one in results:
        rows.append([one.part.kind, one.part.build, one.part.what, str(one.cases),
                     f"{one.seconds:.0f}", str(len(one.findings)), one.outcome])
    print(table(rows, right={3, 4, 5}))
    findings = [finding for one in results for finding in one.findings]
    for finding in findings:
        print(f"\nfinding: {finding}")
    cases = sum(one.cases for one in results)
    killing = sum(one.cases for one in results if one.part.kind in KILLING)
    skipped = sum(one.skipped for one in results)
    verdict = f"{len(findings)} findings" if findings else "no finding"
    print(f"\nstress: {verdict} in {cases} cases, {killing} of them with processes killed, stopped or "
          f"paused, and {sum(one.seconds for one in results):.0f} s with seed {seed}"
          + (f"; {skipped} parts skipped" if skipped else ""))
    return exit_code_of(results, minutes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = sorted({part.kind for part in PARTS})
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", choices=kinds, help="only this kind, one case of this seed")
    parser.add_argument("--cases", type=int, default=1, help="with --case: of seeds from --seed on")
    parser.add_argument("--build", choices=list(SANITIZERS), help="only this build")
    parser.add_argument("--builds", type=Path, default=ROOT / "build", help="folder of all builds")
    parser.add_argument("--skip-code", type=int, default=2, help="with --case: if it cannot be run")
    parser.add_argument("--python", default=str(ROOT / ".venv/bin/python"))
    options = parser.parse_args()
    stress = Stress(options.builds, options.python)
    parts = [part for part in PARTS if options.build in (None, part.build)
             and options.case in (None, part.kind)]
    if options.case:
        build = options.build or parts[0].build
        part = next((one for one in parts if one.build == build),
                    Part(options.case, build, 0, ""))
        results = [stress.run(part, options.seed, 0, options.cases)]
        if results[0].skipped:
            print(f"stress: {results[0].outcome}")
            return int(options.skip_code)
        return report(results, options.seed)
    share = sum(part.share for part in parts)
    seeds = random.Random(options.seed)
    results = []
    for part in parts:
        first = seeds.randrange(1 << 28)
        seconds = 60 * options.minutes * part.share / share
        print(f"{part.kind} ({part.build}) for {seconds:.0f} s from seed {first}", flush=True)
        results.append(stress.run(part, first, seconds))
    print()
    return report(results, options.seed, options.minutes)


if __name__ == "__main__":
    sys.exit(main())
