# SPDX-License-Identifier: Apache-2.0
"""What the tests of `spdkfac train` share: tiny runs, quick enough to make many of them."""

from __future__ import annotations

import gzip
import json
import os
import signal
import struct
import subprocess
import tempfile
import time
import unittest
import zlib
from pathlib import Path
from typing import Any, Callable

PROGRAM = os.environ["SPDKFAC"]
# 10 steps in an epoch, 16 images to test.
TINY = ["train", "--data", "synthetic", "--synthetic-examples", "80", "--batch", "8", "--width",
        "0.125", "--threads", "1", "--seed", "3"]
TRAILER = len(b"\nspdkfac.checkpoint/1 size=00000000000000000000 crc32=00000000\n")
# Of metrics lines, what differs from run to run.
TIMES = {"seconds", "total_seconds", "examples_per_second"}


def write_idx(folder: Path, train: int = 40, test: int = 10) -> None:
    """A tiny Fashion-MNIST, with the training split gzipped."""
    for prefix, count, pack, suffix in (("train", train, gzip.compress, ".gz"),
                                        ("t10k", test, bytes, "")):
        pixels = bytes((31 * i + 7 * p) % 256 for i in range(count) for p in range(28 * 28))
        images = struct.pack(">IIII", 0x803, count, 28, 28) + pixels
        labels = struct.pack(">II", 0x801, count) + bytes(i % 10 for i in range(count))
        (folder / f"{prefix}-images-idx3-ubyte{suffix}").write_bytes(pack(images))
        (folder / f"{prefix}-labels-idx1-ubyte{suffix}").write_bytes(pack(labels))


def checkpoint_is_whole(path: Path) -> bool:
    content = path.read_bytes()
    body, trailer = content[:-TRAILER], content[-TRAILER:]
    return trailer == (f"\nspdkfac.checkpoint/1 size={len(body):020} "
                       f"crc32={zlib.crc32(body):08x}\n").encode()


class TrainTestCase(unittest.TestCase):
    maxDiff = None

    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def run_program(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([PROGRAM, *arguments], cwd=self.folder, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=300, check=False)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen([PROGRAM, *arguments], cwd=self.folder, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def train(self, *arguments: str) -> dict[str, Any]:
        """The summary of a tiny run that must succeed; its stderr is in field `stderr`."""
        done = self.run_program(*TINY, "--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout) | {"stderr": done.stderr}

    def metrics(self, name: str) -> list[dict[str, Any]]:
        lines = (self.folder / name).read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def metrics_without_times(self, name: str) -> list[dict[str, Any]]:
        return [{key: value for key, value in line.items() if key not in TIMES}
                for line in self.metrics(name)]

    def checkpoints(self, folder: str = "run") -> list[str]:
        return sorted(path.name for path in (self.folder / folder).iterdir())

    def wait_for(self, what: Callable[[], bool], process: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + 120
        while not what():
            self.assertIsNone(process.poll(), "the program ended early")
            self.assertLess(time.monotonic(), deadline, "nothing happened for two minutes")
            time.sleep(0.01)

    def end(self, process: subprocess.Popen[str], number: signal.Signals) -> tuple[str, str]:
        process.send_signal(number)
        return process.communicate(timeout=120)
