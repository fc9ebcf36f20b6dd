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
CHECKSUM = b'{"__metadata__":{"crc32":"'  # how the header of a checkpoint begins
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


def checkpoint_header(content: bytes) -> dict[str, Any]:
    """The JSON header; the layout is that of safetensors."""
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8:8 + length])


def with_checksum(content: bytes) -> bytes:
    """The same file with the right checksum: that of the file with zeros in its place."""
    begin = 8 + len(CHECKSUM)
    zeroed = content[:begin] + b"0" * 8 + content[begin + 8:]
    return zeroed[:begin] + f"{zlib.crc32(zeroed):08x}".encode() + zeroed[begin + 8:]


def checkpoint_is_whole(path: Path) -> bool:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    end = max((value["data_offsets"][1] for name, value in checkpoint_header(content).items()
               if name != "__metadata__"), default=0)
    return (content[8:].startswith(CHECKSUM) and content == with_checksum(content)
            and len(content) == 8 + length + end)


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
