# SPDX-License-Identifier: Apache-2.0
"""Processes that stress cases start, disturb and end; never any other."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path


class Finding(Exception):
    """Something that must not happen."""


def fields_of(pid: int) -> list[str]:
    """State and parent of a process, as in /proc/PID/stat; empty if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def is_left(pid: int) -> bool:
    fields = fields_of(pid)
    return bool(fields) and fields[0] not in "ZX"


def children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        fields = fields_of(int(path.name))
        if fields and int(fields[1]) == pid and fields[0] not in "ZX":
            found.append(int(path.name))
    return found


def variable_of(pid: int, name: str) -> str:
    """From a process's environment; empty if it has none yet, or no such variable."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    found = [word for word in words if word.startswith(name.encode() + b"=")]
    return found[0].decode().partition("=")[2] if found else ""


def send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def wait_until(what: Callable[[], bool], seconds: float, pause: float = 0.002) -> bool:
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


def stack_of(pid: int) -> str:
    """Where a process that does not end is, if there is a debugger."""
    debugger = shutil.which("gdb")
    if debugger is None:
        return "(install gdb to see where it waits)"
    command = [debugger, "-p", str(pid), "-batch", "-nx", "-ex", "set debuginfod enabled off", "-ex",
               "thread apply all bt 14"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return "(gdb did not answer)"
    lines = [line for line in done.stdout.splitlines() if line.startswith(("#", "Thread"))]
    return "\n".join(line[:160] for line in lines[:80])
