# SPDX-License-Identifier: Apache-2.0
"""Solvers that keep eigenvectors, from Python: over torch's optimizers, in states, and in errors."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from nets import batch, flat, joined, loss_of, small_net
from torch import nn

import spdkfac

STEPS = 6
SOLVERS = ("eigen", "ekfac", "adam")


def kfac(optimizer: torch.optim.Optimizer, model: nn.Module, **options: Any) -> spdkfac.SPDKFACOptimizer:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="spdkfac: K-FAC covers")
        return spdkfac.SPDKFACOptimizer(optimizer, model, **options)


def run(model: nn.Module, optimizer: torch.optim.Optimizer, first: int = 0, last: int = STEPS) -> list[float]:
    losses = []
    for step in range(first, last):
        optimizer.zero_grad()
        loss = loss_of(model, joined([batch(step, 0)]))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("norms", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_loss_of_one_batch_falls(solver: str, norms: bool, device: torch.device) -> None:
    model = small_net()
    optimizer = kfac(torch.optim.AdamW(model.parameters(), lr=0.01), model, solver=solver, norms=norms)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = loss_of(model, joined([batch(0, 0)]))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    assert optimizer.counters["layers_scaled"] == 0


@pytest.mark.usefixtures("double_precision")
def test_adam_over_diagonal_factors_is_adamw(device: torch.device) -> None:
    """With factors that are diagonals the eigenvectors are the axes, so nothing turns."""
    model, plain = small_net(), small_net()
    options = {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.95)}
    run(model, kfac(torch.optim.AdamW(model.parameters(), **options), model, solver="adam", max_dimension=1))
    run(plain, torch.optim.AdamW(plain.parameters(), **options))
    assert (flat(model) - flat(plain)).abs().max() < 1e-10


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_state_goes_on_bit_for_bit(solver: str, device: torch.device) -> None:
    def made() -> tuple[nn.Module, spdkfac.SPDKFACOptimizer]:
        model = small_net()
        return model, kfac(torch.optim.AdamW(model.parameters(), lr=0.01), model, solver=solver,
                           factor_interval=1, inverse_interval=3)
    model, optimizer = made()
    run(model, optimizer, 0, 4)
    state, weights = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model.state_dict())
    run(model, optimizer, 4, 8)
    other, resumed = made()
    run(other, resumed, 20, 22)  # another history
    other.load_state_dict(weights)
    resumed.load_state_dict(state)
    run(other, resumed, 4, 8)
    assert torch.equal(flat(other), flat(model))


def test_states_of_other_solvers_are_refused(device: torch.device) -> None:
    model = small_net()
    optimizer = kfac(torch.optim.AdamW(model.parameters(), lr=0.01), model)
    run(model, optimizer, 0, 2)
    other = small_net()
    with pytest.raises(spdkfac.ConfigError, match="made with other options"):
        kfac(torch.optim.AdamW(other.parameters(), lr=0.01), other, solver="eigen").load_state_dict(
            optimizer.state_dict())


@pytest.mark.parametrize(("options", "message"), [
    ({"solver": "eigenvectors"}, "solver=eigenvectors"),
    ({"solver": 3}, "solver=3 is of type int; pass inverse, eigen, ekfac or adam"),
    ({"solver": "adam", "graft": "adam"}, "graft=adam; pass none: solver=adam sets the length"),
    ({"solver": "adam", "kl_clip": 0.1}, "kl_clip=0.1; pass 0: solver=adam sets the length"),
    ({"solver": "adam", "lm_damping": True}, "lm_damping=true; pass false")])
def test_what_cannot_be_is_an_error(options: dict[str, Any], message: str) -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(spdkfac.ConfigError, match=message):
        kfac(torch.optim.AdamW(model.parameters()), model, **options)


def test_adam_needs_an_optimizer_like_adam() -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(spdkfac.ConfigError, match="solver=adam over SGD, which would add up its steps; wrap"):
        kfac(torch.optim.SGD(model.parameters(), lr=0.1), model, solver="adam")
