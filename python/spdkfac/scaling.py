# SPDX-License-Identifier: Apache-2.0
"""The scale of the loss in mixed precision."""

from __future__ import annotations

import sys

import torch
from torch.amp.grad_scaler import GradScaler


class LossScale:
    """What a GradScaler multiplies the loss by, asked once for each step and without a wait; 1 without one."""

    def __init__(self, scaler: GradScaler | None, weight: torch.Tensor) -> None:
        self.scaler = scaler
        self._weight = weight  # it may move to a GPU before the first step
        self._value: torch.Tensor | None = None

    def __call__(self) -> torch.Tensor:
        if self._value is None:
            one = torch.ones((), device=self._weight.device)
            self._value = one if self.scaler is None else self.scaler.scale(one).detach().clone()
        return self._value

    def forget(self) -> None:
        """The next step may have another."""
        self._value = None


def unscale(gradients: list[torch.Tensor], scale: torch.Tensor) -> None:
    """Divides gradients, which may be on several devices."""
    inverse = scale.double().reciprocal().float()
    for gradient in gradients:
        gradient.mul_(inverse.to(gradient.device))


def calls_from_scaler() -> bool:
    """Whether a GradScaler that is switched on has called the function that asks."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        caller = frame.f_locals.get("self")
        if isinstance(caller, GradScaler) and caller.is_enabled():
            return True
    return False
