# SPDX-License-Identifier: Apache-2.0
"""Why the ranks of a run under mpirun ended: from what each of them said, and what mpirun said."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

# What no rank may say, whatever was done to another one.
CRASHES = re.compile(r"signal (?!9\b|15\b)\d+|Segmentation|terminate called|Assertion|this is a bug|"
                     r"AddressSanitizer|UndefinedBehavior|runtime error:|ThreadSanitizer")
# A rank's own error, and one that says which message it waited for.
ERRORS = re.compile(r"^spdkfac: (rank \d+: |mpi: ).+", re.MULTILINE)
WAITS = re.compile(r"^spdkfac: (rank \d+: )?mpi: .*rank", re.MULTILINE)
# Whom mpirun names when it ends the other ranks: by its signal, its MPI_Abort or its exit code.
KILLED = re.compile(r"process rank (\d+) .{0,300}?exited on\s+signal (?:9|15)\b", re.DOTALL)
ABORTED = re.compile(r"MPI_ABORT was invoked on rank (\d+)|Process name: \[\[\d+,\d+\],(\d+)\]")


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


@dataclass
class Said:
    """What a run has written; `err` and `out` are mpirun's copies of all ranks, and its own words."""

    err: str
    out: str
    ranks: dict[int, str]  # stderr of each rank

    def tail(self) -> str:
        """Enough for a finding."""
        return self.err[-2000:]

    def crash(self) -> str:
        found = CRASHES.search("\n".join([self.err, *self.ranks.values()]))
        return found[0] if found else ""

    def without_cause(self, fault: str, victim: int | None, world: int) -> list[int]:
        """Ranks, except the victim, about whose end nobody says anything."""
        causes = WAITS if fault in ("stop", "kill-unnoticed") else ERRORS
        speaking = {rank for rank, text in self.ranks.items() if causes.search(text)}
        named = {int(rank) for found in ABORTED.findall(self.err) for rank in found if rank}
        by_launcher = bool(named & speaking)
        if fault in ("kill", "terminate"):
            killed = set(map(int, KILLED.findall(self.err)))
            by_launcher = by_launcher or victim in killed | named
        if fault == "terminate":  # all ranks agree to stop, and the first one says so
            by_launcher = by_launcher or "stopped by SIGTERM" in self.out + self.err
        if by_launcher:
            return []
        return [rank for rank in range(world) if rank != victim and rank not in speaking]


def said_in(folder: Path) -> Said:
    files = (folder / "ranks").glob("**/rank.*/stderr")
    return Said(read(folder / "err"), read(folder / "out"),
                {int(file.parent.name[5:]): read(file) for file in files})
