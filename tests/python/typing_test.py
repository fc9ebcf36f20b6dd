# SPDX-License-Identifier: Apache-2.0
"""The package is typed, and its stubs are those of its modules."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import spdkfac
from spdkfac import _core, _plan

ROOT = Path(__file__).resolve().parents[2]


# Both folders have a module `command`, so the second is checked apart.
@pytest.mark.parametrize("folders", [(), ("benchmarks/steps",)])
def test_types_hold(folders: tuple[str, ...]) -> None:
    pytest.importorskip("mypy")
    done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml",
                           "--cache-dir", "/dev/null", *folders], cwd=ROOT, capture_output=True, text=True,
                          check=False, env={**os.environ, "MYPYPATH": str(ROOT / "python")} if folders else None)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("module", "file"), [(_core, "_core"), (_plan, "_plan")])
def test_stubs_name_what_the_module_has(module: ModuleType, file: str) -> None:
    tree = ast.parse((ROOT / f"python/spdkfac/{file}.pyi").read_text(encoding="utf-8"))
    stubs: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            stubs[node.name] = {
                each.name if isinstance(each, ast.FunctionDef) else each.target.id  # type: ignore
                for each in node.body if isinstance(each, (ast.FunctionDef, ast.AnnAssign))}
        elif isinstance(node, ast.FunctionDef):
            stubs[node.name] = set()
    assert set(stubs) == {name for name in dir(module) if not name.startswith("_")}
    for name, members in stubs.items():
        value = getattr(module, name)
        if isinstance(value, type):
            there = {each for each in vars(value) if not each.startswith("_")}
            assert members - {"__init__"} == there, name


def test_marks_itself_as_typed() -> None:
    assert (Path(spdkfac.__file__).parent / "py.typed").exists()
