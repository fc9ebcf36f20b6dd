# SPDX-License-Identifier: Apache-2.0
"""What the defaults do to models that were hard for them."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import spdkfac

torchvision = pytest.importorskip("torchvision")


def wrapped(model: nn.Module) -> spdkfac.SPDKFACOptimizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return spdkfac.SPDKFACOptimizer(
            torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9), model, preset="paper")


def test_momentum_does_not_carry_a_fixed_batch_beyond_the_clip(device: torch.device) -> None:
    """Momentum piled up ten steps of the length that `kl_clip` allows: the loss rose above the first."""
    torch.manual_seed(0)
    model = torchvision.models.squeezenet1_1().to(device)
    images = torch.randn(8, 3, 224, 224, device=device)
    labels = torch.randint(0, 1000, (8,), device=device)
    optimizer = wrapped(model)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    assert all(torch.isfinite(torch.tensor(losses))), losses
    assert max(losses[1:]) < losses[0], losses
    assert losses[-1] < 0.8 * losses[0], losses
    assert optimizer.counters["inverses_kept"] == 0
    assert optimizer.counters["layers_scaled"] == 0


class Standardised(nn.Conv2d):
    """As the convolutions of NFNets: the operator never sees the parameter."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        weight = (self.weight - self.weight.mean()) / self.weight.std()
        return nn.functional.conv2d(input, weight, self.bias)


def test_layers_that_are_not_seen_are_scaled_like_others_and_make_one_line(
        capfd: pytest.CaptureFixture[str], device: torch.device) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(Standardised(3, 4, 3), nn.ReLU(), Standardised(4, 4, 3), nn.Flatten(),
                          nn.Linear(16, 2)).to(device)
    optimizer = wrapped(model)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(5, 3, 6, 6, device=device)).square().mean().backward()
        raw = [parameter.grad.clone() for parameter in model.parameters()]
        optimizer.step()
        # Of the one layer that is seen, with ∇W before and νV after clipping, all others take
        # ν·‖V‖²/⟨V, ∇W⟩.
        seen = [parameter.grad for parameter in model[4].parameters()]
        inner = sum((one * old).sum() for one, old in zip(seen, raw[4:], strict=True))
        scale = sum(one.square().sum() for one in seen) / inner
        assert abs(scale - 1) > 0.1, "a scale that shows"
        for parameter, gradient in zip(model.parameters(), raw[:4], strict=False):
            torch.testing.assert_close(parameter.grad, scale * gradient, rtol=1e-3, atol=0)
    assert optimizer.counters["layers_without_factors"] == 4
    assert optimizer.counters["layers_scaled"] == 4
    lines = [line for line in capfd.readouterr().err.splitlines() if "kfac" in line]
    assert len(lines) == 1, lines
    assert "no call was seen: 0, 2;" in lines[0]
    assert "scaled like those of other layers" in lines[0]


@pytest.mark.parametrize("method", ["SGD", "AdamW"])
def test_layers_whose_gradients_have_vanished_do_not_stop_the_others(method: str, device: torch.device) -> None:
    """Squares of their gradients are close to the smallest numbers: their inverses were infinite, and each step zero."""
    torch.manual_seed(0)
    model = nn.ModuleList([nn.Linear(10, 3), *(nn.Linear(10, 10) for _ in range(16))]).to(device)
    optimizer = spdkfac.SPDKFACOptimizer(getattr(torch.optim, method)(model.parameters(), lr=1e-2), model)
    inputs, labels = torch.randn(8, 10, device=device), torch.arange(8, device=device) % 3
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model[0](inputs), labels)
        losses.append(loss.item())
        for exponent, layer in enumerate(model[1:], start=10):
            loss = loss + 10.0**-exponent * layer(inputs).mean()
        loss.backward()
        optimizer.step()
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0], losses
    counters = optimizer.counters
    assert counters["nonfinite_gradients"] == counters["inverses_kept"] == counters["inverse_retries"] == 0, counters
