# SPDX-License-Identifier: Apache-2.0
"""Embeddings whose rows are not all alike, against K-FAC's definition in plain loops, in double precision."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from devices import DEVICE
from loop_reference import Factors, damped, factors, preconditioned
from referee_cases import CLASSES, NOT_COVERED, TOKENS, WORDS, Case, Observed, observe, relative
from torch import nn

pytestmark = [pytest.mark.skipif(DEVICE == "cuda", reason="double precision on the CPU"),
              pytest.mark.usefixtures("double_precision")]
TOLERANCE, DAMPING, WIDTH = 1e-9, 0.03, 7


class Text(nn.Module):
    """Words, perhaps with positions, through a Linear layer to the mean of the tokens."""

    def __init__(self, padding: int | None = None, positions: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=padding)
        self.positions = nn.Embedding(TOKENS, WIDTH) if positions else None
        self.middle, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words)
        if self.positions is not None:
            x = x + self.positions(torch.arange(words.shape[1]))
        return self.head(torch.tanh(self.middle(x)).mean(1))


class Tied(nn.Module):
    """A language model whose output layer has the weight of its embedding; with a bias or without."""

    def __init__(self, bias: bool = False) -> None:
        super().__init__()
        self.words, self.middle = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=bias)
        self.head.weight = self.words.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.middle(self.words(words)))).transpose(1, 2)


def text(model: Callable[[], nn.Module], output: tuple[int, ...] = (CLASSES,)) -> Case:
    return Case("text", "Embedding", model, (TOKENS,), output, words=True)


def step(case: Case, model: nn.Module, weight: str, mode: str) -> Observed:
    seen = observe(case, model, damping=DAMPING, damping_mode=mode)
    if weight not in seen.covered and "Embedding" in NOT_COVERED:
        pytest.skip("embeddings are not covered yet")
    assert weight in seen.covered
    return seen


def output_gradients(case: Case, model: nn.Module, layer: str) -> torch.Tensor:
    """N times the gradient of the mean loss, by what the layer gave out."""
    inputs, targets = case.data()
    outputs: list[torch.Tensor] = []
    handle = model.get_submodule(layer).register_forward_hook(lambda *call: outputs.append(call[2]))
    loss = case.loss_function()(model(inputs), targets)
    handle.remove()
    return torch.autograd.grad(loss, outputs[0])[0] * len(inputs)


def expect(found: Factors, mode: str, update: torch.Tensor, gradient: torch.Tensor) -> None:
    """Matrices are [out, in]."""
    error = relative(update, preconditioned(damped(found, mode, DAMPING), gradient))
    print(f"\nlargest relative error: {error:.1e}")
    assert error < TOLERANCE


@pytest.mark.parametrize("mode", ["pi", "plain", "relative"])
def test_padding(mode: str) -> None:
    """Rows of padding count for neither factor."""
    padding = 4
    case = text(lambda: Text(padding))
    model = case.make()
    seen = step(case, model, "words.weight", mode)
    inputs, _ = case.data()
    gradients = output_gradients(case, model, "words")
    a, g = torch.zeros(WORDS, WORDS), torch.zeros(WIDTH, WIDTH)
    for words, rows in zip(inputs, gradients, strict=True):
        for word, row in zip(words.tolist(), rows, strict=True):
            if word != padding:
                a[word, word] += 1
                g += torch.outer(row, row)
    assert (inputs == padding).any()
    expect(Factors(a / len(inputs), g / inputs.numel()), mode, seen.updates["words.weight"].T,
           seen.gradients["words.weight"].T)


@pytest.mark.parametrize("mode", ["pi", "plain", "relative"])
def test_positions(mode: str) -> None:
    """Indices 0 to T, the same for all examples: the rows are the examples, with one position each."""
    case = text(lambda: Text(positions=True))
    model = case.make()
    seen = step(case, model, "positions.weight", mode)
    gradients = output_gradients(case, model, "positions")
    assert gradients.shape == (TOKENS, WIDTH)
    a, g = torch.eye(TOKENS) / TOKENS, torch.zeros(WIDTH, WIDTH)
    for row in gradients:
        g += torch.outer(row, row) / TOKENS
    expect(Factors(a, g), mode, seen.updates["positions.weight"].T, seen.gradients["positions.weight"].T)


@pytest.mark.parametrize("mode", ["pi", "plain", "relative"])
@pytest.mark.parametrize("bias", [False, True])
def test_tied_to_the_output(bias: bool, mode: str) -> None:
    """The factors are those of the Linear layer alone, for the sum of both gradients."""
    case = text(lambda: Tied(bias), (WORDS, TOKENS))
    model = case.make()
    seen = step(case, model, "words.weight", mode)
    inputs, targets = case.data()
    found = factors(model, "head", (inputs,), targets, case.loss_function())
    names = ["words.weight", "head.bias"] if bias else ["words.weight"]
    update, gradient = (torch.cat([values[name].reshape(WORDS, -1) for name in names], dim=1)
                        for values in (seen.updates, seen.gradients))
    expect(found, mode, update, gradient)
