# SPDX-License-Identifier: Apache-2.0
"""The package is typed, its stubs are those of the module, and another torch is refused."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import spdkfac
from spdkfac import _core

ROOT = Path(__file__).resolve().parents[2]


def test_types_hold() -> None:
    pytest.importorskip("mypy")
    done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml",
                           "--cache-dir", "/dev/null"], cwd=ROOT, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_stubs_name_what_the_module_has() -> None:
    tree = ast.parse((ROOT / "python/spdkfac/_core.pyi").read_text(encoding="utf-8"))
    stubs: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            stubs[node.name] = {
                each.name if isinstance(each, ast.FunctionDef) else each.target.id  # type: ignore
                for each in node.body if isinstance(each, (ast.FunctionDef, ast.AnnAssign))}
        elif isinstance(node, ast.FunctionDef):
            stubs[node.name] = set()
    assert set(stubs) == {name for name in dir(_core) if not name.startswith("_")}
    for name, members in stubs.items():
        value = getattr(_core, name)
        if isinstance(value, type) and not issubclass(value, Exception):
            there = {each for each in vars(value) if not each.startswith("_")}
            assert members - {"__init__"} == there, name


def test_marks_itself_as_typed() -> None:
    assert (Path(spdkfac.__file__).parent / "py.typed").exists()


def test_another_torch_is_refused_by_name() -> None:
    script = "import torch; torch.__version__ = '2.99.0'; import spdkfac"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "was built for torch" in done.stderr and "this is torch 2.99.0" in done.stderr
