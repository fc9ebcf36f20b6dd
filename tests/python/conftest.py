# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

from devices import DEVICE, use_device

NO_GPU = DEVICE == "cuda" and not torch.cuda.is_available()
SKIPPED = 77  # what ctest takes for skipped
if not NO_GPU:
    use_device()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if NO_GPU:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="no GPU here"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if NO_GPU:
        session.exitstatus = SKIPPED


@pytest.fixture
def device() -> torch.device:
    return torch.device(DEVICE)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(1)


@pytest.fixture
def double_precision() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
