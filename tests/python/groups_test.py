# SPDX-License-Identifier: Apache-2.0
"""Parameter groups and states of wrapped optimizers: what is in none, stops, differs or comes later."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import spdkfac

RATE = 1e-2
Make = Callable[[nn.Module], torch.optim.Optimizer]


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=RATE)


def kfac(optimizer: torch.optim.Optimizer, model: nn.Module, **options: Any) -> spdkfac.SPDKFACOptimizer:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="spdkfac: K-FAC covers")
        return spdkfac.SPDKFACOptimizer(optimizer, model, **options)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3, scale: float = 1) -> None:
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        images = torch.randn(16, 6, generator=generator)
        targets = torch.randint(3, (16,), generator=generator)
        optimizer.zero_grad()
        (scale * nn.functional.cross_entropy(model(images), targets)).backward()
        optimizer.step()


def values(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("make", [adamw, lambda model: torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)])
def test_first_order_training_is_that_of_the_wrapped_optimizer(make: Make) -> None:
    plain, wrapped = net(), net()
    train(plain, make(plain))
    train(wrapped, kfac(make(wrapped), wrapped, algorithm="sgd"))
    assert torch.equal(values(plain), values(wrapped))


@pytest.mark.parametrize("preset", [None, "paper"])
def test_parameters_in_no_group_have_no_influence(preset: str | None) -> None:
    """Nobody clears their gradients, so they grow from step to step."""
    def head_of(frozen: bool, weights: bool) -> torch.Tensor:
        model = net()
        own = [p for p in model.parameters() if p.dim() == 2] if weights else [*model[3].parameters()]
        if frozen:
            ids = {id(p) for p in own}
            for parameter in model.parameters():
                parameter.requires_grad_(id(parameter) in ids)
        train(model, kfac(torch.optim.AdamW(own, lr=RATE), model, preset=preset), steps=5)
        return values(model)

    for weights in (False, True):
        assert torch.equal(head_of(True, weights), head_of(False, weights))


def test_parameters_in_no_group_are_not_covered() -> None:
    model = net()
    optimizer = kfac(torch.optim.AdamW([model[0].weight, *model[3].parameters()], lr=RATE), model)
    assert optimizer.layers.names == ["0", "3"]
    assert {id(p) for p in optimizer.layers.parameters()} == {id(model[0].weight), *map(id, model[3].parameters())}
    assert optimizer.layers.trained == sum(p.numel() for p in model.parameters()) - model[0].bias.numel()


@pytest.mark.parametrize("others", [None, "adamw"])
def test_a_layer_added_later_is_named(others: str | None) -> None:
    model = net()
    optimizer = kfac(torch.optim.AdamW([*model[1].parameters(), *model[3].parameters()], lr=RATE), model, others=others)
    with pytest.warns(UserWarning, match="added or unfrozen later keep their own gradient: 0;"):
        optimizer.add_param_group({"params": [*model[0].parameters()]})
    before = model[0].weight.detach().clone()
    train(model, optimizer)
    assert not torch.equal(model[0].weight, before)


def freeze(layer: nn.Linear) -> None:
    layer.weight.requires_grad_(False)


def replace(layer: nn.Linear) -> None:
    layer.weight = nn.Parameter(layer.weight.detach().clone())


@pytest.mark.parametrize("change", [freeze, replace, nn.utils.parametrizations.weight_norm])
def test_a_layer_that_is_no_longer_preconditioned_takes_steps_of_adam(change: Callable[[nn.Linear], Any]) -> None:
    model = net()
    optimizer = kfac(torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0), model)
    train(model, optimizer, scale=1000)
    optimizer.zero_grad()
    change(model[0])
    before = model[0].bias.detach().clone()
    train(model, optimizer, steps=1, scale=1000)
    assert model[0].bias.grad.abs().max() > 10
    assert 0 < float((model[0].bias.detach() - before).abs().max()) < 2 * RATE


def test_walking_over_the_state_finds_values_as_of_any_optimizer() -> None:
    model = net()
    optimizer = kfac(adamw(model), model)
    train(model, optimizer)
    for parameter, entry in optimizer.state.items():
        for name, value in entry.items():
            assert value is optimizer.optimizer.state[parameter][name]
        assert [*entry.values()] == [*optimizer.optimizer.state[parameter].values()]
        assert any(name.startswith("kfac_") for name in entry)  # for torch.distributed.checkpoint


def loaded(make: Callable[[nn.Module], spdkfac.SPDKFACOptimizer]) -> None:
    """A state goes into a new optimizer, which then goes on as the first one does."""
    model = net()
    optimizer = make(model)
    train(model, optimizer)
    again = copy.deepcopy(model)
    other = make(again)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # torch takes the tensors as they are
    train(model, optimizer)
    train(again, other)
    assert torch.equal(values(model), values(again))


@pytest.mark.parametrize("others", ["sgd", "adamw"])
def test_states_of_two_optimizers_are_saved(others: str) -> None:
    loaded(lambda model: kfac(adamw(model), model, others=others))


def rmsprop(model: nn.Module) -> torch.optim.Optimizer:
    groups = [{"params": [*model[0].parameters()], "momentum": 0.9}, {"params": [*model[1:].parameters()]}]
    return torch.optim.RMSprop(groups, lr=1e-3)


def amsgrad(model: nn.Module) -> torch.optim.Optimizer:
    groups = [{"params": [*model[:2].parameters()], "amsgrad": True}, {"params": [*model[3].parameters()]}]
    return torch.optim.Adam(groups, lr=1e-3)


@pytest.mark.parametrize("make", [rmsprop, amsgrad])
def test_groups_may_keep_different_things(make: Make) -> None:
    loaded(lambda model: kfac(make(model), model))


class Counting(torch.optim.AdamW):
    """An optimizer that is not torch's and keeps something of its own in its state."""

    calls = 0

    def step(self, closure: Any = None) -> Any:
        self.calls += 1
        return super().step(closure)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "calls": self.calls}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.calls = state_dict["calls"]
        super().load_state_dict({key: state_dict[key] for key in ("state", "param_groups")})


