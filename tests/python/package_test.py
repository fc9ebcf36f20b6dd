# SPDX-License-Identifier: Apache-2.0
"""The package as pip installs it: which compiled part it takes, and what works without torch."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
import torch

import spdkfac
from spdkfac import _torch

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("SPDKFAC_BUILD_DIR", ROOT / "build/dev"))
SUFFIX = EXTENSION_SUFFIXES[0]
WHEEL = [f"_core_2_11{SUFFIX}", f"_core_2_11_cuda13{SUFFIX}", f"_core_2_9{SUFFIX}", f"_core_2_15{SUFFIX}",
         "_core.py", f"_plan{SUFFIX}", "libspdkfac_kernels.so", "_core_2_15.cpython-27-other.so"]
HIDE_TORCH = "import sys; sys.modules['torch'] = None\n"
PLANNING = """
import spdkfac
one = spdkfac.simulate("resnet50", "paper-64x2080ti", world=64, interval="auto")
assert one.iteration > 0 and len(spdkfac.compare("resnet50", "paper-64x2080ti")) > 3
assert spdkfac.plan("resnet50", "paper-64x2080ti").digest
assert spdkfac.model("resnet50").layers and "spd-kfac" in spdkfac.algorithms()
"""
TRAINING = """
import torch, spdkfac
model = torch.nn.Linear(3, 2)
optimizer = spdkfac.SPDKFACOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
before = model.weight.detach().clone()
model(torch.ones(4, 3)).square().sum(1).mean().backward()
optimizer.step()
assert optimizer.counters["steps"] == 1 and not torch.equal(model.weight, before)
print(spdkfac.__file__)
"""


def run_script(text: str, python: Path | str = sys.executable, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python, "-c", text], env={**os.environ, **environment}, capture_output=True, text=True,
                          timeout=120, check=False)


def test_finds_the_modules_that_fit_this_python() -> None:
    cores = _torch.available(WHEEL)
    assert [(core.torch, core.cuda) for core in cores] == [((2, 9), 0), ((2, 11), 0), ((2, 11), 13), ((2, 15), 0)]
    assert _torch.supported(cores) == ["2.9", "2.11", "2.15"]


@pytest.mark.parametrize(("version", "cuda", "module"), [
    ("2.11.0+cu130", "13.0", "_core_2_11_cuda13"),
    ("2.11.1+cpu", None, "_core_2_11"),
    ("2.11.0+cu128", "12.8", "_core_2_11"),  # no kernels for it
    ("2.15.0", "13.2", "_core_2_15"),
])
def test_takes_the_module_of_the_minor_version_with_kernels_if_they_fit(
        version: str, cuda: str | None, module: str) -> None:
    assert _torch.choose(_torch.available(WHEEL), version, cuda).module == module


@pytest.mark.parametrize("version", ["2.12.1", "2.1.0", "2.16.0a0+git12", "3.11.0"])
def test_another_torch_is_an_error_that_lists_the_supported_ones(version: str) -> None:
    with pytest.raises(ImportError) as caught:
        _torch.choose(_torch.available(WHEEL), version, None)
    text = str(caught.value)
    assert f"for torch 2.9, 2.11, 2.15, this is torch {version}" in text
    assert 'pip install "torch==2.15.*"' in text and "cmake.define.SPDKFAC_ANY_TORCH=ON" in text


def test_kernels_alone_do_not_fit_a_torch_without_cuda() -> None:
    with pytest.raises(ImportError, match="kernels for CUDA 13, this torch is for the CPU alone"):
        _torch.choose(_torch.available([f"_core_2_11_cuda13{SUFFIX}"]), "2.11.0+cpu", None)


def test_another_torch_is_refused_when_it_is_used() -> None:
    done = run_script("import torch; torch.__version__ = '2.99.0'; import spdkfac; spdkfac.model('resnet50')\n"
                      "spdkfac.SPDKFACOptimizer")
    assert done.returncode == 1
    assert "has compiled parts for torch" in done.stderr and "this is torch 2.99.0" in done.stderr


def test_plans_and_forecasts_without_torch() -> None:
    done = run_script(HIDE_TORCH + PLANNING)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["SPDKFACOptimizer", "describe", "covered_layers", "CoveredLayers"])
def test_what_needs_torch_says_how_to_get_it(name: str) -> None:
    done = run_script(HIDE_TORCH + f"from spdkfac import {name}")
    assert done.returncode == 1
    version = ".".join(torch.__version__.split(".")[:2])
    assert re.search(rf'ImportError: .*not installed; pip install "torch=={version}\.\*"', done.stderr), done.stderr


def test_importing_the_package_does_not_import_torch() -> None:
    done = run_script("import sys, spdkfac; assert 'torch' not in sys.modules; spdkfac.describe; "
                      "assert 'torch' in sys.modules")
    assert done.returncode == 0, done.stderr


def test_has_every_public_name() -> None:
    assert set(spdkfac.__all__) <= set(dir(spdkfac))
    for name in spdkfac.__all__:
        assert getattr(spdkfac, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = spdkfac.nothing  # type: ignore[attr-defined]


def test_documents_and_metadata_name_the_supported_versions() -> None:
    cmake = (ROOT / "cmake/Torch.cmake").read_text(encoding="utf-8")
    match = re.search(r"set\(SPDKFAC_TESTED_TORCH ([0-9. ]+)\)", cmake)
    assert match
    versions = [tuple(map(int, version.split("."))) for version in match[1].split()]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'"torch>={versions[0][0]}.{versions[0][1]},<{versions[-1][0]}.{versions[-1][1] + 1}"' in project
    listed = ", ".join(match[1].split()[:-1]) + f" and {match[1].split()[-1]}"
    assert listed in (ROOT / "docs/python.md").read_text(encoding="utf-8")


def wheel_of_build(folder: Path) -> Path:
    """A wheel of what the build folder holds, with the entry points of pyproject.toml."""
    tree = folder / "tree"
    subprocess.run([os.environ.get("CMAKE", "cmake"), "--install", BUILD, "--component", "python", "--prefix", tree],
                   check=True, capture_output=True)
    info = tree / f"spdkfac-{spdkfac.__version__}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: spdkfac\nVersion: {spdkfac.__version__}\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n")
    scripts = re.search(r"\[project\.scripts\]\n((?:.+\n)+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert scripts
    (info / "entry_points.txt").write_text("[console_scripts]\n" + scripts[1].replace('"', ""))
    wheel = folder / f"spdkfac-{spdkfac.__version__}-py3-none-any.whl"
    record = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(path for path in tree.rglob("*") if path.is_file()):
            name = path.relative_to(tree).as_posix()
            digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{path.stat().st_size}\n")
            archive.write(path, name)
        archive.writestr(f"{info.name}/RECORD", "".join([*record, f"{info.name}/RECORD,,\n"]))
    shutil.rmtree(tree)
    return wheel


def test_a_clean_environment_gets_the_command_and_plans_and_trains_with_torch(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (BUILD / "bin/spdkfac").exists():
        pytest.skip("the program is not built")
    environment = tmp_path / "env with space"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin/python"
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index",
                    wheel_of_build(tmp_path)], check=True)
    for name in ("PYTHONPATH", "SPDKFAC_DATA", "SPDKFAC_PYTHON"):
        monkeypatch.delenv(name, raising=False)

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([environment / "bin/spdkfac", *arguments], cwd=tmp_path, capture_output=True, text=True,
                              timeout=60, check=False)

    asked = ("simulate", "--model", "resnet50", "--cluster", "paper-64x2080ti", "--json")
    built = subprocess.run([BUILD / "bin/spdkfac", *asked], capture_output=True, text=True, check=True)
    assert command(*asked).stdout == built.stdout
    for verb in ("plan", "advise"):
        assert command(verb, "--model", "resnet50", "--cluster", "paper-64x2080ti").returncode == 0
    for verb in ("models", "clusters", "algorithms"):
        assert "\n" in command(verb).stdout
    refused = command("train")
    assert refused.returncode == 2 and "train: needs LibTorch" in refused.stderr and "make program" in refused.stderr
    drawn = command("report", "none.json", "--out", "page.html")
    assert drawn.returncode == 2 and ("plotly" in drawn.stderr or "none.json" in drawn.stderr), drawn.stderr

    done = run_script(PLANNING, python)
    assert done.returncode == 0, done.stderr
    packages = Path(torch.__file__).parents[1]
    done = run_script("import spdkfac; spdkfac.SPDKFACOptimizer", python)
    assert 'pip install "torch==' in done.stderr
    done = run_script(f"import sys; sys.path.append({str(packages)!r})\n" + TRAINING, python)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith(str(environment))
