#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank that fails in every way that a test can cause: the job ends soon, says why, leaves nothing.

Runs comm_peer (COMM_PEER) under mpirun (MPIRUN, with MPIRUN_FLAGS). Skipped (77) without mpirun.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

PEER = os.environ["COMM_PEER"]
MPIRUN = [os.environ.get("MPIRUN", ""), *shlex.split(os.environ.get("MPIRUN_FLAGS", ""))]
# Programs that are killed show no leaks; without that check the sanitizer starts faster.
PEER_ENVIRONMENT = {
    **os.environ,
    "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0:fast_unwind_on_malloc=1",
}
RANKS = 3
TIMEOUT = 3.0  # of an operation
# For an end that takes the timeout of an operation, twice if a rank waits for others at its exit;
# the rest is for the start of three programs on a busy machine, with sanitizers.
BOUND = 2 * TIMEOUT + 90


def state(pid: int) -> str:
    """Of a process, as in ps; empty if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[0]


def is_left(pid: int) -> bool:
    return state(pid) not in ("", "Z", "X")


class Job:
    """A run of comm_peer; ends with the `with` block, whatever happens in it."""

    def __init__(self, *arguments: str, flags: tuple[str, ...] = ()) -> None:
        command = [*MPIRUN, *flags, "-np", str(RANKS), PEER, "--timeout", str(TIMEOUT), *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, env=PEER_ENVIRONMENT)
        self.output = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line

    def pids(self) -> dict[int, int]:
        found = re.findall(r"rank (\d+) pid (\d+)", self.output)
        return {int(rank): int(pid) for rank, pid in found}

    def wait_for_ranks(self) -> dict[int, int]:
        end = time.monotonic() + BOUND
        while len(self.pids()) < RANKS and time.monotonic() < end:
            time.sleep(0.01)
        return self.pids()

    def wait(self) -> int:
        code = self.process.wait(timeout=BOUND)
        self._reader.join(timeout=10)
        return code

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.pids().values():
            if is_left(pid):
                os.kill(pid, signal.SIGKILL)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(timeout=10)
        assert self.process.stdout is not None
        self.process.stdout.close()


class FailureTest(unittest.TestCase):
    def run_job(self, *arguments: str, flags: tuple[str, ...] = ()) -> tuple[int, str]:
        with Job(*arguments, flags=flags) as job:
            try:
                code = job.wait()
            except subprocess.TimeoutExpired:
                self.fail(f"{arguments} has not ended after {BOUND} s:\n{job.output}")
            self.assert_nothing_left(job)
            return code, job.output

    def assert_nothing_left(self, job: Job) -> None:
        end = time.monotonic() + 10
        while any(map(is_left, job.pids().values())) and time.monotonic() < end:
            time.sleep(0.05)
        left = {rank: pid for rank, pid in job.pids().items() if is_left(pid)}
        self.assertEqual(left, {}, job.output)

    def assert_fails(self, fault: str, *parts: str, flags: tuple[str, ...] = ()) -> None:
        code, output = self.run_job("--fault", fault, flags=flags)
        if not flags:
            self.assertNotEqual(code, 0, output)
        for part in parts:
            self.assertRegex(output, part)

    # The message of a rank that waits for another.
    WAITS = (r"comm_peer: mpi: all_reduce 'after the fault' of 1000 elements on rank [02] of 3 has "
             r"not ended after 3\.\d s; another rank died, stopped, or called a different collective: "
             r"check the output of the other ranks")

    def test_without_a_fault_the_job_ends_well_and_quietly(self) -> None:
        code, output = self.run_job("--fault", "none")
        self.assertEqual(code, 0, output)
        rest = re.sub(r"rank \d pid \d+\n|good end\n", "", output)
        self.assertEqual(rest, "")
        self.assertEqual(output.count("good end"), RANKS)

    def test_a_killed_rank_ends_the_job(self) -> None:
        self.assert_fails("kill", "signal 9")

    def test_a_killed_rank_is_noticed_without_the_launcher(self) -> None:
        # mpirun goes on, as it does when a whole machine is lost; its exit code says nothing then.
        self.assert_fails("kill", self.WAITS, flags=("--enable-recovery",))

    def test_a_stopped_rank_is_an_error_on_the_others(self) -> None:
        self.assert_fails("stop", self.WAITS)

    def test_a_rank_that_stops_before_it_starts_mpi_is_an_error_on_the_others(self) -> None:
        # MPI_Init itself waits for ever; programs are given 20 s to start.
        self.assert_fails("stop-at-start",
                          r"spdkfac: mpi: MPI_Init on rank [02] has not ended after 20 s; another "
                          r"rank died, stopped, or does not use MPI")

    def test_a_silent_rank_is_an_error_on_the_others(self) -> None:
        self.assert_fails("silent", self.WAITS)

    def test_a_rank_that_exits_early_is_an_error_on_the_others(self) -> None:
        # At its end it sees that rank 0 is still working, unless rank 0 is late.
        early = (r"spdkfac: mpi: rank 1 of 3 called barrier 'end of the process', but rank 0 called "
                 r"all_reduce 'after the fault' of 1000 float elements; give all ranks the same "
                 rf"options|{self.WAITS}")
        self.assert_fails("exit", early)
        self.assert_fails("return", early)

    def test_an_exit_with_work_under_way_ends_the_job(self) -> None:
        self.assert_fails("exit-busy", "exiting improperly|has not ended after")

    def test_a_rank_that_throws_says_so_and_ends_the_job(self) -> None:
        for fault in ("throw", "throw-busy"):
            self.assert_fails(fault, "comm_peer: peer: this rank alone has no data; give it some")

    def test_different_operations_are_told_apart(self) -> None:
        self.assert_fails(
            "other-size",
            r"mpi: rank 1 of 3 called all_reduce 'another size' of 10 float elements, but rank 0 "
            r"called all_reduce 'after the fault' of 1000 float elements; give all ranks the same")
        self.assert_fails(
            "other-operation",
            r"mpi: rank 1 of 3 called broadcast 'a broadcast' of 1000 float elements with root 1, but "
            r"rank 0 called all_reduce 'after the fault' of 1000 float elements; give all ranks the "
            r"same")

    def test_a_job_that_is_stopped_as_a_whole_goes_on_when_it_is_continued(self) -> None:
        with Job("--fault", "none", "--seconds", "2") as job:
            pids = job.wait_for_ranks().values()
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(TIMEOUT + 2)
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            self.assertEqual(job.wait(), 0, job.output)
            self.assertEqual(job.output.count("good end"), RANKS, job.output)
            self.assert_nothing_left(job)


if __name__ == "__main__":
    if not MPIRUN[0]:
        print("skipped: this build has no MPI, or there is no mpirun")
        sys.exit(77)
    unittest.main()
