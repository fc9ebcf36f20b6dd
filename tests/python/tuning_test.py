# SPDX-License-Identifier: Apache-2.0
"""Options that change while training: adaptive refreshes, damping that follows the loss, setters."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from nets import batch, flat, loss_of, small_net
from torch import nn

import spdkfac


def kfac(model: nn.Module, **options: Any) -> spdkfac.SPDKFACOptimizer:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="spdkfac: K-FAC covers")
        return spdkfac.SPDKFACOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), model, **options)


def closure_of(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> Callable[[], torch.Tensor]:
    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, batch(step, 0))
        loss.backward()
        return loss
    return closure


def run(model: nn.Module, optimizer: torch.optim.Optimizer, first: int, last: int) -> None:
    for step in range(first, last):
        optimizer.step(closure_of(model, optimizer, step))


def assert_goes_on(options: dict[str, Any], changes: Callable[[spdkfac.SPDKFACOptimizer], None] | None = None,
                   stop: int = 7, last: int = 14) -> spdkfac.SPDKFACOptimizer:
    """Saves after `stop` steps; a new optimizer continues bit for bit."""
    model = small_net()
    optimizer = kfac(model, **options)
    run(model, optimizer, 0, stop - 2)
    if changes is not None:
        changes(optimizer)
    run(model, optimizer, stop - 2, stop)
    state, parameters = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model.state_dict())
    run(model, optimizer, stop, last)
    again = small_net()
    resumed = kfac(again, **options)
    again.load_state_dict(parameters)
    resumed.load_state_dict(state)
    run(again, resumed, stop, last)
    assert torch.equal(flat(again), flat(model))
    assert resumed.damping == optimizer.damping
    return optimizer


def test_adaptive_intervals_skip_layers_and_go_on_bit_for_bit() -> None:
    optimizer = assert_goes_on({"interval": "adaptive", "refresh_change": 0.05})
    assert optimizer.counters["inverses_skipped"] > 0
    assert optimizer.factor_interval == 10 and optimizer.inverse_interval == 100


def test_spread_refreshes_go_on_bit_for_bit() -> None:
    options = {"factor_interval": 1, "inverse_interval": 3}
    optimizer = assert_goes_on({**options, "spread_refreshes": True})
    assert optimizer.counters["inverses_skipped"] == 0
    with pytest.raises(spdkfac.ConfigError, match="spread_refreshes=true.*interval=auto or fixed"):
        kfac(small_net(), interval="adaptive", spread_refreshes=True)
    state = optimizer.state_dict()
    with pytest.raises(spdkfac.ConfigError, match="other options"):
        kfac(small_net(), **options).load_state_dict(state)


def test_spread_refreshes_of_one_step_change_nothing() -> None:
    model, other = small_net(), small_net()
    run(model, kfac(model, factor_interval=2), 0, 6)
    run(other, kfac(other, factor_interval=2, spread_refreshes=True), 0, 6)
    assert torch.equal(flat(model), flat(other))


def test_options_change_while_training_and_are_saved() -> None:
    def change(optimizer: spdkfac.SPDKFACOptimizer) -> None:
        optimizer.damping = 1 / 3
        optimizer.kl_clip = 0.01
        optimizer.inverse_interval = 4
        optimizer.factor_interval = 2
        assert (optimizer.damping, optimizer.kl_clip) == (1 / 3, 0.01)
        assert (optimizer.factor_interval, optimizer.inverse_interval) == (2, 4)

    optimizer = assert_goes_on({"preset": "paper"}, change)
    assert optimizer.inverse_interval == 4


def test_a_changed_damping_is_that_of_an_optimizer_made_with_it() -> None:
    model, other = small_net(), small_net()
    changed, made = kfac(model, preset="paper", damping=0.3), kfac(other, preset="paper", damping=0.02)
    changed.damping = 0.02
    run(model, changed, 0, 3)
    run(other, made, 0, 3)
    assert torch.equal(flat(model), flat(other))


def test_wrong_values_are_named_and_change_nothing() -> None:
    optimizer = kfac(small_net(), preset="paper")
    for name, value in (("damping", -1.0), ("kl_clip", math.nan), ("inverse_interval", 0)):
        before = getattr(optimizer, name)
        with pytest.raises(spdkfac.ConfigError, match=f"kfac: {name}="):
            setattr(optimizer, name, value)
        assert getattr(optimizer, name) == before
    with pytest.raises(spdkfac.ConfigError, match="grafting sets the length"):
        kfac(small_net()).kl_clip = 0.1


def test_damping_follows_the_loss_and_goes_on_bit_for_bit() -> None:
    options = {"graft": "none", "lm_damping": True, "kl_clip": 0.0, "damping": 0.1}
    optimizer = assert_goes_on(options, stop=7, last=16)
    steps = round(math.log(optimizer.damping / 0.1) / math.log(0.9**5))
    assert steps in (-3, -2, -1, 1, 2, 3)  # it was judged three times, and once before it was saved
    assert optimizer.damping == pytest.approx(0.1 * 0.9 ** (5 * steps), rel=1e-12)


class Noisy(nn.Module):
    """Dropout and batch statistics: what a second evaluation must not change."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(images)


