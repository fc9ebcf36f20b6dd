# SPDX-License-Identifier: Apache-2.0
"""K-FAC's first update by its definition, from what Linear layers saw, in plain torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import nn

DAMPING = 0.1
OPTIONS = {"damping": DAMPING, "damping_mode": "plain", "kl_clip": 0.0, "lr": 1.0, "momentum": 0.0}


@dataclass
class Calls:
    """Inputs and gradients of outputs of each weight."""

    inputs: dict[int, list[torch.Tensor]] = field(default_factory=lambda: defaultdict(list))
    # Of the last backward pass through each call.
    gradients: dict[int, dict[int, torch.Tensor]] = field(default_factory=lambda: defaultdict(dict))

    def factors(self, layer: nn.Module, examples: int, terms: int | None = None,
                partial: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """A and G of convention kfc; `terms`: of the mean loss, if other than the examples."""
        weight = layer.weight
        rows = torch.cat([x.detach().reshape(-1, x.shape[-1]) for x in self.inputs[id(weight)]])
        gradients = torch.cat([g.reshape(-1, g.shape[-1])
                               for g in self.gradients[id(weight)].values()])
        if layer.bias is not None:
            rows = torch.cat([rows, torch.ones(len(rows), 1, dtype=rows.dtype)], dim=1)
        gradients = gradients * (terms or examples)
        count = len(rows) if partial else examples
        positions = len(rows) / count / len(self.inputs[id(weight)])
        return rows.T @ rows / count, gradients.T @ gradients / (count * positions)


@contextmanager
def recorded() -> Iterator[Calls]:
    """Records all calls of torch.nn.functional.linear."""
    calls = Calls()
    original = nn.functional.linear

    def linear(input: torch.Tensor, weight: torch.Tensor,
               bias: torch.Tensor | None = None) -> torch.Tensor:
        output = original(input, weight, bias)
        if output.requires_grad:
            call = len(calls.inputs[id(weight)])
            calls.inputs[id(weight)].append(input)
            gradients = calls.gradients[id(weight)]
            output.register_hook(lambda g: gradients.__setitem__(call, g.detach()))
        return output

    nn.functional.linear = linear
    try:
        yield calls
    finally:
        nn.functional.linear = original


def joined_gradient(layer: nn.Module) -> torch.Tensor:
    """The gradient of weight and bias as one matrix."""
    parts = [layer.weight.grad]
    if layer.bias is not None:
        parts.append(layer.bias.grad[:, None])
    return torch.cat(parts, dim=1)


def preconditioned(a: torch.Tensor, g: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Solves with the explicit Kronecker product of the damped factors."""
    damped_a = a + DAMPING * torch.eye(len(a), dtype=a.dtype)
    damped_g = g + DAMPING * torch.eye(len(g), dtype=g.dtype)
    solution = torch.linalg.solve(torch.kron(damped_g, damped_a), gradient.reshape(-1))
    return solution.reshape(gradient.shape)
