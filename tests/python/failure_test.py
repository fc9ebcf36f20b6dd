# SPDX-License-Identifier: Apache-2.0
"""A process that is killed ends the others with an error."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from failure_worker import COMM_ERROR

WORKER = Path(__file__).with_name("failure_worker.py")
SECONDS = 150


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def wait_for(files: list[Path], processes: list[subprocess.Popen[str]]) -> None:
    end = time.monotonic() + SECONDS
    while not all(file.exists() for file in files):
        assert time.monotonic() < end, "the processes do not train"
        for process in processes:
            assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)


def test_a_killed_process_ends_the_others_with_an_error(tmp_path: Path) -> None:
    port = free_port()
    processes = []
    for rank in range(3):
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "3", "OMP_NUM_THREADS": "1",
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                       "GLOO_SOCKET_IFNAME": "lo", "GOMP_SPINCOUNT": "0"}
        processes.append(subprocess.Popen([sys.executable, WORKER, tmp_path / "ready"],
                                          env=environment, stdout=subprocess.PIPE, text=True))
    try:
        wait_for([tmp_path / f"ready.{rank}" for rank in range(3)], processes)
        processes[2].send_signal(signal.SIGKILL)
        for process in processes[:2]:
            output, _ = process.communicate(timeout=SECONDS)
            assert process.returncode == COMM_ERROR
            assert "c10d: " in output and "failed (" in output, output
    finally:
        for process in processes:
            process.kill()
            process.wait()
