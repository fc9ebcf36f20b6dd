# SPDX-License-Identifier: Apache-2.0
"""Learning rates as tensors on a GPU, which recorded steps read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .errors import ConfigError
from .rates import hold_number
from .together import parts_of


class DeviceRates:
    """The rates of an optimizer's groups, and the largest of them, on the device of its parameters.

    Between steps the groups keep the numbers that users and schedulers put there. Optimizers that need a number
    (other than SGD and those with `capturable`) keep it in steps, too, and it is part of `numbers`.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        self._device = device
        self._groups: list[tuple[dict[str, Any], dict[str, Any]]] = []  # with what they have in steps
        self._fixed: list[dict[str, Any]] = []
        for part in parts_of(optimizer):
            for group in part.param_groups:
                in_steps = self._of_steps(part, group)
                if "lr" in in_steps:
                    self._groups.append((group, in_steps))
                elif group.get("lr") is not None:
                    self._fixed.append(group)
            # Its warning is for programs that never record.
            setattr(part, "_warned_capturable_if_run_uncaptured", True)
        self.largest = torch.zeros((), dtype=torch.float64, device=device)
        self._values: list[float] | None = None

    def _of_steps(self, part: torch.optim.Optimizer, group: dict[str, Any]) -> dict[str, Any]:
        if isinstance(part, torch.optim.SGD):
            # Its other kernels take the rate as an argument, for which the host would wait.
            return {"lr": self._tensor(torch.float32), "fused": True}
        if "capturable" not in group:
            return {}
        group["capturable"] = True
        for parameter in group["params"]:
            _move_counters(part.state.get(parameter, {}), parameter.device)
        first = group["params"][0].dtype if group["params"] else torch.float32
        fused = bool(group.get("fused"))
        return {"lr": self._tensor(torch.float32 if fused else torch.promote_types(first, torch.float32))}

    def _tensor(self, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros((), dtype=dtype, device=self._device)

    @property
    def numbers(self) -> list[float]:
        """Rates that a recording would keep."""
        return [float(group["lr"]) for group in self._fixed]

    def write(self) -> None:
        """What the groups have now, to the tensors, as work on the current stream."""
        values = [float(group["lr"]) for group, _ in self._groups]
        if values == self._values:
            return
        for (_, in_steps), value in zip(self._groups, values, strict=True):
            in_steps["lr"].fill_(value)
            hold_number(in_steps["lr"], value)
        self.largest.fill_(max([*values, *self.numbers], default=1.0))
        self._values = values

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The groups have the tensors meanwhile."""
        before = [{key: group[key] for key in in_steps} for group, in_steps in self._groups]
        versions = [in_steps["lr"]._version for _, in_steps in self._groups]
        for group, in_steps in self._groups:
            group.update(in_steps)
        try:
            yield
            for (group, in_steps), version in zip(self._groups, versions, strict=True):
                if group["lr"] is not in_steps["lr"] or group["lr"]._version != version:
                    raise ConfigError("kfac: the learning rate changed inside a recorded step, which replays would "
                                      "not repeat; call scheduler.step() after steps.run()")
        finally:
            for (group, _), values in zip(self._groups, before, strict=True):
                group.update(values)


def _move_counters(entry: dict[str, Any], device: torch.device) -> None:
    """Numbers of a state that optimizers with `capturable` keep on the device, such as Adam's `step`."""
    for key, value in entry.items():
        if isinstance(value, torch.Tensor) and value.dim() == 0 and value.device != device:
            entry[key] = value.to(device)
