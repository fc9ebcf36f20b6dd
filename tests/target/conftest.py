# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "benchmarks" / "target"), str(ROOT / "python" / "spdkfac")]

from tiny import TINY  # noqa: E402
import tasks  # noqa: E402


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a task that takes milliseconds."""
    monkeypatch.setitem(tasks.TASKS, TINY.name, TINY)
    return TINY.name