def test_further_entries_are_those_of_the_wrapped_optimizer() -> None:
    model = net()
    optimizer = kfac(Counting(model.parameters(), lr=RATE), model)
    train(model, optimizer)
    state = optimizer.state_dict()
    other = kfac(Counting(model.parameters(), lr=RATE), model)
    other.load_state_dict(state)
    assert other.optimizer.calls == optimizer.optimizer.calls == 3
    with pytest.raises(spdkfac.ConfigError, match="unknown entries .'calls'."):
        kfac(adamw(model), model).load_state_dict(state)


def test_betas_that_k_fac_does_not_follow_are_said_once() -> None:
    model = net()
    optimizer = kfac(adamw(model), model)
    train(model, optimizer)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=RATE, total_steps=10)
    with pytest.warns(UserWarning, match="keep betas and eps .0.9, 0.999, 1e-08.*cycle_momentum=False") as said:
        for _ in range(3):
            schedule.step()
            train(model, optimizer, steps=1)
    assert len([each for each in said if "betas" in str(each.message)]) == 1


class WithoutRate(torch.optim.Optimizer):
    """Chooses its own rate, as Adafactor of transformers does."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": None})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter -= 0.01 * parameter.grad


def test_an_optimizer_may_have_no_rate() -> None:
    model = net()
    before = values(model)
    train(model, kfac(WithoutRate(model.parameters()), model))
    assert values(model).isfinite().all() and not torch.equal(values(model), before)
    with pytest.raises(spdkfac.ConfigError, match="kl_clip limits an update by its learning rate"):
        train(model, kfac(WithoutRate(model.parameters()), model, preset="paper"))


WRONG: list[dict[str, Any]] = [
    {"split": "0"}, {"split": ["0"]}, {"split": {"0": 2.5}}, {"split": {"[": 2}}, {"split": {0: 2}}, {"graft": False},
    {"interval": 10}, {"preset": 5}, {"algorithm": 5}, {"plan": 5}, {"cluster": 5}, {"variant": "x"},
    {"profile_steps": "x"}, {"timeout": "x"}, {"timeout": -1}, {"log_level": 5}, {"model_name": 5}, {"scaler": 5},
    {"gradients": "x"}, {"process_group": 5}, {"norms": "yes"}, {"norms": None}, {"rescale_weights": 5},
    {"rescale_weights": None}, {"rescale_weights": ["["]}, {"rescale_weights": [5]}]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_wrong_argument_is_an_error_that_names_it(wrong: dict[str, Any]) -> None:
    model = net()
    with pytest.raises(spdkfac.ConfigError, match=next(iter(wrong))):
        kfac(adamw(model), model, **wrong)


@pytest.mark.parametrize(("name", "value"), [("damping", "x"), ("damping", None), ("damping", True), ("kl_clip", None),
                                             ("factor_interval", 2.5), ("factor_interval", None),
                                             ("inverse_interval", "x")])
def test_a_wrong_change_is_an_error_that_names_it(name: str, value: Any) -> None:
    model = net()
    optimizer = kfac(torch.optim.SGD(model.parameters(), lr=RATE), model, graft="none")
    before = getattr(optimizer, name)
    with pytest.raises(spdkfac.ConfigError, match=name):
        setattr(optimizer, name, value)
    assert getattr(optimizer, name) == before


def test_a_trace_that_was_not_asked_for_is_an_error(tmp_path: Any) -> None:
    model = net()
    optimizer = kfac(adamw(model), model)
    train(model, optimizer)
    with pytest.raises(spdkfac.ConfigError, match="trace=True"):
        optimizer.write_trace(tmp_path / "trace.json")
    assert not (tmp_path / "trace.json").exists()
