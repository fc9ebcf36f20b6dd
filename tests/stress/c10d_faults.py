# SPDX-License-Identifier: Apache-2.0
"""Processes of torch.distributed (gloo) that are killed, stopped, or leave at random moments.

Every process that survives ends with a CommError within the timeout, or trains to the end; and a
saved state continues bit for bit.
"""

from __future__ import annotations

import json
import os
import random
import re
import selectors
import signal
import socket
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from mpi_faults import cluster_of
from processes import Finding, is_left, send, wait_until

ALGORITHMS = ["d-kfac", "mpd-kfac", "spd-kfac", "naive", "optimal-fusion", "owner-reduce",
              "owner-precondition", "owner-blocks"]
FAULTS = {"kill": 3, "stop": 3, "pause": 2, "pause-all": 1, "raise": 2, "exit": 2}
TIMEOUT = 4
CALM = 60  # the timeout of runs that nobody disturbs
BOUND = 60.0  # seconds within which every process has ended
FAILED = 7
# While processes join and part, torch's own errors; gloo's are RuntimeErrors that name it. From our
# own code, always a CommError.
CAUSES = re.compile(r"^(?:(?:join|end): (?:Dist\w*Error: .|RuntimeError: .*[Gg]loo)|"
                    r"(?:start|steps|end): CommError: c10d: .)", re.MULTILINE)
IN_USE = re.compile(r"EADDRINUSE|[Aa]ddress already in use")


class Zygote:
    """Starts processes that have torch loaded; none before the first case."""

    def __init__(self, python: str, environment: dict[str, str]) -> None:
        self.python = python
        self.environment = {**environment, "GLOO_SOCKET_IFNAME": "lo"}
        self.process: subprocess.Popen[bytes] | None = None
        self.unread = b""

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        self.process = None

    def start(self, job: dict[str, Any]) -> list[int]:
        if self.process is None:
            script = Path(__file__).with_name("c10d_zygote.py")
            self.process = subprocess.Popen([self.python, str(script)], env=self.environment,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
            self.unread = b""
            if (said := self.line(300)) != "ready":
                raise Finding(f"the process that starts others says {said!r} instead of ready")
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job).encode() + b"\n")
        if not (said := self.line(60)):
            raise Finding("the process that starts others does not answer")
        pids: list[int] = json.loads(said)
        return pids

    def line(self, seconds: float) -> str:
        """The next answer; empty if none comes in time."""
        assert self.process is not None and self.process.stdout is not None
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.unread:
                if not selector.select(max(0.0, end - time.monotonic())):
                    return ""
                more = os.read(self.process.stdout.fileno(), 65536)
                if not more:
                    return ""
                self.unread += more
        first, _, self.unread = self.unread.partition(b"\n")
        return first.decode().strip()

    def exit_codes(self, pids: list[int], seconds: float) -> dict[int, int]:
        """By process; those that have not ended in time are killed and missing."""
        codes: dict[int, int] = {}
        end = time.monotonic() + seconds
        while len(codes) < len(pids):
            text = self.line(max(0.0, end - time.monotonic()))
            if not text:
                left = [pid for pid in pids if pid not in codes]
                show_stacks(left)
                send(left, signal.SIGKILL)
                for _ in left:
                    self.line(10)
                break
            pid, code = json.loads(text)
            codes[pid] = code
        return codes


def show_stacks(pids: list[int]) -> None:
    """Lets processes that do not end write where they are."""
    send(pids, signal.SIGUSR1)
    if pids:
        time.sleep(1)


