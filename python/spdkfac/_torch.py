# SPDX-License-Identifier: Apache-2.0
"""Which compiled part of the package fits the torch of this environment.

LibTorch's interface for C++ changes with its minor version, so the package holds a module for each that it supports:
`_core_2_15`, and `_core_2_15_cuda13` with the CUDA kernels. Importing `spdkfac._core` gives the one that fits.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from ._build import VERSION

_NAME = re.compile(r"_core_(\d+)_(\d+)(?:_cuda(\d+))?")
_FROM_SOURCE = "in a checkout of spdkfac: pip install --force-reinstall --no-deps"


class Core(NamedTuple):
    """A compiled part: the minor version of torch, and the CUDA version of its kernels or 0."""

    torch: tuple[int, int]
    cuda: int
    module: str


def available(files: Iterable[str]) -> list[Core]:
    """The compiled parts for this Python among files of the package, oldest torch first."""
    cores = []
    for file in files:
        stem, dot, suffix = file.partition(".")
        if (match := _NAME.fullmatch(stem)) and dot + suffix in EXTENSION_SUFFIXES:
            major, minor, cuda = match.groups()
            cores.append(Core((int(major), int(minor)), int(cuda or 0), stem))
    return sorted(cores)


def supported(cores: Iterable[Core]) -> list[str]:
    return [f"{major}.{minor}" for major, minor in sorted({core.torch for core in cores})]


def choose(cores: list[Core], version: str, cuda: str | None) -> Core:
    """The part for a torch of this version, built for this CUDA (None: for the CPU alone)."""
    major, minor = version.split(".")[:2]
    fitting = [core for core in cores if core.torch == (int(major), int(minor))]
    if not fitting:
        raise ImportError(
            f"spdkfac {VERSION} has compiled parts for torch {_listed(supported(cores))}, this is torch {version}; "
            f"install one of these, such as pip install \"torch=={supported(cores)[-1]}.*\", or build for torch "
            f"{major}.{minor}, {_FROM_SOURCE} -C cmake.define.SPDKFAC_ANY_TORCH=ON .")
    wanted = int(cuda.split(".")[0]) if cuda else 0
    for acceptable in (wanted, 0):
        for core in fitting:
            if core.cuda == acceptable:
                return core
    raise ImportError(f"spdkfac {VERSION} was built with kernels for CUDA {fitting[-1].cuda}, this torch is for "
                      f"{f'CUDA {cuda}' if cuda else 'the CPU alone'}; build again, {_FROM_SOURCE} .")


def load() -> ModuleType:
    """Imports the compiled part, or says why there is none and what to do."""
    cores = available(path.name for path in Path(__file__).parent.iterdir())
    if not cores:
        raise ImportError(f"spdkfac {VERSION} was built without torch, so it plans and forecasts but does not train; "
                          f"install torch and build again, {_FROM_SOURCE} .")
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"spdkfac: training needs torch, which is not installed; pip install "
                          f"\"torch=={supported(cores)[-1]}.*\" (supported: {_listed(supported(cores))})") from error
    core = choose(cores, torch.__version__, torch.version.cuda)
    try:
        return importlib.import_module(f".{core.module}", __package__)
    except ImportError as error:
        raise ImportError(f"spdkfac: the compiled part {core.module} cannot be loaded ({error}); build it in this "
                          f"environment, {_FROM_SOURCE} .") from error


def _listed(names: list[str]) -> str:
    return ", ".join(names)
