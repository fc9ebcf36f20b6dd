# SPDX-License-Identifier: Apache-2.0
"""A physics-informed network: -Δu = 2π² sin(πx) sin(πy) on the unit square, u = 0 on its edge.

The network carries derivatives forwards: each example is five rows (u, ∂u/∂x, ∂u/∂y and Δu at a point
inside, u at a point of the edge) that every Linear layer maps alike. K-FAC then sees all that a weight
does to the residual, as in arXiv 2405.15603; autograd.grad with create_graph would use weights in a
backward pass, which no call of a layer shows. All optimizers train the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from data import Batch, generator_on
from files import Sources

U, DX, DY, LAPLACIAN, EDGE = range(5)
GRID = 50  # points of an axis of the test grid
EDGE_WEIGHT = 10.0


class Poisson(nn.Module):
    """tanh between Linear layers; a bias is the weight of an input: 1 for values, 0 for derivatives."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        widths = [2, *[width] * depth]
        self.hidden = nn.ModuleList(nn.Linear(inputs + 1, outputs, bias=False)
                                    for inputs, outputs in zip(widths, widths[1:]))
        self.out = nn.Linear(width + 1, 1, bias=False)
        for layer in [*self.hidden, self.out]:
            assert isinstance(layer, nn.Linear)
            nn.init.xavier_normal_(layer.weight)
        self.double()  # errors far below the rounding of single precision are the point

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """[n, 2]: u there. [n, 4]: inner point and edge point; the five rows [n, 5] of u."""
        rows = points[:, None] if points.shape[1] == 2 else first_rows(points)
        one = ones_for_values(rows)
        for layer in self.hidden:
            rows = tanh_rows(layer(torch.cat([rows, one], dim=2)))
        out: torch.Tensor = self.out(torch.cat([rows, one], dim=2)).squeeze(2)
        return out


def first_rows(points: torch.Tensor) -> torch.Tensor:
    """The coordinates and their derivatives."""
    rows = points.new_zeros(len(points), 5, 2)
    rows[:, U], rows[:, EDGE] = points[:, :2], points[:, 2:]
    rows[:, DX, 0] = rows[:, DY, 1] = 1.0
    return rows


def ones_for_values(rows: torch.Tensor) -> torch.Tensor:
    one = rows.new_ones(*rows.shape[:2], 1)
    if rows.shape[1] == 5:
        one[:, DX:EDGE] = 0.0
    return one


def tanh_rows(rows: torch.Tensor) -> torch.Tensor:
    """tanh and its derivatives by the chain rule: Δf(z) = f'(z)·Δz + f''(z)·|∇z|²."""
    value = torch.tanh(rows)
    if rows.shape[1] == 1:
        return value
    first = 1 - value[:, U] ** 2
    second = -2 * value[:, U] * first
    slopes = rows[:, DX] ** 2 + rows[:, DY] ** 2
    return torch.stack([value[:, U], first * rows[:, DX], first * rows[:, DY],
                        first * rows[:, LAPLACIAN] + second * slopes, value[:, EDGE]], dim=1)


def solution(points: torch.Tensor) -> torch.Tensor:
    return torch.sin(math.pi * points).prod(dim=1)


def poisson_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Mean squares of residuals, in units in which the first is 1 for u = 0."""
    points, force = batch
    rows = model(points)
    inside = (rows[:, LAPLACIAN] + force) / math.pi ** 2
    loss: torch.Tensor = (inside ** 2 + EDGE_WEIGHT * rows[:, EDGE] ** 2).mean()
    return loss


def relative_error(model: nn.Module, tests: Iterator[Batch]) -> torch.Tensor:
    """‖u − exact‖ / ‖exact‖ on the grid."""
    points, exact = next(tests)
    error: torch.Tensor = (model(points).squeeze(1) - exact).norm() / exact.norm()
    return error


@dataclass(frozen=True)
class Square:
    """Random points of the square and of its edge."""

    device: torch.device

    def batches(self, size: int, seed: int) -> Iterator[Batch]:
        generator = generator_on(self.device, seed)
        while True:
            points = torch.rand(size, 4, generator=generator, device=self.device, dtype=torch.float64)
            side = torch.randint(4, (size,), generator=generator, device=self.device)
            points[:, 2] = torch.where(side < 2, side.double(), points[:, 2])
            points[:, 3] = torch.where(side >= 2, side.double() - 2, points[:, 3])
            yield points, 2 * math.pi ** 2 * solution(points[:, :2])

    def tests(self) -> Iterator[Batch]:
        line = (torch.arange(GRID, dtype=torch.float64, device=self.device) + 0.5) / GRID
        points = torch.cartesian_prod(line, line)
        yield points, solution(points)


def square(sources: Sources, device: torch.device) -> Square:
    return Square(device)
