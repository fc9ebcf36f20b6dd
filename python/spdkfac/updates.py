# SPDX-License-Identifier: Apache-2.0
"""Updates of parameters whose gradients already have the length of a step."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch

from .errors import ConfigError


def normalizes(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it divides gradients by their size, as Adam does, so that their length has no effect."""
    return any("betas" in group for group in optimizer.param_groups)


def adam_options(optimizer: torch.optim.Optimizer) -> tuple[float, float, float] | None:
    """Both decay rates and epsilon of the wrapped optimizer, if it is like Adam."""
    for group in optimizer.param_groups:
        betas = group.get("betas")
        if betas is not None and len(betas) >= 2:
            return float(betas[0]), float(betas[1]), float(group.get("eps", 1e-8))
    return None


class DirectUpdates:
    """Lets an optimizer step, but updates the parameters of layers by their gradients as they are.

    Rate and decoupled weight decay are those of the optimizer's groups, so schedules apply unchanged. A layer
    whose first parameter has no gradient was not preconditioned: what else it has takes the optimizer's step.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, layers: Iterable[list[torch.Tensor]]) -> None:
        if any(group.get("maximize") for group in optimizer.param_groups):
            raise ConfigError("kfac: steps of Adam's length over an optimizer with maximize=True; minimize the "
                              "negative loss instead")
        self._optimizer = optimizer
        self._layers = list(layers)
        self._adam = adam_options(optimizer)
        self._warned = False

    @torch.no_grad()
    def step(self) -> None:
        direct = {id(parameter) for layer in self._layers if layer[0].grad is not None for parameter in layer}
        hidden: list[tuple[torch.Tensor, torch.Tensor]] = []
        for group in self._optimizer.param_groups:
            own = [(parameter, parameter.grad) for parameter in group["params"]
                   if id(parameter) in direct and parameter.grad is not None]
            if own:
                self._warn_of_other_betas(group)
                _update([parameter for parameter, _ in own], [gradient for _, gradient in own], group)
            hidden += own
        for parameter, _ in hidden:
            parameter.grad = None
        try:
            self._optimizer.step()
        finally:
            for parameter, gradient in hidden:
                parameter.grad = gradient


    def _warn_of_other_betas(self, group: dict[str, Any]) -> None:
        """The moments behind the lengths of K-FAC's updates keep what they were made with."""
        if self._warned or self._adam is None:
            return
        now = (*group.get("betas", self._adam)[:2], group.get("eps", self._adam[2]))
        if all(isinstance(each, float) for each in now) and now != self._adam:
            self._warned = True
            warnings.warn(f"spdkfac: K-FAC's layers keep betas and eps {self._adam}, those of the first group when the "
                          f"optimizer was made; a group has {now} now (of schedulers that cycle momentum: pass them "
                          "cycle_momentum=False)", stacklevel=4)


def _update(parameters: list[torch.Tensor], gradients: list[torch.Tensor], group: dict[str, Any]) -> None:
    rate, decay = group["lr"], group.get("weight_decay", 0)
    if decay:
        torch._foreach_mul_(parameters, 1 - rate * decay)
    if isinstance(rate, torch.Tensor):
        torch._foreach_sub_(parameters, torch._foreach_mul(gradients, rate))
    else:
        torch._foreach_add_(parameters, gradients, alpha=-rate)
