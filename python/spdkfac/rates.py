# SPDX-License-Identifier: Apache-2.0
"""What `kl_clip` must know of the coming update."""

from __future__ import annotations

from typing import Any

import torch

from .errors import ConfigError
from .sharding import Shards, whole

TINY = 1e-30  # of a step whose rate is 0
_NUMBER = "_spdkfac_number"


def hold_number(rate: torch.Tensor, value: float) -> None:
    """Keeps the value of a rate that is on a GPU here, too, so that number_of need not wait."""
    setattr(rate, _NUMBER, value)


def number_of(rate: float | torch.Tensor) -> float:
    return float(getattr(rate, _NUMBER, rate))


def is_held(rate: float | torch.Tensor) -> bool:
    return hasattr(rate, _NUMBER)


def learning_rate(groups: list[dict[str, Any]], kl_clip: float) -> float:
    """The largest of the groups: what `kl_clip` must hold for.

    0 only where no gradient is, as in the step by which torch.distributed.checkpoint makes a state.
    """
    rates = [number_of(group["lr"]) for group in groups if group.get("lr") is not None]
    if not rates:  # as of an Adafactor that chooses its own
        if kl_clip != 0:
            raise ConfigError("kfac: kl_clip limits an update by its learning rate, and the wrapped optimizer has "
                              "none; pass kl_clip=0")
        return 1.0
    rate = max(rates)
    if rate == 0 and (any(is_held(group.get("lr", 0.0)) for group in groups) or _any_gradient(groups)):
        return TINY
    return rate


def _any_gradient(groups: list[dict[str, Any]]) -> bool:
    return any(bool(p.grad.any()) for group in groups for p in group["params"] if p.grad is not None)


def momentum_of(optimizer: torch.optim.Optimizer, shards: Shards, kl_clip: float,
                ) -> tuple[float, float, list[torch.Tensor], list[torch.Tensor]]:
    """What SGD's update takes of a gradient and of its buffers; `kl_clip` limits both. Without it buffers stay out."""
    taken, carried = 0.0, 0.0  # the largest of the groups
    parameters: list[torch.Tensor] = []
    buffers: list[torch.Tensor] = []
    for group in optimizer.param_groups:
        if "dampening" not in group:  # not of SGD
            continue
        momentum = float(group["momentum"])
        fresh = 1.0  # torch begins a buffer with the whole gradient
        for parameter in group["params"]:
            buffer = optimizer.state.get(parameter, {}).get("momentum_buffer")
            if momentum == 0 or buffer is None:
                continue
            if kl_clip != 0:
                parameters.append(shards.whole_of(parameter))
                buffers.append(whole(buffer))
            fresh = 1.0 - float(group["dampening"])
            carried = max(carried, momentum**2 if group["nesterov"] else momentum)
        taken = max(taken, 1.0 + momentum * fresh if group["nesterov"] else fresh)
    return taken or 1.0, carried, parameters, buffers
