# SPDX-License-Identifier: Apache-2.0
"""Kronecker factors of one layer: their parts, their eigenbases, and products with both."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import torch

from .errors import ConfigError


Damping = Literal["exact", "mean", "plain", "pi", "relative"]
DAMPINGS = ("exact", "mean", "plain", "pi", "relative")


@dataclass(frozen=True, eq=False)
class Basis:
    """Eigenvectors of a factor; those of a diagonal are the unit vectors, and there are none here."""

    values: torch.Tensor  # [groups, size], not below 0
    vectors: tuple[torch.Tensor, ...]  # of each block, [groups, rows, rows]

    def enter(self, rows: torch.Tensor, *, squared: bool = False) -> torch.Tensor:
        """Rows [..., groups, n, size] in the basis; `squared`: with the squares of its elements."""
        return self._multiply(rows, [self._power(one, squared) for one in self.vectors])

    def leave(self, rows: torch.Tensor, *, squared: bool = False) -> torch.Tensor:
        return self._multiply(rows, [self._power(one, squared).mT for one in self.vectors])

    @staticmethod
    def _power(vectors: torch.Tensor, squared: bool) -> torch.Tensor:
        return vectors.square() if squared else vectors

    def _multiply(self, rows: torch.Tensor, matrices: list[torch.Tensor]) -> torch.Tensor:
        if not matrices:
            return rows
        parts = rows.split([one.size(-1) for one in matrices], dim=-1)
        return torch.cat([part @ matrix for part, matrix in zip(parts, matrices, strict=True)], dim=-1)


@dataclass(frozen=True, eq=False)
class Factor:
    """A symmetric matrix for each group: whole, in blocks along its diagonal, or its diagonal alone."""

    values: torch.Tensor  # [groups·blocks, dim, dim]; the last block of a group is padded with zeros
    size: int  # rows of a group
    groups: int

    @property
    def is_diagonal(self) -> bool:
        return self.values.size(-1) == 1

    def blocks(self) -> list[torch.Tensor]:
        """[groups, rows, rows] of each; not of a diagonal."""
        dim = self.values.size(-1)
        parts = self.values.unflatten(0, (self.groups, -1))
        rows = [min(dim, self.size - first) for first in range(0, self.size, dim)]
        return [parts[:, index, :count, :count] for index, count in enumerate(rows)]

    def dense(self) -> torch.Tensor:
        """[groups, size, size]."""
        if self.is_diagonal:
            return torch.diag_embed(self.diagonal())
        return torch.stack([torch.block_diag(*of_group) for of_group in zip(*self.blocks(), strict=True)])

    def diagonal(self) -> torch.Tensor:
        """[groups, size]."""
        return self.values.diagonal(dim1=-2, dim2=-1).reshape(self.groups, -1)[:, : self.size]

    def multiply(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows [..., groups, n, size] times the matrices."""
        if self.is_diagonal:
            return rows * self.diagonal().unsqueeze(1)
        blocks = self.blocks()
        parts = rows.split([one.size(-1) for one in blocks], dim=-1)
        return torch.cat([part @ one for part, one in zip(parts, blocks, strict=True)], dim=-1)

    @cached_property
    def basis(self) -> Basis:
        if self.is_diagonal:
            return Basis(self.diagonal().clamp(min=0), ())
        found = [torch.linalg.eigh(one) for one in self.blocks()]
        return Basis(torch.cat([values for values, _ in found], dim=-1).clamp(min=0),
                     tuple(vectors for _, vectors in found))

    def to(self, device: torch.device | str | None, dtype: torch.dtype | None) -> Factor:
        return replace(self, values=self.values.to(device=device, dtype=dtype))


@dataclass(frozen=True)
class Part:
    """A parameter, or a range of its outputs, that belongs to a layer."""

    name: str
    shape: tuple[int, ...]  # of the whole parameter
    outputs: tuple[int, int] | None = None  # first, and how many


