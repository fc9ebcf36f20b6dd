# SPDX-License-Identifier: Apache-2.0
"""Momentum that follows the learning rate, and weights of bounded norm."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from nets import batch, loss_of, same_bits, small_net

import spdkfac

RATES = [0.02, 0.04, 0.03, 0.01]  # a warm-up, then a decay


def optimizer_of(model: torch.nn.Module, **options: Any) -> spdkfac.SPDKFACOptimizer:
    sgd = torch.optim.SGD(model.parameters(), lr=RATES[0], momentum=0.9)
    with pytest.warns(UserWarning, match="keep their own gradient"):
        return spdkfac.SPDKFACOptimizer(sgd, model, **options)


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    for group in optimizer.param_groups:
        group["lr"] = RATES[number % len(RATES)]
    optimizer.zero_grad()
    loss_of(model, batch(number)).backward()
    optimizer.step()


def test_momentum_is_in_proportion_to_the_rate_from_its_peak() -> None:
    model = small_net()
    optimizer = optimizer_of(model, algorithm="sgd", couple_momentum=True)
    expected = small_net()
    buffers = [torch.zeros_like(parameter) for parameter in expected.parameters()]
    # m·η/η_max: the peak is 0.02, then 0.04 for the rest.
    momenta = [0.9, 0.9, 0.9 * 0.03 / 0.04, 0.9 * 0.01 / 0.04]
    for number, (rate, momentum) in enumerate(zip(RATES, momenta, strict=True)):
        step(model, optimizer, number)
        loss = loss_of(expected, batch(number))
        gradients = torch.autograd.grad(loss, list(expected.parameters()))
        with torch.no_grad():
            for parameter, buffer, gradient in zip(expected.parameters(), buffers, gradients, strict=True):
                buffer.mul_(momentum).add_(gradient)
                parameter.sub_(rate * buffer)
    for ours, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


def test_weights_end_a_step_with_at_most_their_norm() -> None:
    models = [small_net() for _ in range(2)]
    for model in models:
        with torch.no_grad():
            model.second.weight.mul_(20)  # far above √(2·8)
            model.third.weight.mul_(20)
    free, bounded = (optimizer_of(model, algorithm="sgd", rescale_weights=choice)
                     for model, choice in zip(models, (False, True), strict=True))
    step(models[0], free, 0)
    step(models[1], bounded, 0)
    unbounded = models[0].second.weight
    assert unbounded.norm() > 4
    assert models[1].second.weight.norm().item() == pytest.approx(math.sqrt(2 * 8), rel=1e-12)
    torch.testing.assert_close(models[1].second.weight, unbounded * 4 / unbounded.norm())
    # Layers with a bias keep their weight; so do all others.
    for name, parameter in models[0].named_parameters():
        if name != "second.weight":
            assert torch.equal(parameter, models[1].get_parameter(name))


def test_weights_are_never_made_longer_and_zeros_stay() -> None:
    model = small_net()
    with torch.no_grad():
        model.out.weight.zero_()
    # second is below its bound, and with the rate 0 nothing else changes it.
    before = copy.deepcopy(model)
    optimizer = optimizer_of(model, algorithm="sgd", rescale_weights=["second", "^out$"])
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    loss_of(model, batch(0)).backward()
    optimizer.step()
    assert same_bits(model, before)


def test_both_go_on_bit_for_bit_after_loading() -> None:
    options = {"couple_momentum": True, "rescale_weights": True, "damping": 0.01}
    model = small_net()
    optimizer = optimizer_of(model, **options)
    for number in range(3):
        step(model, optimizer, number)
    resumed = copy.deepcopy(model)
    # A fresh optimizer has seen a smaller rate only; the largest is part of the state.
    other = optimizer_of(resumed, **options)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for number in range(3, 6):
        step(model, optimizer, number)
        step(resumed, other, number)
    assert optimizer.param_groups[0]["momentum"] == 0.9  # step 5 has the largest rate again
    assert same_bits(model, resumed)


@pytest.mark.parametrize(("options", "message"), [
    ({"couple_momentum": True}, "SGD with momentum"),
    ({"rescale_weights": ["no_such_layer"]}, "no_such_layer.*first, second, third, out"),
    ({"rescale_weights": "second"}, "list of patterns"),
])
def test_what_cannot_be_done_is_an_error(options: dict[str, Any], message: str) -> None:
    model = small_net()
    with pytest.raises(spdkfac.ConfigError, match=message):
        spdkfac.SPDKFACOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, **options)
