# SPDX-License-Identifier: Apache-2.0
"""The examples run, and are as short as they claim."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from devices import DEVICE

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "python"
on_cpu = pytest.mark.skipif(DEVICE != "cpu", reason="this example computes on the CPU alone")


def run(*command: str | Path, folder: Path) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0",
                   "GLOO_SOCKET_IFNAME": "lo"}
    if DEVICE == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""  # examples take a GPU when there is one
    done = subprocess.run([sys.executable, *map(str, command)], cwd=folder, env=environment,
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@on_cpu
def test_fashion_mnist_has_forty_lines_and_learns(tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    path = EXAMPLES / "fashion_mnist.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 40
    if not Path("/usr/share/datasets/fashion-mnist").exists():
        pytest.skip("the data set is not installed (Debian: dataset-fashion-mnist)")
    output = run(path, "--steps", "40", folder=tmp_path)
    accuracy = re.search(r"accuracy ([0-9.]+) %", output)
    assert accuracy and float(accuracy[1]) > 70, output


def test_imagenet_trains_in_two_processes_and_resumes(tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    run(EXAMPLES / "make_miniature.py", "data", folder=tmp_path)
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
               EXAMPLES / "imagenet.py", "data", "--model", "squeezenet1_1", "--size", "64",
               "--batch", "4", "--workers", "0", "--amp", "--checkpoint", "checkpoint.pt",
               "--inverse-interval", "8", "--backend", "gloo"]
    first = run(*command, "--epochs", "1", "--kfac", folder=tmp_path)
    assert "epoch 1" in first
    second = run(*command, "--epochs", "2", "--kfac", folder=tmp_path)
    assert "epoch 1" not in second and "epoch 2" in second


def test_imagenet_trains_with_sgd(tmp_path: Path) -> None:
    pytest.importorskip("torchvision")
    run(EXAMPLES / "make_miniature.py", "data", folder=tmp_path)
    output = run(EXAMPLES / "imagenet.py", "data", "--model", "resnet18", "--size", "32", "--batch",
                 "8", "--workers", "0", "--epochs", "1", "--sgd", folder=tmp_path)
    assert "epoch 1" in output


@on_cpu
@pytest.mark.parametrize(("name", "pattern", "least"), [
    ("influence", r"of 50 wrong labels, (\d+) are", 20),  # 2 or 3 by chance
    ("laplace", r"all layers +accuracy ([0-9.]+)", 60),
    ("pruning", r"90 % of weights gone: by size [0-9.]+ %, by curvature ([0-9.]+)", 40)])
def test_curvature_has_uses_in_forty_lines(tmp_path: Path, name: str, pattern: str, least: float) -> None:
    path = EXAMPLES / f"{name}.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 40
    found = re.search(pattern, run(path, folder=tmp_path))
    assert found and float(found[1]) >= least


@on_cpu
def test_planning_walks_through(tmp_path: Path) -> None:
    output = run(EXAMPLES / "planning.py", folder=tmp_path)
    assert "auto" in output and (tmp_path / "planning.html").exists()