def free_port() -> int:
    """Somebody else may take it before it is used; see IN_USE."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class C10dCase:
    """One run that is disturbed and continued."""

    references: dict[str, bytes] = {}

    def __init__(self, zygote: Zygote, seed: int) -> None:
        self.random = random.Random(seed)
        self.zygote = zygote
        draw = self.random
        self.fault = draw.choices(list(FAULTS), list(FAULTS.values()))[0]
        world = draw.choice([2, 3])
        steps = 12
        self.job: dict[str, Any] = {
            "world": world, "steps": steps, "timeout": TIMEOUT, "every": draw.choice([1, 2, 5]),
            "fault": self.fault, "victim": draw.randrange(world), "at": draw.randrange(steps),
            "hard": draw.random() < 0.5, "tcp": draw.random() < 0.5,
            "options": {"algorithm": draw.choice(ALGORITHMS), "profile_steps": 0,
                        "inverse_interval": draw.choice([1, 3])},
        }
        self.early = draw.random() < 0.25  # before the first step
        # Torch's own store waits without a limit for the process that hosts it, the first one.
        # torchrun hosts it elsewhere.
        if self.early and self.fault == "stop" and self.job["victim"] == 0:
            self.job["tcp"] = False
        self.text = f"{self.job}{' while it starts' if self.early else ''}"
        self.counts: Counter[str] = Counter()
        self.slowest = 0.0

    def run(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            expected = self.expected()
            self.disturbed(folder, expected)
            self.continued(folder, expected)

    def start(self, folder: Path, **changes: Any) -> list[int]:
        cluster = folder / "cluster.json"
        cluster.write_text(json.dumps(cluster_of(self.job["world"])), encoding="utf-8")
        for kind in ("at-*", "end-*", "err-*", "store*"):
            for file in folder.glob(kind):
                file.unlink()
        job = {**self.job, "folder": str(folder), **changes}
        job["store"] = (f"tcp://127.0.0.1:{free_port()}" if job["tcp"]
                        else f"file://{folder}/store")
        job["options"] = {**job["options"], "cluster": str(cluster)}
        return self.zygote.start(job)

    def undisturbed(self, folder: Path, **changes: Any) -> bytes:
        """Parameters of a run that must succeed on all ranks."""
        pids = self.start(folder, fault="none", timeout=CALM, tcp=False, **changes)
        codes = self.zygote.exit_codes(pids, 2 * BOUND)
        if list(codes.values()) != [0] * len(pids):
            raise Finding(f"a run without a fault fails ({codes}): {self.errors(folder)}")
        ends = {(folder / f"end-{rank}").read_bytes() for rank in range(self.job["world"])}
        if len(ends) != 1:
            raise Finding("ranks end with different parameters")
        return ends.pop()

    def expected(self) -> bytes:
        job = self.job
        key = json.dumps([job["world"], job["steps"], job["options"]])
        if key not in self.references:
            with tempfile.TemporaryDirectory() as name:
                self.references[key] = self.undisturbed(Path(name), every=10**6, resume=False)
        return self.references[key]

    def disturbed(self, folder: Path, expected: bytes) -> None:
        pids, codes = self.disturb(folder)
        for _ in range(3):
            if not IN_USE.search(self.errors(folder)):
                break
            pids, codes = self.disturb(folder)
        self.judge(folder, pids, codes, expected)

    def disturb(self, folder: Path) -> tuple[list[int], dict[int, int]]:
        pids = self.start(folder, resume=False)
        victim = pids[self.job["victim"]]
        self.wait_for_moment(folder, pids)
        begin = time.monotonic()
        if self.fault == "kill":
            send([victim], signal.SIGKILL)
        elif self.fault in ("stop", "pause"):
            send([victim], signal.SIGSTOP)
        elif self.fault == "pause-all":
            send(pids, signal.SIGSTOP)
        if self.fault.startswith("pause"):
            time.sleep(self.random.uniform(0.1, 0.4 * TIMEOUT))
            send(pids, signal.SIGCONT)
        ending = self.zygote.exit_codes if self.fault != "stop" else self.ending_of_survivors
        codes = ending(pids, BOUND)
        self.slowest = time.monotonic() - begin
        return pids, codes

    def ending_of_survivors(self, pids: list[int], seconds: float) -> dict[int, int]:
        victim = pids[self.job["victim"]]
        rest = [pid for pid in pids if pid != victim]
        wait_until(lambda: not any(map(is_left, rest)), seconds, pause=0.01)
        survivors = [pid for pid in rest if is_left(pid)]
        show_stacks(survivors)
        send([victim], signal.SIGKILL)
        codes = self.zygote.exit_codes(pids, 5)
        return {pid: code for pid, code in codes.items() if pid not in survivors}

    def wait_for_moment(self, folder: Path, pids: list[int]) -> None:
        if self.fault in ("raise", "exit"):
            return
        if self.early:
            time.sleep(self.random.uniform(0, 0.4))
            return
        at = folder / f"at-{self.job['victim']}"

        def reached() -> bool:
            try:
                done = int(at.read_text(encoding="utf-8") or 0) >= self.job["at"]
            except OSError:
                done = False
            return done or not any(map(is_left, pids))

        wait_until(reached, BOUND)
        time.sleep(self.random.uniform(0, 0.03))

    def errors(self, folder: Path) -> str:
        return "\n".join(f"rank {file.name[4:]}: " + file.read_text(encoding="utf-8")[-800:]
                         for file in sorted(folder.glob("err-*")))

    def judge(self, folder: Path, pids: list[int], codes: dict[int, int],
              expected: bytes) -> None:
        fails = not self.fault.startswith("pause")
        ended = finished = 0
        for rank, pid in enumerate(pids):
            if fails and rank == self.job["victim"]:
                continue
            said = (folder / f"err-{rank}").read_text(encoding="utf-8")
            if pid not in codes:
                raise Finding(f"after {self.fault} rank {rank} has not ended after {BOUND:.0f} s: "
                              f"{self.errors(folder)}")
            code = codes[pid]
            if code == 0:
                finished += 1
                if (folder / f"end-{rank}").read_bytes() != expected:
                    raise Finding(f"after {self.fault} rank {rank} has other parameters")
            elif not fails:
                raise Finding(f"{self.fault} ended rank {rank} (exit code {code}): {said}")
            elif code != FAILED:
                raise Finding(f"after {self.fault} rank {rank} ended with exit code {code}: {said}")
            elif not CAUSES.search(said):
                raise Finding(f"after {self.fault} rank {rank} did not say what it waited for: "
                              f"{said[-2000:]}")
            else:
                ended += 1
        self.counts["ended with a cause" if ended else "trained to the end"] += 1

    def continued(self, folder: Path, expected: bytes) -> None:
        if self.undisturbed(folder, resume=True) != expected:
            raise Finding("the continued run ends with other parameters than one without a fault")
        self.counts["continued bit for bit"] += 1
