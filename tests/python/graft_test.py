# SPDX-License-Identifier: Apache-2.0
"""Grafting, presets and two optimizers under one, against torch's own optimizers."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from nets import batch, flat, joined, loss_of, small_net
from torch import nn

import spdkfac
from spdkfac.presets import preset_of

STEPS = 4


def kfac(optimizer: torch.optim.Optimizer, model: nn.Module, **options: Any) -> spdkfac.SPDKFACOptimizer:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="spdkfac: K-FAC covers")
        return spdkfac.SPDKFACOptimizer(optimizer, model, **options)


def run(model: nn.Module, optimizer: torch.optim.Optimizer, first: int = 0, last: int = STEPS) -> None:
    for step in range(first, last):
        optimizer.zero_grad()
        loss_of(model, joined([batch(step, 0)])).backward()
        optimizer.step()


def covered_lengths(model: nn.Module, optimizer: spdkfac.SPDKFACOptimizer,
                    before: dict[int, torch.Tensor], decay: float) -> list[float]:
    """The length of each covered layer's update, without the weight decay."""
    lengths = []
    for weight, bias in [(layer.weight, layer.bias) for layer in optimizer.layers.tracked]:
        parts = [before[id(p)] * (1 - decay) - p.detach() for p in (weight, bias) if p is not None]
        lengths.append(float(torch.cat([part.reshape(-1) for part in parts]).norm()))
    return lengths


def snapshot(model: nn.Module) -> dict[int, torch.Tensor]:
    return {id(p): p.detach().clone() for p in model.parameters()}


def test_updates_have_the_length_of_adams_and_its_decay(device: torch.device) -> None:
    lr, decay = 0.01, 0.1
    model, plain = small_net(), small_net()
    optimizer = kfac(torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=decay, eps=1e-12), model)
    adamw = torch.optim.AdamW(plain.parameters(), lr=lr, weight_decay=decay, eps=1e-12)
    for step in range(STEPS):
        plain.load_state_dict(model.state_dict())  # the same gradients for both
        before, plain_before = snapshot(model), snapshot(plain)
        run(model, optimizer, step, step + 1)
        run(plain, adamw, step, step + 1)
        ours = covered_lengths(model, optimizer, before, lr * decay)
        names = dict(plain.named_parameters())
        for layer, length in zip(optimizer.layers.tracked, ours, strict=True):
            name, weight, bias = layer.name, layer.weight, layer.bias
            parts = [names[f"{name}.weight"]] + ([names[f"{name}.bias"]] if bias is not None else [])
            reference = torch.cat([(plain_before[id(p)] * (1 - lr * decay) - p.detach()).reshape(-1)
                                   for p in parts]).norm()
            assert length == pytest.approx(float(reference), rel=1e-5), (step, name)
    # The direction is another one.
    assert float((flat(model) - flat(plain)).norm()) > 1e-3 * float(flat(plain).norm())


def test_parameters_that_are_not_covered_take_the_wrapped_optimizers_step(device: torch.device) -> None:
    model, plain = small_net(), small_net()
    optimizer = kfac(torch.optim.AdamW(model.parameters(), lr=0.01), model)
    adamw = torch.optim.AdamW(plain.parameters(), lr=0.01)
    run(model, optimizer, 0, 1)
    run(plain, adamw, 0, 1)
    covered = {id(p) for p in optimizer.layers.parameters()}
    others = [name for name, p in model.named_parameters() if id(p) not in covered]
    assert others
    ours, reference = dict(model.named_parameters()), dict(plain.named_parameters())
    for name in others:
        assert torch.equal(ours[name], reference[name]), name


def test_over_sgd_updates_have_the_length_of_the_gradient() -> None:
    model = small_net()
    lr = 0.05
    optimizer = kfac(torch.optim.SGD(model.parameters(), lr=lr), model)
    optimizer.zero_grad()
    loss_of(model, batch(0, 0)).backward()
    wanted = []
    for weight, bias in [(layer.weight, layer.bias) for layer in optimizer.layers.tracked]:
        parts = [p.grad.reshape(-1) for p in (weight, bias) if p is not None]
        wanted.append(lr * float(torch.cat(parts).norm()))
    before = snapshot(model)
    optimizer.step()
    assert covered_lengths(model, optimizer, before, 0.0) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("inner", [torch.optim.AdamW, torch.optim.SGD])
