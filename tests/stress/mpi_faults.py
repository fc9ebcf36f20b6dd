# SPDX-License-Identifier: Apache-2.0
"""Ranks of `spdkfac train` under mpirun that are killed, stopped or asked to end at random moments.

A run ends on every rank with a cause, or trains to the end; and --resume continues it bit for bit.
"""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from mpi_causes import ERRORS, said_in
from processes import Finding, children, is_left, send, stack_of, variable_of, wait_until

ALGORITHMS = ["sgd", "d-kfac", "mpd-kfac", "spd-kfac", "naive", "lw-none", "optimal-fusion",
              "owner-reduce", "owner-precondition", "owner-blocks"]
# Ways to disturb a run, by weight.
FAULTS = {"kill": 3, "kill-unnoticed": 3, "stop": 3, "pause": 2, "pause-all": 1, "terminate": 1,
          "launcher": 1}
# Seconds without news for which a rank waits in a run that nobody disturbs.
CALM = 60


def cluster_of(world: int) -> dict[str, object]:
    collectives = {name: {"alpha": 1e-5, "beta": 1e-9}
                   for name in ("all_reduce", "reduce", "broadcast")}
    return {"format": "spdkfac.cluster/1", "name": "stress", "world": world,
            "source": "made up for a test", "collectives": collectives,
            "inverse": {"kind": "cubic", "c0": 1e-4, "c1": 0, "c2": 0, "c3": 1e-8},
            "compute": {"forward": 1e9, "factor": 1e9, "precondition": 1e9}}


@dataclass(frozen=True)
class Job:
    """What is trained; all of it decides the parameters."""

    world: int
    algorithm: str
    interval: int
    steps: int
    seed: int
    # Two ranks add in one order whatever the plan, so theirs may follow from measurements.
    measured: bool = False
    profile_steps: int = 0

    def flags(self, timeout: int) -> list[str]:
        flags = ["train", "--data", "synthetic", "--synthetic-examples", "96", "--batch", "4",
                 "--width", "0.125", "--threads", "1", "--seed", str(self.seed), "--algorithm",
                 self.algorithm, "--max-steps", str(self.steps), "--timeout", str(timeout),
                 "--profile-steps", str(self.profile_steps), "--json"]
        if self.algorithm != "sgd":
            flags += ["--inverse-interval", str(self.interval)]
        costs = [] if self.measured or self.world == 1 else ["--cluster-file", "cluster.json"]
        return [*flags, *costs]


@dataclass
class Program:
    """How ranks are started."""

    path: Path
    mpirun: list[str]
    environment: dict[str, str]
    patience: float = 1.0  # how much slower than usual it is
    references: dict[Job, tuple[str, float]] = field(default_factory=dict)

    @property
    def bound(self) -> float:
        """Seconds within which a disturbed run has ended, with timeouts of a few seconds."""
        return 60 * self.patience

    def start(self, job: Job, folder: Path, flags: list[str],
              mpi: list[str] | None = None) -> subprocess.Popen[str]:
        (folder / "cluster.json").write_text(json.dumps(cluster_of(job.world)), encoding="utf-8")
        shutil.rmtree(folder / "ranks", ignore_errors=True)
        command = [*self.mpirun, *(mpi or []), "--output-filename", f"{folder}/ranks:nojobid", "-np",
                   str(job.world), str(self.path), *flags]
        environment = {**self.environment, "XDG_CACHE_HOME": str(folder / "cache")}
        return subprocess.Popen(command, cwd=folder, text=True, env=environment,
                                stdin=subprocess.DEVNULL, stdout=(folder / "out").open("w"),
                                stderr=(folder / "err").open("w"))

    def digest_of(self, job: Job) -> tuple[str, float]:
        """Parameters of a run that nobody disturbs, and its seconds."""
        if job not in self.references:
            with tempfile.TemporaryDirectory() as name:
                begin = time.monotonic()
                process = self.start(job, Path(name), job.flags(CALM))
                end(process, [], self.bound * 2, Path(name), "a run without a fault")
                said = said_in(Path(name))
                if process.returncode != 0 or said.crash():
                    raise Finding(f"a run without a fault fails: {said.tail()}")
                self.references[job] = (digest_in(Path(name)), time.monotonic() - begin)
        return self.references[job]