def test_the_second_evaluation_leaves_no_trace() -> None:
    seen: list[float] = []
    model = Noisy()
    optimizer = kfac(model, graft="none", lm_damping=True)
    data = torch.randn(16, 6)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(data).square().mean()
        loss.backward()
        seen.append(float(loss.detach()))
        return loss

    calls = []
    for step in range(5):
        torch.manual_seed(100 + step)
        optimizer.step(closure)
        calls.append(len(seen))
        after = torch.rand(1)
    assert calls == [1, 2, 3, 4, 6]
    torch.manual_seed(104)
    nn.Dropout(0.5)(torch.ones(16, 8))
    assert torch.equal(torch.rand(1), after)
    assert int(model.net[1].num_batches_tracked) == 5
    assert optimizer.counters["steps"] == 5


def test_without_a_closure_or_with_grafting_it_is_an_error() -> None:
    optimizer = kfac(small_net(), graft="none", lm_damping=True)
    with pytest.raises(spdkfac.ConfigError, match=r"step\(closure\)"):
        optimizer.step()
    with pytest.raises(spdkfac.ConfigError, match="graft=none"):
        kfac(small_net(), lm_damping=True)


def test_forecasts_average_growing_intervals() -> None:
    def seconds(**intervals: Any) -> float:
        return spdkfac.simulate("resnet50", "paper-64x2080ti", **intervals).iteration

    often, most = seconds(), seconds(factor_interval=10, inverse_interval=100)
    growing = seconds(interval="auto")
    assert most < growing < often
    assert seconds(interval="auto", over_steps=10) == pytest.approx(often)  # each step does all
    assert seconds(interval="auto", over_steps=1_000_000) == pytest.approx(most, rel=0.01)
    assert seconds(interval="adaptive") == growing
    with pytest.raises(spdkfac.ConfigError, match="interval=never"):
        seconds(interval="never")


def test_forecasts_spread_refreshes() -> None:
    def of(world: int, **options: Any) -> spdkfac.Prediction:
        return spdkfac.simulate("resnet50", "paper-64x2080ti", world=world, factor_interval=10, inverse_interval=100,
                                **options)

    at_once, spread = of(1), of(1, spread_refreshes=True)
    assert spread.iteration == pytest.approx(at_once.iteration, rel=1e-12)
    assert spread.slowest_step < 0.75 * at_once.slowest_step
    assert of(16, spread_refreshes=True).slowest_step < of(16).slowest_step
    plan = spdkfac.plan("resnet50", "paper-64x2080ti", factor_interval=10, inverse_interval=100, spread_refreshes=True)
    assert plan.to_json()["options"]["spread_refreshes"] is True
    compared = spdkfac.compare("resnet50", "paper-64x2080ti", algorithms=["d-kfac"], spread_refreshes=True)
    assert [one.to_json()["spread_refreshes"] for one in compared] == [True, True]
    with pytest.raises(spdkfac.ConfigError, match="spread_refreshes=True.*interval=adaptive"):
        of(1, interval="adaptive", spread_refreshes=True)
