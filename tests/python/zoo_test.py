# SPDX-License-Identifier: Apache-2.0
"""Unmodified models of torchvision and timm."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

import spdkfac

timm = pytest.importorskip("timm")
torchvision = pytest.importorskip("torchvision")

CLASSES = 10
MODELS: dict[str, tuple[Callable[[], nn.Module], int, int, float, str]] = {
    # What it is, examples, the side of images, the rate, and the layers that a warning lists, if any.
    "resnet50": (lambda: torchvision.models.resnet50(num_classes=CLASSES), 4, 64, 3e-3, ""),
    "densenet201": (lambda: torchvision.models.densenet201(num_classes=CLASSES), 4, 64, 3e-3, ""),
    # Its last blocks normalise eight values a channel here, and gradients are huge: at 1e-5 the loss
    # goes up and down, at 1e-7 it falls step by step, by half a unit in three (seeds 1 and 2).
    "inception_v4": (lambda: timm.create_model("inception_v4", num_classes=CLASSES), 8, 96, 1e-7, ""),
    "vit_tiny": (lambda: timm.create_model("vit_tiny_patch16_224", num_classes=CLASSES, img_size=32),
                 8, 32, 3e-3, "VisionTransformer: (the model itself)"),
    "mobilenetv3": (lambda: timm.create_model("mobilenetv3_small_100", num_classes=CLASSES), 8, 64,
                    3e-3, ""),
}


DAMPING = 0.1
# The models are in single precision, the check in double; A and G of few examples have no full rank.
TOLERANCE = 2e-3


class Seen:
    """What a layer received in the last step, and the gradient of what it gave."""

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer
        self.handle = layer.register_forward_hook(self._note)

    def _note(self, _: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        self.input = inputs[0].detach().double()
        output.register_hook(self._note_gradient)

    def _note_gradient(self, gradient: torch.Tensor) -> None:
        self.gradient = gradient.detach().double()

    def factors(self) -> tuple[torch.Tensor, torch.Tensor]:
        """A = Σ a aᵀ / N and G = Σ g gᵀ / (N·S), g of an example being N times that of the mean loss."""
        examples = self.input.shape[0]
        if isinstance(self.layer, nn.Conv2d):
            rows = nn.functional.unfold(self.input, self.layer.kernel_size, self.layer.dilation,
                                        self.layer.padding, self.layer.stride)
            rows = rows.transpose(1, 2).flatten(0, 1)
            outputs = self.gradient.flatten(2).transpose(1, 2).flatten(0, 1)
        else:
            rows, outputs = self.input.flatten(0, -2), self.gradient.flatten(0, -2)
        if self.layer.bias is not None:
            rows = torch.cat([rows, rows.new_ones(len(rows), 1)], 1)
        positions = len(rows) // examples
        return rows.T @ rows / examples, outputs.T @ outputs * examples / positions

    def preconditioned(self, gradient: torch.Tensor) -> torch.Tensor:
        """G⁻¹·∇W·A⁻¹, with damping that their traces divide."""
        a, g = self.factors()
        pi = ((a.trace() / len(a)) / (g.trace() / len(g))).sqrt()
        root = DAMPING ** 0.5
        a += pi * root * torch.eye(len(a), dtype=a.dtype, device=a.device)
        g += root / pi * torch.eye(len(g), dtype=g.dtype, device=g.device)
        return torch.linalg.solve(g, torch.linalg.solve(a, gradient.double().T).T)


def whole_gradient(layer: nn.Module) -> torch.Tensor:
    """∇W as [out, in·kh·kw | bias]."""
    assert isinstance(layer.weight, torch.Tensor) and layer.weight.grad is not None
    parts = [layer.weight.grad.flatten(1)]
    if layer.bias is not None:
        parts.append(layer.bias.grad.unsqueeze(1))  # type: ignore[union-attr, operator]
    return torch.cat(parts, 1).clone()


def checked_layers(model: nn.Module) -> list[nn.Module]:
    """The first and the last covered layer, and the smallest between them; none with groups."""
    layers = [each for each in model.modules()
              if isinstance(each, nn.Linear) or isinstance(each, nn.Conv2d) and each.groups == 1]
    return [layers[0], min(layers[1:-1], key=lambda each: each.weight.numel()), layers[-1]]


def train_and_check(name: str, device: torch.device, **options: object) -> None:
    make, examples, side, rate, uncovered = MODELS[name]
    model = make().to(device)
    images = torch.randn(examples, 3, side, side, device=device)
    labels = torch.arange(examples, device=device)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        # Inverses of the first step serve all three: they are what takes the time here.
        optimizer = spdkfac.SPDKFACOptimizer(
            torch.optim.SGD(model.parameters(), lr=rate), model, preset="paper", damping=DAMPING,
            inverse_interval=3, precision="fp32", **options)
    texts = [str(each.message) for each in said if "spdkfac" in str(each.message)]
    assert len(texts) == (1 if uncovered else 0) and all(text.endswith(uncovered) for text in texts)
    seen = [Seen(layer) for layer in checked_layers(model)]
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        losses.append(loss.item())
        if len(losses) == 4:
            break
        loss.backward()
        if len(losses) == 1:
            expected = [each.preconditioned(whole_gradient(each.layer)) for each in seen]
            before = [each.layer.weight.detach().clone() for each in seen]  # type: ignore[operator, union-attr]
        optimizer.step()
        if len(losses) == 1:
            check_update(seen, before, expected, rate)
    assert all(torch.isfinite(torch.tensor(losses))), losses
    # Batch norm over few values makes single losses jump.
    assert min(losses[1:]) < losses[0], losses
    covered = sum(isinstance(each, (nn.Conv2d, nn.Linear)) for each in model.modules())
    assert len(optimizer.layers.tracked) == covered
    counters = optimizer.counters
    assert counters["steps"] == 3
    assert counters["factor_updates"] == 3 * 2 * covered, "A and G of all layers in each step"
    assert counters["inverse_updates"] == 2 * covered, "in the first step"
    for what in ("layers_without_factors", "nonfinite_factors", "nonfinite_gradients", "inverses_kept"):
        assert counters[what] == 0, what


def check_update(seen: list[Seen], before: list[torch.Tensor], expected: list[torch.Tensor],
                 rate: float) -> None:
    """The first update of three layers: the gradients that K-FAC gives, all clipped alike."""
    clips = []
    for each, weight, wanted in zip(seen, before, expected, strict=True):
        made = whole_gradient(each.layer).double()
        clip = float((made * wanted).sum() / (wanted * wanted).sum())
        assert (made - clip * wanted).norm() <= TOLERANCE * made.norm(), each.layer
        clips.append(clip)
        # And the parameters follow them.
        update = (weight - each.layer.weight.detach()).flatten(1)  # type: ignore[operator, union-attr]
        given = rate * made[:, :update.shape[1]]
        assert (update.double() - given).norm() <= 1e-2 * given.norm() + 1e-7 * weight.norm()
    assert 0 < min(clips) and max(clips) <= 1 + TOLERANCE
    assert max(clips) - min(clips) <= TOLERANCE * max(clips), clips


@pytest.mark.parametrize("name", MODELS)
def test_three_steps_are_those_of_k_fac_and_lower_the_loss(name: str, device: torch.device) -> None:
    train_and_check(name, device)


@pytest.mark.parametrize("options", [{"algorithm": "sgd"}, {"convention": "kfac-pytorch"}])
def test_the_check_notices_other_updates(device: torch.device, options: dict[str, object]) -> None:
    """Plain SGD, and K-FAC on another scale: both lower the loss, too."""
    with pytest.raises(AssertionError, match=r"norm|clips"):
        train_and_check("vit_tiny", device, **options)
