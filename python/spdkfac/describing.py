# SPDX-License-Identifier: Apache-2.0
"""The layer table of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import nn

from . import _core
from .compiled import EagerCode
from .layers import covered_layers
from .planning import Model
from .wrapping import unwrapped


def describe(model: nn.Module, input: torch.Tensor | Sequence[int], *, name: str | None = None,
             batch: int | None = None, max_dimension: int = 8192,
             large_factors: Literal["diagonal", "blocks"] = "diagonal", norms: bool = False) -> Model:
    """The layer table of a model, for `plan` and `simulate`: runs it once and watches.

    `input` is a batch of examples, or the shape of one example without the batch. `max_dimension`,
    `large_factors` and `norms` are those of the optimizer.
    """
    module = unwrapped(model)
    layers = covered_layers(module, norms=norms)
    options = _core.KfacOptions()
    options.max_dimension, options.large_factors = max_dimension, large_factors
    options.validate()
    if not isinstance(input, torch.Tensor):
        weight = next(module.parameters())
        input = torch.zeros(2, *input, device=weight.device, dtype=weight.dtype)
    examples = input
    modes = {each: each.training for each in module.modules()}
    buffers = [buffer.detach().clone() for buffer in module.buffers()]
    eager = EagerCode()
    try:
        eager.want(True)  # compiled blocks, too
        module.train()
        with torch.random.fork_rng(devices=[]):
            table = _core.describe(name or type(module).__name__, layers.tracked,
                                   list(module.parameters()), lambda: module(examples),
                                   batch or examples.shape[0], list(examples.shape[1:]), options)
    finally:
        eager.want(False)
        for each, training in modes.items():
            each.training = training
        with torch.no_grad():
            for buffer, value in zip(module.buffers(), buffers, strict=True):
                buffer.copy_(value)
    return Model.from_json(table, "describe")
