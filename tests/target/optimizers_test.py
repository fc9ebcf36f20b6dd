# SPDX-License-Identifier: Apache-2.0
"""Optimizers as values: variants, search spaces, decay."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import optimizers
from mistake import Mistake
from optimizers import OPTIMIZERS, Optimizer, space_of, variant_of
from spread import Choices, LogRange
from tasks import TASKS
from tiny import TINY


def test_a_variant_of_the_command_line() -> None:
    made = variant_of('mine=kfac:{"inner": "adamw", "graft": "adam", "damping": 0.001}')
    assert made == Optimizer("mine", "kfac", {"inner": "adamw", "graft": "adam", "damping": 0.001})
    assert made.passed == {"graft": "adam", "damping": 0.001}
    assert variant_of("plain=sgd") == Optimizer("plain", "sgd", {})


@pytest.mark.parametrize(("text", "message"), [
    ("kfac", r"must read name=kind:\{…\} \(kfac\)"),
    ("a=coffee:{}", r"kind is one of sgd, adamw, kfac, shampoo, soap"),
    ("a=kfac:{", r"the options of a are no JSON"),
    ("a=kfac:[1]", r"must be objects \(\[1\]\)"),
    ('a=kfac:{"search": 3}', r"search in them, must be objects"),
    ('a=kfac:{"search": {"lr": "3..1"}}', r"search.lr is no list and no range \(3..1\)"),
    ('a=kfac:{"search": {"lr": 3}}', r"search.lr is no list and no range \(3\)"),
    ('a=kfac:{"inner": "lbfgs"}', r"inner of a is unknown \(lbfgs\); give one of sgd, adamw"),
    ('a=kfac:{"rates": "mine"}', r"rates of a is unknown \(mine\)"),
    ('a=sgd:{"schedule": "square"}', r"schedule of a is unknown \(square\)"),
])
def test_wrong_variants_are_named(text: str, message: str) -> None:
    with pytest.raises(Mistake, match=message) as caught:
        variant_of(text)
    assert "\n" not in str(caught.value)


def test_unknown_optimizers_are_named() -> None:
    with pytest.raises(Mistake, match=r"unknown optimizer \(adagrad\)"):
        optimizers.optimizer_named("adagrad")


@pytest.mark.parametrize(("options", "rates"), [
    ({}, "adam"), ({"inner": "sgd"}, "sgd"), ({"inner": "sgd", "graft": "adam"}, "adam"),
    ({"graft": "sgd"}, "sgd"), ({"inner": "sgd", "graft": "none"}, "kfac"), ({"graft": "none"}, "adam"),
    ({"inner": "sgd", "preset": "paper"}, "kfac"), ({"graft": "adam", "rates": "sgd"}, "sgd")])
def test_rates_are_those_of_the_step_whose_length_it_has(options: dict[str, str], rates: str) -> None:
    task = TASKS["cnn"]
    assert space_of(Optimizer("x", "kfac", options), task)["lr"] == LogRange(*getattr(task.rates, rates))


def test_what_is_given_is_not_searched() -> None:
    task = TASKS["cnn"]
    assert set(space_of(OPTIMIZERS["kfac"], task)) == {"lr", "weight_decay", "damping"}
    fixed = Optimizer("x", "kfac", {"damping": 0.1, "search": {"kl_clip": [0.1, 1.0]}})
    assert set(space_of(fixed, task)) == {"lr", "weight_decay", "kl_clip"}
    assert space_of(fixed, task)["kl_clip"] == Choices((0.1, 1.0))
    assert set(space_of(OPTIMIZERS["sgd"], replace(task, decays=False))) == {"lr"}


def test_relative_damping_has_a_range_of_its_own() -> None:
    task = TASKS["autoencoder"]
    for options in ({}, {"preset": "paper", "damping_mode": "relative"}):
        assert space_of(Optimizer("x", "kfac", options), task)["damping"] == optimizers.RELATIVE_DAMPINGS
    for options in ({"damping_mode": "pi"}, {"preset": "paper"}):
        assert space_of(Optimizer("x", "kfac", options), task)["damping"] == LogRange(*task.damping)


def test_vectors_do_not_decay() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
    made = optimizers.make(OPTIMIZERS["adamw"], {"lr": 0.1, "weight_decay": 0.5}, model, TINY)
    groups = [(group["weight_decay"], [p.dim() for p in group["params"]]) for group in made.param_groups]
    assert groups == [(0.5, [2]), (0.0, [1, 1, 1])]


def test_kfac_wraps_what_it_is_told_to() -> None:
    spdkfac = pytest.importorskip("spdkfac")
    for inner, kind in (("sgd", torch.optim.SGD), ("adamw", torch.optim.AdamW)):
        made = optimizers.make(Optimizer("x", "kfac", {"inner": inner}), {"lr": 0.1, "damping": 0.5},
                               nn.Linear(2, 2), TINY)
        assert isinstance(made, spdkfac.SPDKFACOptimizer)
        assert isinstance(made.optimizer, kind)


def test_options_that_spdkfac_refuses_are_a_mistake() -> None:
    pytest.importorskip("spdkfac")
    for options in ({"coffee": 1}, {"damping": -1.0}):
        with pytest.raises(Mistake, match="x: its options are refused"):
            optimizers.make(Optimizer("x", "kfac", options), {"lr": 0.1}, nn.Linear(2, 2), TINY)