def summary_in(folder: Path) -> dict[str, object]:
    text = (folder / "out").read_text(encoding="utf-8")
    summary: dict[str, object] = json.loads(text[text.index("{"):])
    return summary


def digest_in(folder: Path) -> str:
    return str(summary_in(folder)["parameters_sha256"])


def end(process: subprocess.Popen[str], ranks: list[int], seconds: float, folder: Path,
        what: str) -> float:
    """Waits for mpirun and all its ranks; whoever is left then is ended, and is a finding."""
    begin = time.monotonic()
    ended = wait_until(lambda: process.poll() is not None and not any(map(is_left, ranks)), seconds,
                       pause=0.01)
    if not ended:
        left = [pid for pid in ranks if is_left(pid)]
        stacks = "\n".join(map(stack_of, left))
        send([*children(process.pid), *left], signal.SIGKILL)
        process.kill()
        process.wait()
        raise Finding(f"{what} has not ended after {seconds:.0f} s ({len(left)} ranks are left): "
                      f"{said_in(folder).tail()}\n{stacks}")
    return time.monotonic() - begin


class MpiCase:
    """One run that is disturbed, once or more often, and continued."""

    def __init__(self, program: Program, seed: int) -> None:
        self.random = random.Random(seed)
        self.program = program
        self.timeout = 4 if program.patience == 1 else 10
        world = self.random.choice([2, 2, 3, 4])
        measured = world == 2 and self.random.random() < 0.25
        self.job = Job(world=world, algorithm=self.random.choice(ALGORITHMS),
                       interval=self.random.choice([1, 2, 5]),
                       steps=self.random.choice([40, 120]), seed=self.random.choice([3, 4]),
                       measured=measured,
                       profile_steps=self.random.choice([0, 5]) if world == 2 else 0)
        self.every = self.random.choice([1, 1, 2, 7])
        self.keep = self.random.choice([1, 2, 3])
        self.faults = self.random.choices(list(FAULTS), list(FAULTS.values()),
                                          k=self.random.choice([1, 1, 2, 3]))
        self.text = (f"{self.job}, a checkpoint every {self.every} steps, keeps {self.keep}: "
                     f"{', '.join(self.faults)}")
        self.counts: Counter[str] = Counter()
        self.slowest = 0.0

    def run(self) -> None:
        expected, seconds = self.program.digest_of(self.job)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for fault in self.faults:
                self.disturbed(folder, fault, expected, seconds)
                self.check_folder(folder)
                self.forget_newest(folder)
            self.continued(folder, expected)
            if self.random.random() < 0.2:
                self.resized(folder)

    def flags(self, timeout: int, job: Job | None = None) -> list[str]:
        return [*(job or self.job).flags(timeout), "--checkpoint-dir", "run", "--checkpoint-every",
                str(self.every), "--keep", str(self.keep), "--resume"]

    def disturbed(self, folder: Path, fault: str, expected: str, seconds: float) -> None:
        mpi = ["--enable-recovery"] if fault == "kill-unnoticed" else []
        process = self.program.start(self.job, folder, self.flags(self.timeout), mpi)
        ranks: list[int] = []
        numbers: dict[int, str] = {}
        try:
            def started() -> bool:
                ranks[:] = children(process.pid)
                numbers.update((pid, variable_of(pid, "OMPI_COMM_WORLD_RANK")) for pid in ranks)
                ready = len(ranks) == self.job.world and all(numbers[pid] for pid in ranks)
                return ready or process.poll() is not None
            wait_until(started, self.program.bound)
            self.wait_for_moment(folder, process, seconds)
            victims = self.disturb(fault, process, ranks)
            left_alone = fault == "stop" and self.left_alone(process, ranks, victims)
            took = end(process, ranks, self.program.bound + 2 * seconds, folder,
                       f"a run after {fault} of {victims}")
        finally:
            send([pid for pid in ranks if is_left(pid)], signal.SIGKILL)
            if process.poll() is None:
                process.kill()
            process.wait()
        self.slowest = max(self.slowest, took)
        victim = numbers.get(victims[0], "") if victims else ""
        if left_alone:
            self.judge_left_alone(folder, expected)
        else:
            self.judge(folder, fault, int(victim) if victim else None, process.returncode, expected)

    def left_alone(self, process: subprocess.Popen[str], ranks: list[int],
                   victims: list[int]) -> bool:
        """Whether only the stopped rank is left, for which mpirun then waits; ends it."""
        others = [pid for pid in ranks if pid not in victims]
        wait_until(lambda: process.poll() is not None or not any(map(is_left, others)),
                   self.program.bound, pause=0.01)
        if any(map(is_left, others)) or wait_until(lambda: process.poll() is not None,
                                                   10 * self.program.patience, pause=0.01):
            return False
        send(victims, signal.SIGKILL)
        return True

    def judge_left_alone(self, folder: Path, expected: str) -> None:
        """A rank that was stopped while it exited: nobody missed it, if all work was done."""
        said = said_in(folder)
        if said.crash() or any(map(ERRORS.search, said.ranks.values())) or not said.out.strip():
            raise Finding(f"after stop mpirun waits for the stopped rank: {said.tail()}")
        if digest_in(folder) != expected:
            raise Finding("after stop the run ended with other parameters")
        self.counts["trained to the end"] += 1

    def wait_for_moment(self, folder: Path, process: subprocess.Popen[str],
                        seconds: float) -> None:
        """Any moment of a run; one in which it saves; one shortly after it has saved."""
        moment = self.random.choice(["any", "saving", "saved"])
        run = folder / "run"

        def names() -> set[str]:
            return set(os.listdir(run)) if run.exists() else set()

        before = names()
        if moment == "any":
            wait_until(lambda: process.poll() is not None, self.random.uniform(0, 0.9 * seconds))
        elif moment == "saving":
            wait_until(lambda: process.poll() is not None or any(
                name.endswith(".tmp") for name in names() - before), 2 * seconds, pause=0.0003)
            time.sleep(self.random.choice([0, 0, 0.001, 0.004]))
        else:
            wait_until(lambda: process.poll() is not None or any(
                name.endswith(".ckpt") for name in names() - before), 2 * seconds, pause=0.001)
            time.sleep(self.random.uniform(0, 0.2))

    def disturb(self, fault: str, process: subprocess.Popen[str], ranks: list[int]) -> list[int]:
        if not ranks:
            return []
        victims = [self.random.choice(ranks)]
        if fault in ("kill", "kill-unnoticed"):
            send(victims, signal.SIGKILL)
        elif fault == "stop":
            send(victims, signal.SIGSTOP)
        elif fault == "pause":
            send(victims, signal.SIGSTOP)
            time.sleep(self.random.uniform(0.05, 0.2 * self.timeout))
            send(victims, signal.SIGCONT)
        elif fault == "pause-all":
            victims = ranks
            send(ranks, signal.SIGSTOP)
            time.sleep(self.timeout + 0.5)
            send(ranks, signal.SIGCONT)
        elif fault == "terminate":
            send(victims, signal.SIGTERM)
        else:
            victims = [process.pid]
            send(victims, signal.SIGKILL)
        return victims

    def judge(self, folder: Path, fault: str, victim: int | None, code: int,
              expected: str) -> None:
        said = said_in(folder)
        if crash := said.crash():
            raise Finding(f"after {fault} a rank crashed ({crash}): {said.tail()}")
        if code == 0 and said.out.strip():
            if digest_in(folder) != expected:
                raise Finding(f"after {fault} the run ended with other parameters")
            self.counts["trained to the end"] += 1
            return
        if fault in ("pause", "pause-all"):
            raise Finding(f"{fault} ended the run (exit code {code}): {said.tail()}")
        if fault == "launcher":  # nobody is left to pass messages on
            self.counts["ended"] += 1
            return
        if code == 0 and fault != "kill-unnoticed":
            raise Finding(f"after {fault} the run ended with exit code 0 and without a summary")
        if silent := said.without_cause(fault, victim, self.job.world):
            raise Finding(f"after {fault} of rank {victim} nobody says why ranks {silent} ended (exit "
                          f"code {code}): {said.tail()}")
        self.counts["ended with a cause"] += 1

    def check_folder(self, folder: Path) -> None:
        for path in (folder / "run").glob("*"):
            if not re.fullmatch(r"step-\d+\.ckpt|\.spdkfac-.*\.tmp", path.name):
                raise Finding(f"the checkpoint folder has a file {path.name}")

    def forget_newest(self, folder: Path) -> None:
        """Now and then, so that older checkpoints are read, too."""
        files = sorted((folder / "run").glob("step-*.ckpt"))
        for path in files[self.random.randint(1, len(files)):] if files else []:
            path.unlink()

    def calm(self, folder: Path, what: str, job: Job) -> None:
        """Continues with nobody disturbing, and must reach the end."""
        process = self.program.start(job, folder, self.flags(CALM, job))
        end(process, [], self.program.bound * 2, folder, what)
        said = said_in(folder)
        if process.returncode != 0 or said.crash():
            raise Finding(f"{what} fails (exit code {process.returncode}): {said.tail()}")
        if re.search("damaged|cannot be read", said.err):
            raise Finding(f"{what} did not read a checkpoint: {said.tail()}")
        if list((folder / "run").glob("*.tmp")):
            raise Finding(f"{what} left a temporary file")

    def continued(self, folder: Path, expected: str) -> None:
        had = bool(list((folder / "run").glob("step-*.ckpt")))
        self.calm(folder, "a continued run", self.job)
        said = said_in(folder)
        if ("continuing from" in said.err) != had:
            raise Finding(f"a checkpoint was not read: {said.tail()}")
        if digest_in(folder) != expected:
            raise Finding("the continued run ends with other parameters than one without a fault")
        self.counts["continued bit for bit"] += 1

    def resized(self, folder: Path) -> None:
        """Another number of ranks continues for a few steps, twice with the same bits."""
        world = self.random.choice([one for one in (1, 2, 3, 4) if one != self.job.world])
        # Other ranks add in another order where plans follow from measurements.
        job = replace(self.job, world=world, steps=self.job.steps + 3, measured=False,
                      profile_steps=0)
        what = f"a run continued on {world} ranks"
        shutil.copytree(folder / "run", folder / "before")
        digests = set()
        for _ in range(2):
            shutil.rmtree(folder / "run")
            shutil.copytree(folder / "before", folder / "run")
            self.calm(folder, what, job)
            summary = summary_in(folder)
            if (summary["world"], summary["step"]) != (world, job.steps):
                raise Finding(f"{what} ends in step {summary['step']}, not {job.steps}")
            if "continuing from" not in said_in(folder).err:
                raise Finding(f"{what} starts from zero: {said_in(folder).tail()}")
            digests.add(digest_in(folder))
        if len(digests) != 1:
            raise Finding(f"{what} ends with other parameters the second time")
        self.counts["on other ranks"] += 1


def program_of(build: Path, environment: dict[str, str], patience: float = 1.0) -> Program:
    mpirun = [os.environ.get("MPIRUN") or shutil.which("mpirun") or "",
              *shlex.split(os.environ.get("MPIRUN_FLAGS",
                                          "--allow-run-as-root --oversubscribe --bind-to none"))]
    return Program(build / "bin/spdkfac", mpirun, environment, patience)
