# SPDX-License-Identifier: Apache-2.0
"""Curvature over a data set, for other uses than training (docs/curvature.md)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from . import curvature_file
from .curvature_passes import (Approximation, Fisher, Forward, LargeFactors, Passes, Precision, Progress,
                               scale_of)
from .errors import ConfigError
from .kronecker import Damping, LayerCurvature
from .likelihoods import LossFunction, Reduction

Vector = torch.Tensor | Mapping[str, torch.Tensor]


class Curvature(Mapping[str, LayerCurvature]):
    """The Fisher matrix F of a loss over a data set, one Kronecker product A⊗G for each layer, by its name.

    F is that of the loss as it was given: a mean over all data, or a sum. Vectors are flat tensors [..., numel], in
    the order of `parameters`, or tensors [..., *shape] by parameter name; results come back in the same form.
    Parameters that no layer covers have no place in a flat vector and are left out of results.
    """

    def __init__(self, layers: Iterable[LayerCurvature], parameters: Mapping[str, torch.Size | Sequence[int]], *,
                 examples: int, terms: float, loss: float, about: Mapping[str, str] | None = None) -> None:
        self._layers = {layer.name: layer for layer in layers}
        self.parameters: dict[str, torch.Size] = {name: torch.Size(shape) for name, shape in parameters.items()}
        self.examples = examples  # of the data set
        self.loss = loss  # of the data set, as it was given
        self.terms = terms  # of the loss: examples, tokens or outputs
        self.about: dict[str, str] = dict(about or {})  # how it was made

    # --- a mapping of layers ---

    def __getitem__(self, name: str) -> LayerCurvature:
        return self._layers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)

    @property
    def numel(self) -> int:
        """Elements of a flat vector."""
        return sum(shape.numel() for shape in self.parameters.values())

    @property
    def scale(self) -> float:
        """F divided by that of the sum of all terms, over the examples (docs/curvature.md)."""
        return scale_of(self.about.get("fisher", ""), self.about.get("reduction", ""), self.examples, self.terms)

    @property
    def device(self) -> torch.device:
        return self._first.device

    @property
    def dtype(self) -> torch.dtype:
        return self._first.dtype

    @property
    def _first(self) -> torch.Tensor:
        return next(iter(self.values())).a.values

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Curvature:
        return Curvature([layer.to(device, dtype) for layer in self.values()], self.parameters,
                         examples=self.examples, terms=self.terms, loss=self.loss, about=self.about)

    # --- vectors ---

    def flatten(self, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Tensors [..., *shape] by parameter name as one [..., numel]."""
        parts = []
        for name, shape in self.parameters.items():
            if name not in values:
                raise ConfigError(f"curvature: the vector has no {name}; give a tensor for each of .parameters")
            value = values[name]
            if value.shape[max(0, value.dim() - len(shape)):] != shape:
                raise ConfigError(f"curvature: {name} is {list(value.shape)} in the vector; its parameter is "
                                  f"{list(shape)}, behind leading dimensions that all share")
            parts.append(value.reshape(*value.shape[: value.dim() - len(shape)], -1))
        return torch.cat(parts, dim=-1)

    def unflatten(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """The reverse; the tensors are views where they can be."""
        if vector.dim() == 0 or vector.size(-1) != self.numel:
            raise ConfigError(f"curvature: a flat vector of shape {list(vector.shape)}; pass one whose last dimension "
                              f"has {self.numel} elements")
        parts = vector.split([shape.numel() for shape in self.parameters.values()], dim=-1)
        return {name: part.unflatten(-1, shape) if shape else part.squeeze(-1)
                for (name, shape), part in zip(self.parameters.items(), parts, strict=True)}

    def _by_layer(self, vector: Vector) -> dict[str, torch.Tensor]:
        values = vector if isinstance(vector, Mapping) else self.unflatten(vector)
        flat = self.unflatten(self.flatten(values).to(self.device, self.dtype))
        return {name: layer.join(flat) for name, layer in self.items()}

    def _like(self, vector: Vector, by_layer: Mapping[str, torch.Tensor]) -> Any:
        some = next(iter(by_layer.values()))
        flat = some.new_zeros(*some.shape[:-3], self.numel)
        values = self.unflatten(flat)
        for name, joined in by_layer.items():
            self[name].split(joined, values)
        return values if isinstance(vector, Mapping) else flat

    def _map(self, vector: Vector, function: Callable[[LayerCurvature, torch.Tensor], torch.Tensor]) -> Any:
        return self._like(vector, {name: function(self[name], joined)
                                   for name, joined in self._by_layer(vector).items()})

    # --- the matrix ---

    def product(self, vector: Vector, *, scale: float = 1.0, damping: float = 0.0) -> Any:
        """(scale·F + damping·I)·vector."""
        return self._map(vector, lambda layer, own: scale * layer.product(own) + damping * own)

    def solve(self, vector: Vector, damping: float, *, mode: Damping = "exact", scale: float = 1.0) -> Any:
        """The damped matrix's inverse times the vector.

        Modes: `exact` (scale·A⊗G + γI)⁻¹; `mean` the same with γ times the mean eigenvalue of each layer; `plain`,
        `pi` and `relative` (G + γ_g·I)⁻¹ V (A + γ_a·I)⁻¹, damped as in training.
        """
        return self.power(vector, -1, damping, mode=mode, scale=scale)

    def power(self, vector: Vector, exponent: float, damping: float = 0.0, *, mode: Damping = "exact",
              scale: float = 1.0) -> Any:
        """The damped matrix to a power, times the vector."""
        def powered(layer: LayerCurvature, own: torch.Tensor) -> torch.Tensor:
            return layer.apply(lambda _: self._damped(layer, damping, mode, scale, exponent).pow(exponent), own)
        return self._map(vector, powered)

    @staticmethod
    def _damped(layer: LayerCurvature, damping: float, mode: Damping, scale: float,
                exponent: float) -> torch.Tensor:
        values = layer.damped(damping, mode, scale)
        rounding = torch.finfo(values.dtype).eps * values.max() if damping == 0 else 0.0
        if exponent < 0 and not bool((values > rounding).all()):
            raise ConfigError(f"curvature: layer {layer.name} is singular with damping={damping}; pass more damping")
        return values

    def logdet(self, damping: float = 0.0, *, mode: Damping = "exact", scale: float = 1.0) -> torch.Tensor:
        """log det of the damped matrix, in double precision."""
        return torch.stack([self._damped(layer, damping, mode, scale, -1).double().log().sum()
                            for layer in self.values()]).sum()

    def trace(self) -> torch.Tensor:
        """tr F, in double precision."""
        traces = [layer.moments.double().sum() if layer.moments is not None
                  else (layer.a.diagonal().double().sum(-1) * layer.g.diagonal().double().sum(-1)).sum()
                  for layer in self.values()]
        return torch.stack(traces).sum()

    def diagonal(self, exponent: float = 1, damping: float = 0.0, *, mode: Damping = "exact",
                 scale: float = 1.0) -> torch.Tensor:
        """The diagonal of the damped matrix to a power, as a flat vector; exponent=-1: of its inverse."""
        template = torch.zeros(self.numel, device=self.device, dtype=self.dtype)
        result: torch.Tensor = self._like(template, {
            name: layer.diagonal_of(self._damped(layer, damping, mode, scale, exponent).pow(exponent))
            for name, layer in self.items()})
        return result

    def sample(self, count: int, damping: float, *, scale: float = 1.0,
               generator: torch.Generator | None = None) -> torch.Tensor:
        """Flat vectors [count, numel] from N(0, (scale·F + damping·I)⁻¹)."""
        noise = torch.randn(count, self.numel, generator=generator, device=self.device, dtype=self.dtype)
        drawn: torch.Tensor = self.power(noise, -0.5, damping, scale=scale)
        return drawn

    # --- single examples ---

    def example_gradients(self, model: nn.Module, data: Iterable[Any], loss: LossFunction, *,
                          basis: bool = True, loss_reduction: Reduction = "mean", forward: Forward | None = None,
                          examples: Callable[[Any], int] | None = None) -> dict[str, torch.Tensor]:
        """The gradient of each example's own loss by layer, [examples, groups, out, in·kernel | bias].

        `basis`: in the eigenbasis, where inner() needs them. All examples of `data` are held at once.
        """
        passes = Passes(model, loss, loss_reduction=loss_reduction, forward=forward, examples=examples,
                        only=list(self), **json.loads(self.about.get("layers", "{}")))
        found: dict[str, list[torch.Tensor]] = {name: [] for name in self}
        for gradients in passes.example_gradients(data):
            for name, own in gradients.items():
                here = own.to(self.device, self.dtype)
                found[name].append(self[name].enter(here) if basis else here)
        return {name: torch.cat(parts) for name, parts in found.items()}

    def inner(self, left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor], damping: float, *,
              mode: Damping = "exact", scale: float = 1.0) -> torch.Tensor:
        """gᵀ·(damped matrix)⁻¹·h for all pairs, [left, right], of example gradients in the eigenbasis."""
        parts = [(left[name] / self._damped(layer, damping, mode, scale, -1)).flatten(1) @ right[name].flatten(1).T
                 for name, layer in self.items()]
        return torch.stack(parts).sum(0)

    # --- files ---

    def save(self, path: str | Path) -> None:
        """One file in the layout of safetensors (docs/formats.md)."""
        curvature_file.save(self, path)

    @staticmethod
    def load(path: str | Path, device: torch.device | str | None = None,
             dtype: torch.dtype | None = None) -> Curvature:
        """What save() wrote; runs no code, whatever the file holds."""
        return Curvature(**curvature_file.load(path)).to(device, dtype)


