# SPDX-License-Identifier: Apache-2.0
"""Two optimizers as one: for the layers that K-FAC covers, and for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any, Literal

import torch

from .errors import ConfigError

OtherName = Literal["adamw", "sgd"]
RATE = 1e-3  # of AdamW by name, as torch's own default


def with_others(optimizer: torch.optim.Optimizer, others: torch.optim.Optimizer | OtherName | None,
                covered: Iterable[torch.Tensor]) -> torch.optim.Optimizer:
    """`optimizer` alone, or with `others` for the parameters that are not covered."""
    own = {id(parameter) for parameter in covered}
    if not any(id(parameter) in own for group in optimizer.param_groups for parameter in group["params"]):
        raise ConfigError("kfac: the wrapped optimizer has no parameter of a covered layer; make it from the "
                          "parameters of this model, after anything that replaces them")
    if others is None:
        return optimizer
    if isinstance(others, torch.optim.Optimizer):
        _require_uncovered(others, own)
        elsewhere = {id(p) for group in others.param_groups for p in group["params"]}
        _take(optimizer, lambda parameter: id(parameter) in elsewhere)
        return Together(optimizer, others)
    if others not in ("adamw", "sgd"):
        raise ConfigError(f"kfac: others={others}; pass an optimizer, or one of adamw, sgd")
    rest = _take(optimizer, lambda parameter: id(parameter) not in own)
    if not rest:
        return optimizer
    if others == "adamw":
        return Together(optimizer, torch.optim.AdamW(rest, lr=RATE))
    first = optimizer.param_groups[0]
    return Together(optimizer, torch.optim.SGD(rest, lr=float(first["lr"]), momentum=0.9))


def _require_uncovered(others: torch.optim.Optimizer, own: set[int]) -> None:
    if any(id(p) in own for group in others.param_groups for p in group["params"]):
        raise ConfigError("kfac: others has parameters of layers that K-FAC covers; give it the rest only, or "
                          "leave these layers out with skip_layers")


def _take(optimizer: torch.optim.Optimizer, wanted: Callable[[torch.Tensor], bool]) -> list[torch.Tensor]:
    """Removes the parameters that are wanted from the groups of an optimizer."""
    taken: list[torch.Tensor] = []
    for group in optimizer.param_groups:
        taken += [parameter for parameter in group["params"] if wanted(parameter)]
        group["params"] = [parameter for parameter in group["params"] if not wanted(parameter)]
    for parameter in taken:
        optimizer.state.pop(parameter, None)
    optimizer.param_groups[:] = [group for group in optimizer.param_groups if group["params"]]
    return taken


class Together(torch.optim.Optimizer):
    """Steps both; groups and states are those of both, the wrapped optimizer's first."""

    def __init__(self, first: torch.optim.Optimizer, second: torch.optim.Optimizer) -> None:
        self.parts = (first, second)
        self.__setstate__({})

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return [group for part in self.parts for group in part.param_groups]

    @property
    def state(self) -> Any:  # type: ignore[override]
        return JointState([part.state for part in self.parts])

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        return self.parts[0].defaults

    def zero_grad(self, set_to_none: bool = True) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.parts[0].add_param_group(param_group)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        loss = closure() if closure is not None else None
        for part in self.parts:
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        states = [part.state_dict() for part in self.parts]
        count = _parameters(self.parts[0])
        state = {**states[0]["state"],
                 **{count + number: entry for number, entry in states[1]["state"].items()}}
        groups = states[0]["param_groups"] + [
            {**group, "params": [count + number for number in group["params"]]}
            for group in states[1]["param_groups"]]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        groups = state_dict["param_groups"]
        first = len(self.parts[0].param_groups)
        for part, own in zip(self.parts, (groups[:first], groups[first:]), strict=True):
            keys = {key for group in own for key in group["params"]}
            part.load_state_dict({
                "state": {key: entry for key, entry in state_dict["state"].items() if key in keys},
                "param_groups": own})


def parts_of(optimizer: torch.optim.Optimizer) -> tuple[torch.optim.Optimizer, ...]:
    return optimizer.parts if isinstance(optimizer, Together) else (optimizer,)


def _parameters(optimizer: torch.optim.Optimizer) -> int:
    return sum(len(group["params"]) for group in optimizer.param_groups)


class JointState(MutableMapping[torch.Tensor, Any]):
    """The states of several optimizers; what is new goes to the first."""

    def __init__(self, states: list[MutableMapping[torch.Tensor, Any]]) -> None:
        self._states = states

    def _of(self, parameter: torch.Tensor) -> MutableMapping[torch.Tensor, Any]:
        return next((state for state in self._states if parameter in state), self._states[0])

    def __getitem__(self, parameter: torch.Tensor) -> Any:
        return self._of(parameter)[parameter]

    def __setitem__(self, parameter: torch.Tensor, entry: Any) -> None:
        self._of(parameter)[parameter] = entry

    def __delitem__(self, parameter: torch.Tensor) -> None:
        del self._of(parameter)[parameter]

    # Mapping's own would ask for the entry, which a defaultdict then makes.
    def __contains__(self, parameter: object) -> bool:
        return any(parameter in state for state in self._states)

    def get(self, parameter: torch.Tensor, default: Any = None) -> Any:
        return self[parameter] if parameter in self else default

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (parameter for state in self._states for parameter in state)

    def __len__(self) -> int:
        return sum(len(state) for state in self._states)
