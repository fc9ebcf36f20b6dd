# SPDX-License-Identifier: Apache-2.0
"""Which settings suit a model and the optimizer that is wrapped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import nn

from . import _core
from .errors import ConfigError
from .updates import adam_options, normalizes

Preset = Literal["paper", "cnn", "cnn-large-batch", "transformer", "mlp"]
ATTENTION = ("attention", "attn", "transformer")  # in the names of the classes of modules


def preset_of(model: nn.Module) -> Preset:
    """By the layers of the model: attention, else convolutions, else neither."""
    kinds = {type(module) for module in model.modules()}
    if any(word in kind.__name__.lower() for kind in kinds for word in ATTENTION):
        return "transformer"
    if any(issubclass(kind, nn.modules.conv._ConvNd) for kind in kinds):
        return "cnn"
    return "mlp"


def options_of(preset: str, optimizer: torch.optim.Optimizer, given: Mapping[str, Any]) -> _core.KfacOptions:
    """The preset's options with those that are given.

    Unless said, updates have the length of the wrapped optimizer's, so that its rate and schedule apply.
    """
    options = _core.kfac_preset(preset)
    if options.graft == "adam" and not normalizes(optimizer):
        options.choose_graft("sgd")
    fields = {name: value for name, value in given.items() if value is not None}
    solver, graft, interval = fields.pop("solver", None), fields.pop("graft", None), fields.pop("interval", None)
    if solver is not None:
        options.choose_solver(solver)
    if options.solver == "adam" and not normalizes(optimizer):
        raise ConfigError(f"kfac: solver=adam over {type(optimizer).__name__}, which would add up its steps; wrap an "
                          "optimizer like Adam, such as AdamW")
    if graft is not None:
        options.choose_graft(graft)
    # Whoever gives intervals means them as they are.
    if interval is None and {"factor_interval", "inverse_interval"} & fields.keys():
        interval = "fixed"
    if interval == "fixed" and "factor_interval" in fields:
        fields.setdefault("inverse_interval", fields["factor_interval"])
    if interval is not None:
        options.choose_interval(interval)
    for name, value in fields.items():
        try:
            setattr(options, name, value)
        except TypeError:
            raise ConfigError(f"kfac: {name}={value!r} is of type {type(value).__name__}; pass one as the default, "
                              f"{getattr(options, name)!r}") from None
    if adam := adam_options(optimizer):
        options.set_graft_adam(*adam)
    return options
