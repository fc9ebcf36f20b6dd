# SPDX-License-Identifier: Apache-2.0
"""What changes while training: options that a user sets, and damping that follows the loss."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from . import _core
from .errors import ConfigError


class ChangeableOptions:
    """Options that may be set while training, between steps. All ranks set the same values."""

    _kfac: _core.Preconditioner

    @property
    def damping(self) -> float:
        """γ, as the next inverses use it."""
        return self._kfac.options.damping

    @damping.setter
    def damping(self, value: float) -> None:
        self._kfac.change(damping=_number("damping", value))

    @property
    def kl_clip(self) -> float:
        """The limit of an update; 0: none."""
        return self._kfac.options.kl_clip

    @kl_clip.setter
    def kl_clip(self, value: float) -> None:
        self._kfac.change(kl_clip=_number("kl_clip", value))

    @property
    def factor_interval(self) -> int:
        """Steps between new factors, or the most."""
        return self._kfac.options.factor_interval

    @factor_interval.setter
    def factor_interval(self, value: int) -> None:
        self.set_intervals(value, self.inverse_interval)

    @property
    def inverse_interval(self) -> int:
        """Steps between new inverses, or the most."""
        return self._kfac.options.inverse_interval

    @inverse_interval.setter
    def inverse_interval(self, value: int) -> None:
        self.set_intervals(self.factor_interval, value)

    def set_intervals(self, factors: int, inverses: int) -> None:
        """Both at once: with several ranks the second must be a multiple of the first."""
        self._kfac.change(factor_interval=_whole("factor_interval", factors),
                          inverse_interval=_whole("inverse_interval", inverses))


def _number(name: str, value: Any) -> float:
    if isinstance(value, (str, bool)) or not hasattr(value, "__float__"):
        raise ConfigError(f"kfac: {name}={value!r} is of type {type(value).__name__}; set a number")
    return float(value)


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ConfigError(f"kfac: {name}={value!r} is of type {type(value).__name__}; set a number of steps")
    return operator.index(value)


class SecondLook:
    """Evaluates a closure again after the update, on the same batch and with the same random numbers.

    Gradients, buffers (batch statistics) and random numbers are then as they were.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._devices: list[torch.device] = []
        self._random: list[torch.Tensor] = []

    def remember(self, device: torch.device) -> None:
        """Before the closure is called."""
        self._devices = [device] if device.type == "cuda" else []
        self._random = [torch.get_rng_state(), *(torch.cuda.get_rng_state(d) for d in self._devices)]

    def judge(self, closure: Callable[[], Any], loss: Any, kfac: _core.Preconditioner) -> None:
        """After the update; `loss` is what the closure returned before."""
        if loss is None:
            raise ConfigError("kfac: lm_damping needs a closure that returns the loss")
        # They are put back before the prediction is made from them.
        gradients = [(p, p.grad) for p in self._model.parameters()]
        buffers = [(b, b.clone()) for b in self._model.buffers()]
        for parameter, _ in gradients:
            parameter.grad = None
        try:
            with torch.random.fork_rng(self._devices), torch.enable_grad():
                torch.set_rng_state(self._random[0])
                for device, state in zip(self._devices, self._random[1:], strict=True):
                    torch.cuda.set_rng_state(state, device)
                after = closure()
            if after is None:
                raise ConfigError("kfac: lm_damping needs a closure that returns the loss")
        finally:
            for parameter, gradient in gradients:
                parameter.grad = gradient
            for buffer, value in buffers:
                buffer.copy_(value)
            kfac.discard()
        kfac.judge_damping(float(loss), float(after))
