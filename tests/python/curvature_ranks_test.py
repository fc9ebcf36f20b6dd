# SPDX-License-Identifier: Apache-2.0
"""Processes that share a data set have the curvature of all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from curvature_worker import CASES
from nets import batch, small_net
from processes_test import torchrun
from referee_cases import relative
from torch import nn

import spdkfac

DATA = [batch(0, 0, examples=4), batch(1, 0, examples=5), batch(2, 0, examples=7)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("ranks")
    torchrun(2, made / "cache", Path(__file__).with_name("curvature_worker.py"), made)
    return made


@pytest.mark.parametrize("case", CASES)
def test_two_processes_have_what_one_has(folder: Path, case: str) -> None:
    alone = spdkfac.curvature(small_net(), DATA, nn.CrossEntropyLoss(), **CASES[case])
    both = [spdkfac.Curvature.load(folder / f"{case}.{rank}") for rank in range(2)]
    assert both[0].examples == alone.examples == 16 and abs(both[0].loss - alone.loss) < 1e-12
    for name, layer in alone.items():
        for own in both:
            assert (own[name].examples, own[name].rows) == (layer.examples, layer.rows)
            assert relative(own[name].A, layer.A) < 1e-12 and relative(own[name].G, layer.G) < 1e-12
            if layer.moments is not None:
                assert relative(own[name].eigenvalues, layer.eigenvalues) < 1e-9
        assert torch.equal(both[0][name].A, both[1][name].A) and torch.equal(both[0][name].G, both[1][name].G)


def test_a_process_may_have_no_data(folder: Path) -> None:
    alone = spdkfac.curvature(small_net(), DATA[:1], nn.CrossEntropyLoss())
    for rank in range(2):
        own = spdkfac.Curvature.load(folder / f"empty.{rank}")
        assert all(relative(own[name].G, layer.G) < 1e-12 for name, layer in alone.items())


def test_processes_draw_labels_of_their_own(folder: Path) -> None:
    """The same batch on both: one process that drew for itself alone would have this G."""
    both = spdkfac.Curvature.load(folder / "drawn.0")
    alone = spdkfac.curvature(small_net(), [batch(0)], nn.CrossEntropyLoss(), fisher="mc", seed=4)
    assert relative(both["out"].A, alone["out"].A) < 1e-12
    assert relative(both["out"].G, alone["out"].G) > 0.01


def test_numbers_that_are_not_finite_are_named_everywhere(folder: Path) -> None:
    for rank in range(2):
        assert "factor A of layer first is not finite" in (folder / f"error.{rank}").read_text(encoding="utf-8")
