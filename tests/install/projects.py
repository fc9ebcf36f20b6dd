# SPDX-License-Identifier: Apache-2.0
"""Projects outside of our build, for the tests of this folder."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CMAKE = os.environ["CMAKE"]
TORCH_ROOT = os.environ["SPDKFAC_TORCH_ROOT"]


def run(*command: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=800, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"{command} failed with {done.returncode}:\n{done.stdout}")
    return done


def configure(source: Path, build: Path, *options: str,
              check: bool = True) -> subprocess.CompletedProcess[str]:
    return run(CMAKE, "-S", source, "-B", build, "-G", "Ninja", *options, check=check)


def project(folder: Path, lines: str) -> Path:
    """A project of the given CMake lines and the main.cpp of the consumer."""
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.25)\nproject(other LANGUAGES CXX)\n{lines}\n")
    (folder / "main.cpp").write_bytes((ROOT / "tests/consumer/main.cpp").read_bytes())
    return folder


def torch_of_version(folder: Path, version: str) -> Path:
    """What FindLibTorch takes for a LibTorch of the given version."""
    header = folder / "include/torch/headeronly/version.h"
    header.parent.mkdir(parents=True)
    parts = zip(("MAJOR", "MINOR", "PATCH"), version.split("."))
    header.write_text("".join(f"#define TORCH_VERSION_{name} {part}\n" for name, part in parts))
    (folder / "lib").mkdir()
    for library in ("libtorch_cpu.so", "libc10.so"):
        (folder / "lib" / library).touch()
    return folder


def words(text: str) -> str:
    """CMake breaks the lines of its messages."""
    return re.sub(r"\s+", " ", text)