@dataclass(frozen=True, eq=False)
class LayerCurvature:
    """The Fisher matrix of one layer, A⊗G for each group; a gradient is [groups, out, in·kernel | bias]."""

    name: str
    kind: str
    weight: Part | None  # None: the bias alone is trained
    bias: Part | None
    a: Factor
    g: Factor
    examples: float  # that it saw
    rows: float  # of its calls: examples times positions
    # Mean squares of single examples' gradients in the eigenbasis (EK-FAC), [groups, out, in].
    moments: torch.Tensor | None = field(default=None)

    @property
    def groups(self) -> int:
        return self.a.groups

    @property
    def numel(self) -> int:
        return self.groups * self.a.size * self.g.size

    @property
    def A(self) -> torch.Tensor:
        """[in, in], with the bias last; [groups, in, in] of several groups."""
        return self._plain(self.a)

    @property
    def G(self) -> torch.Tensor:
        """[out, out]; [groups, out, out] of several groups."""
        return self._plain(self.g)

    def _plain(self, factor: Factor) -> torch.Tensor:
        dense = factor.dense()
        return dense[0] if self.groups == 1 else dense

    # --- the matrix and functions of it ---

    @property
    def eigenvalues(self) -> torch.Tensor:
        """[groups, out, in]: products of those of both factors, or the second moments of EK-FAC."""
        if self.moments is not None:
            return self.moments
        return self.g.basis.values.unsqueeze(-1) * self.a.basis.values.unsqueeze(-2)

    def enter(self, gradients: torch.Tensor) -> torch.Tensor:
        """Gradients [..., groups, out, in] in the eigenbasis."""
        return self.g.basis.enter(self.a.basis.enter(gradients).mT).mT

    def leave(self, coordinates: torch.Tensor) -> torch.Tensor:
        return self.g.basis.leave(self.a.basis.leave(coordinates).mT).mT

    def diagonal_of(self, values: torch.Tensor) -> torch.Tensor:
        """The diagonal of the matrix that has these eigenvalues, in the shape of a gradient."""
        return self.g.basis.leave(self.a.basis.leave(values, squared=True).mT, squared=True).mT

    def product(self, gradients: torch.Tensor) -> torch.Tensor:
        if self.moments is not None:
            return self.apply(lambda values: values, gradients)
        return self.g.multiply(self.a.multiply(gradients).mT).mT

    def apply(self, function: Callable[[torch.Tensor], torch.Tensor], gradients: torch.Tensor) -> torch.Tensor:
        """The matrix with function(eigenvalues) instead of its own, times the gradients."""
        return self.leave(function(self.eigenvalues) * self.enter(gradients))

    def damped(self, damping: float, mode: Damping, scale: float) -> torch.Tensor:
        """Eigenvalues of scale·F with damping, as Curvature.solve explains."""
        if mode not in DAMPINGS:
            raise ConfigError(f"curvature: mode={mode}; pass one of {', '.join(DAMPINGS)}")
        if not (math.isfinite(damping) and damping >= 0):
            raise ConfigError(f"curvature: damping={damping}; pass a finite number of at least 0")
        if mode in ("exact", "mean"):
            values = scale * self.eigenvalues
            return values + (damping if mode == "exact" else damping * values.mean())
        if self.moments is not None:
            raise ConfigError(f"curvature: mode={mode} damps A and G, but this curvature has the second moments of "
                              "EK-FAC; pass mode=\"exact\" or \"mean\"")
        a, g = self.a.basis.values, scale * self.g.basis.values
        # As in training (docs/numerics.md), from the traces of each group.
        mean_a, mean_g = (factor.mean(dim=-1, keepdim=True) for factor in (a, g))
        root = math.sqrt(damping)
        if mode == "plain":
            more_a, more_g = torch.full_like(mean_a, damping), torch.full_like(mean_g, damping)
        elif mode == "relative":
            more_a, more_g = root * mean_a, root * mean_g
        else:
            pi = (mean_a / mean_g).sqrt()
            pi = torch.where(pi.isfinite() & (pi > 0), pi, torch.ones_like(pi))
            more_a, more_g = pi * root, root / pi
        return (g + more_g).unsqueeze(-1) * (a + more_a).unsqueeze(-2)

    # --- parameters ---

    def join(self, values: dict[str, torch.Tensor]) -> torch.Tensor:
        """What belongs to this layer of tensors like parameters, [..., groups, out, in·kernel | bias]."""
        parts = []
        if self.weight is not None:
            parts.append(self._by_outputs(self._own(values[self.weight.name], self.weight), self.weight))
        if self.bias is not None:
            bias = self._own(values[self.bias.name], self.bias)
            parts.append(bias.unflatten(-1, (self.groups, -1)).unsqueeze(-1))
        return torch.cat(parts, dim=-1)

    def split(self, joined: torch.Tensor, values: dict[str, torch.Tensor]) -> None:
        """The reverse, written into tensors like parameters."""
        if self.weight is not None:
            own = self._own(values[self.weight.name], self.weight)
            inputs = self.a.size - (self.bias is not None)
            own.copy_(self._from_outputs(joined[..., :inputs], own.shape))
        if self.bias is not None:
            self._own(values[self.bias.name], self.bias).copy_(joined[..., -1].flatten(-2))

    @property
    def _in_out(self) -> bool:
        """Whether the weight is [in, out/groups, kernel…]."""
        return self.kind.startswith("conv_transpose") or self.kind in ("linear_in_out", "embedding")

    def _own(self, value: torch.Tensor, part: Part) -> torch.Tensor:
        if part.outputs is None:
            return value
        axis = value.dim() - len(part.shape) + (1 if self._in_out and len(part.shape) > 1 else 0)
        return value.narrow(axis, *part.outputs)

    def _by_outputs(self, weight: torch.Tensor, part: Part) -> torch.Tensor:
        leading = weight.dim() - len(part.shape)
        grouped: torch.Tensor = weight.unflatten(leading, (self.groups, -1))  # [..., groups, first, second, kernel…]
        if self._in_out:
            grouped = grouped.transpose(leading + 1, leading + 2)
        return grouped.flatten(leading + 2) if grouped.dim() > leading + 3 else grouped

    def _from_outputs(self, matrix: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        leading = matrix.dim() - 3
        kernel = shape[leading + 2:]
        grouped: torch.Tensor = matrix.unflatten(-1, (-1, *kernel))  # [..., groups, out, in, kernel…]
        if self._in_out:
            grouped = grouped.transpose(leading + 1, leading + 2)
        return grouped.flatten(leading, leading + 1).reshape(shape)

    def to(self, device: torch.device | str | None, dtype: torch.dtype | None) -> LayerCurvature:
        moments = None if self.moments is None else self.moments.to(device=device, dtype=dtype)
        return replace(self, a=self.a.to(device, dtype), g=self.g.to(device, dtype), moments=moments)