def test_a_grafted_run_goes_on_bit_for_bit(inner: type[torch.optim.Optimizer]) -> None:
    model = small_net()
    optimizer = kfac(inner(model.parameters(), lr=0.01), model)
    run(model, optimizer, 0, 2)
    state, parameters = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model.state_dict())
    run(model, optimizer, 2)
    again = small_net()
    resumed = kfac(inner(again.parameters(), lr=0.01), again)
    run(again, resumed, 5, 6)
    again.load_state_dict(parameters)
    resumed.load_state_dict(state)
    run(again, resumed, 2)
    assert torch.equal(flat(again), flat(model))


@pytest.mark.parametrize("name", ["adamw", "instance"])
def test_others_take_what_is_not_covered(name: str) -> None:
    model, plain = small_net(), small_net()
    sgd = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    weights = {id(m.weight) for m in model.modules() if isinstance(m, (nn.Linear, nn.Conv2d))}
    biases = {id(m.bias) for m in model.modules() if isinstance(m, (nn.Linear, nn.Conv2d))}
    rest = [p for p in model.parameters() if id(p) not in weights | biases]
    assert rest
    others: Any = name if name == "adamw" else torch.optim.AdamW(rest, lr=1e-3)
    optimizer = kfac(sgd, model, others=others)
    assert {id(p) for p in optimizer.param_groups[-1]["params"]} == {id(p) for p in rest}
    reference = torch.optim.AdamW(plain.parameters(), lr=1e-3)
    run(model, optimizer, 0, 1)
    run(plain, reference, 0, 1)
    ours = [p.detach().clone() for p in rest]
    theirs = [q for p, q in zip(model.parameters(), plain.parameters(), strict=True)
              if id(p) in {id(one) for one in rest}]
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    # A schedule moves both rates, and a state goes on.
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    scheduler.step()
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.025, 5e-4])
    state = copy.deepcopy(optimizer.state_dict())
    again = small_net()
    again.load_state_dict(model.state_dict())
    resumed = kfac(torch.optim.SGD(again.parameters(), lr=0.05, momentum=0.9), again, others="adamw")
    resumed.load_state_dict(state)
    run(model, optimizer, 1)
    run(again, resumed, 1)
    assert torch.equal(flat(again), flat(model))


def test_presets_follow_the_layers() -> None:
    class SelfAttention(nn.Module):
        pass

    linear, conv = nn.Linear(2, 2), nn.Conv2d(1, 1, 1)
    assert preset_of(nn.Sequential(linear)) == "mlp"
    assert preset_of(nn.Sequential(conv, linear)) == "cnn"
    assert preset_of(nn.Sequential(conv, SelfAttention())) == "transformer"
    assert preset_of(nn.TransformerEncoderLayer(8, 2)) == "transformer"


@pytest.mark.parametrize(("options", "message"), [
    ({"preset": "best"}, "kfac: preset=best; pass one of paper, cnn, cnn-large-batch, transformer, mlp"),
    ({"graft": "lamb"}, "kfac: graft=lamb; pass one of none, sgd, adam"),
    ({"kl_clip": 0.01}, "kfac: kl_clip=0.01; pass 0, or graft=none"),
    ({"interval": "never"}, "kfac: interval=never; pass one of fixed, auto, adaptive"),
    ({"others": "lbfgs"}, "kfac: others=lbfgs; pass an optimizer, or one of adamw, sgd"),
])
def test_mistakes_are_named(options: dict[str, Any], message: str) -> None:
    model = small_net()
    with pytest.raises(spdkfac.ConfigError) as error:
        kfac(torch.optim.AdamW(model.parameters()), model, **options)
    assert message in str(error.value)


def test_covered_parameters_are_not_for_others() -> None:
    model = small_net()
    with pytest.raises(spdkfac.ConfigError, match="others has parameters of layers that K-FAC covers"):
        kfac(torch.optim.SGD(model.parameters(), lr=0.1), model,
             others=torch.optim.AdamW(model.parameters()))


def test_intervals_that_are_given_are_fixed() -> None:
    model = small_net()
    optimizer = kfac(torch.optim.AdamW(model.parameters()), model, inverse_interval=3, factor_interval=3)
    run(model, optimizer, 0, 4)
    per_layer = len(optimizer.layers.tracked)
    assert optimizer.counters["factor_updates"] == 2 * 2 * per_layer
