# SPDX-License-Identifier: Apache-2.0
"""Factors from a sample of the rows."""

from __future__ import annotations

import copy

import pytest
import torch
from nets import batch, kfac_over_sgd, loss_of, same_bits, small_net, train
from referee_cases import square
from torch import nn

import spdkfac

ROWS, MOST = 24, 6  # every fourth row


def test_factors_are_those_of_every_fourth_row_times_four() -> None:
    torch.manual_seed(3)
    model = nn.Linear(5, 3, bias=False).double()
    inputs = torch.randn(ROWS, 5, dtype=torch.float64)
    optimizer = kfac_over_sgd(model, factor_rows=MOST)
    outputs = model(inputs)
    outputs.retain_grad()
    outputs.square().sum(1).mean().backward()
    assert outputs.grad is not None
    gradients = ROWS * outputs.grad  # of the examples' own losses
    optimizer.step()
    state = optimizer.state_dict()["state"][0]
    found = {side: square(state[f"kfac_{side}_average"][0]) for side in "ag"}
    matches = []
    for first in range(4):
        some, own = inputs[first::4], gradients[first::4]
        matches.append(torch.allclose(found["a"], 4 * some.T @ some / ROWS, rtol=1e-12)
                       and torch.allclose(found["g"], 4 * own.T @ own / ROWS, rtol=1e-12))
    assert sum(matches) == 1


def test_few_rows_are_all_taken() -> None:
    whole, sampled = small_net(), small_net()
    # The first convolution has 6·36 rows; the next size that is left out is half of that.
    train(whole, kfac_over_sgd(whole), [batch(0), batch(1)])
    train(sampled, kfac_over_sgd(sampled, factor_rows=6 * 36 // 2 + 1), [batch(0), batch(1)])
    assert same_bits(whole, sampled)
    train(sampled, kfac_over_sgd(sampled, factor_rows=6 * 36 // 2), [batch(2)])
    train(whole, kfac_over_sgd(whole), [batch(2)])
    assert not same_bits(whole, sampled)


def test_samples_go_on_bit_for_bit_after_loading() -> None:
    model = small_net()
    optimizer = kfac_over_sgd(model, factor_rows=4)
    train(model, optimizer, [batch(0), batch(1)])
    resumed = copy.deepcopy(model)
    other = kfac_over_sgd(resumed, factor_rows=4)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for number in range(2, 5):
        train(model, optimizer, [batch(number)])
        train(resumed, other, [batch(number)])
    assert same_bits(model, resumed)


def test_a_negative_number_is_an_error() -> None:
    with pytest.raises(spdkfac.ConfigError, match="factor_rows=-1; pass a number of rows above 0"):
        kfac_over_sgd(small_net(), factor_rows=-1)


def test_training_with_samples_learns() -> None:
    model = small_net()
    optimizer = kfac_over_sgd(model, lr=0.1, factor_rows=16, damping=0.01)
    data = batch(0, examples=32)
    first = float(loss_of(model, data).detach())
    train(model, optimizer, [data] * 20)
    assert float(loss_of(model, data).detach()) < 0.5 * first