def curvature(model: nn.Module, data: Iterable[Any], loss: LossFunction, *,
              fisher: Fisher = "empirical", samples: int = 1, seed: int = 0,
              approximation: Approximation = "expand", ekfac: bool = False,
              loss_reduction: Reduction = "mean", forward: Forward | None = None,
              examples: Callable[[Any], int] | None = None,
              layers: Iterable[str] | None = None, skip_layers: Iterable[str] = (),
              partial_layers: Iterable[str] = (), split: Mapping[str, int] | None = None,
              max_dimension: int = 8192, large_factors: LargeFactors = "diagonal",
              precision: Precision = "fp32", patch_memory: int = 256 << 20,
              dtype: torch.dtype | None = None, progress: Progress = False,
              process_group: dist.ProcessGroup | None = None, timeout: float = 60.0) -> Curvature:
    """Kronecker factors of the loss over the data, which is an iterable of (inputs, targets).

    The model runs in evaluation mode; neither its parameters nor their gradients change. With torch.distributed each
    process gives its own part of the data, and all get the curvature of all of it. docs/curvature.md explains the
    options.
    """
    passes = Passes(model, loss, fisher=fisher, samples=samples, seed=seed, approximation=approximation,
                    loss_reduction=loss_reduction, forward=forward, examples=examples, layers=layers,
                    skip_layers=skip_layers, partial_layers=partial_layers, split=split,
                    max_dimension=max_dimension, large_factors=large_factors, precision=precision,
                    patch_memory=patch_memory, progress=progress, process_group=process_group, timeout=timeout)
    found = passes.factors(data)
    if dtype is not None:
        found.layers = [layer.to(None, dtype) for layer in found.layers]
    if ekfac:
        found.layers = passes.with_moments(found.layers, data)
    return Curvature(found.layers, passes.parameter_shapes(), examples=found.examples, terms=found.terms,
                     loss=found.loss, about=passes.about)
