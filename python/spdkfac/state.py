# SPDX-License-Identifier: Apache-2.0
"""The state of K-FAC inside torch's layout of an optimizer's state: tensors by parameter.

The entry of each covered weight has the wrapped optimizer's values and, with names that begin with
`kfac_`, those of K-FAC; every other parameter has the number of steps. So torch.save and
torch.distributed.checkpoint keep it as they keep any other optimizer's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from itertools import chain
from typing import Any

import torch

from . import _core
from .errors import ConfigError
from .layers import CoveredLayers
from .together import parts_of

PREFIX = "kfac_"
OPTIONS = "kfac_options"    # the digest of the options, as bytes
COUNTERS = "kfac_counters"  # in the order of COUNTER_NAMES
STEPS = "kfac_steps"        # of each parameter, so that all have an entry; all the same
OPTIONS_BYTES = 1024        # fixed, so that a checkpoint of other options has the same shapes
COUNTER_NAMES = tuple(_core.counter_names())  # the first is `steps`
REMEDY = "load a state that SPDKFACOptimizer.state_dict() returned"
Entries = dict[int, dict[str, Any]]


class Places:
    """Where a layer's tensors are: in the entry of its weight, else of its bias, else of the first
    covered parameter of the groups. Where several layers have one entry, their names are in the keys."""

    def __init__(self, layers: CoveredLayers, groups: list[dict[str, Any]]) -> None:
        numbers = {id(parameter): number for number, parameter in
                   enumerate(parameter for group in groups for parameter in group["params"])}
        found: dict[str, int | None] = {}
        for layer in layers.tracked:
            own = (numbers.get(id(one)) for one in layer.parameters)
            found[layer.name] = next((number for number in own if number is not None), None)
        self.count = len(numbers)
        self._found = found
        self._own = [number for number in found.values() if number is not None]
        self._shared = {number for number in self._own if self._own.count(number) > 1}

    def __bool__(self) -> bool:
        return bool(self._own)

    @property
    def first(self) -> int:
        if not self._own:
            raise ConfigError("kfac: no parameter of a covered layer is in the optimizer's groups, so "
                              "its state has no place; make the optimizer with these parameters")
        return self._own[0]

    def of(self, layer: str, key: str) -> tuple[int, str]:
        number = self._found[layer]
        if number is None or number in self._shared:
            return self.first if number is None else number, f"{PREFIX}{key}@{layer}"
        return number, PREFIX + key

    def layers(self) -> list[str]:
        return list(self._found)


def entries_of(state: tuple[str, dict[str, int], dict[str, torch.Tensor]],
               places: Places) -> Entries:
    """The entries of `Preconditioner.state()` by the number of a parameter."""
    options, counters, tensors = state
    entries: Entries = {}
    for full, tensor in tensors.items():
        layer, _, key = full.rpartition(".")
        number, name = places.of(layer, key)
        entries.setdefault(number, {})[name] = tensor
    text = options.encode()
    if len(text) > OPTIONS_BYTES:
        raise ConfigError(f"kfac: the options take {len(text)} bytes, more than {OPTIONS_BYTES}")
    with torch.device("cpu"):
        entries.setdefault(places.first, {}).update({
            OPTIONS: torch.tensor(list(text.ljust(OPTIONS_BYTES, b"\0")), dtype=torch.uint8),
            COUNTERS: torch.tensor([counters[name] for name in COUNTER_NAMES], dtype=torch.int64),
        })
        for number in range(places.count):
            entries.setdefault(number, {})[STEPS] = torch.tensor(counters["steps"])
    return entries


class StateView(MutableMapping[torch.Tensor, Any]):
    """The wrapped optimizer's state, whose entries also list the names of K-FAC's tensors: that is
    how torch.distributed.checkpoint finds them in a flat state. Their values are in state_dict()."""

    def __init__(self, state: MutableMapping[torch.Tensor, Any], names: Iterable[str], places: Places,
                 groups: list[dict[str, Any]]) -> None:
        self._state = state
        self._names: dict[int, list[str]] = {}
        parameters = [parameter for group in groups for parameter in group["params"]]
        for full in names:
            layer, _, key = full.rpartition(".")
            number, name = places.of(layer, key)
            self._names.setdefault(id(parameters[number]), []).append(name)
        self._names.setdefault(id(parameters[places.first]), []).extend((OPTIONS, COUNTERS))
        for parameter in parameters:
            self._names.setdefault(id(parameter), []).append(STEPS)

    def __getitem__(self, parameter: torch.Tensor) -> MutableMapping[str, Any]:
        return EntryView(self._state[parameter], self._names.get(id(parameter), []))

    def __setitem__(self, parameter: torch.Tensor, entry: Any) -> None:
        self._state[parameter] = entry

    def __delitem__(self, parameter: torch.Tensor) -> None:
        del self._state[parameter]

    def __contains__(self, parameter: object) -> bool:
        return parameter in self._state

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(self._state)

    def __len__(self) -> int:
        return len(self._state)


class EntryView(MutableMapping[str, Any]):
    """One of its entries. The names are only among the keys: whoever walks over values gets what is there."""

    def __init__(self, entry: MutableMapping[str, Any], names: list[str]) -> None:
        self._entry = entry
        self._names = names

    def __getitem__(self, name: str) -> Any:
        return self._entry[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._entry[name] = value

    def __delitem__(self, name: str) -> None:
        del self._entry[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entry

    def __iter__(self) -> Iterator[str]:
        return chain(self._entry, self._names)

    def __len__(self) -> int:
        return len(self._entry) + len(self._names)

    def items(self) -> Any:
        return self._entry.items()

    def values(self) -> Any:
        return self._entry.values()


def split(state_dict: Mapping[str, Any], *, of_torch: bool = True) -> tuple[dict[str, Any], Entries]:
    """The wrapped optimizer's part, and K-FAC's entries. What is no such state is a ConfigError.

    `of_torch`: the wrapped optimizer is one of torch, which has no further entries."""
    if not isinstance(state_dict, Mapping):
        raise ConfigError(f"kfac: the state is of type {type(state_dict).__name__}; {REMEDY}")
    if isinstance(state_dict.get("kfac"), torch.Tensor):
        raise ConfigError("kfac: the state is of an earlier version, which kept K-FAC's part as bytes "
                          "that could run code; finish with that version, or start again")
    for key in ("state", "param_groups"):
        if key not in state_dict:
            raise ConfigError(f"kfac: the state has no entry `{key}`; {REMEDY}")
    further = {key: value for key, value in state_dict.items() if key not in ("state", "param_groups")}
    if of_torch and (unknown := [_shown(key) for key in further]):
        raise ConfigError(f"kfac: the state has unknown entries ({', '.join(unknown)}); {REMEDY}")
    entries = state_dict["state"]
    if not isinstance(entries, Mapping):
        raise ConfigError(f"kfac: `state` is of type {type(entries).__name__}; {REMEDY}")
    own: Entries = {}
    wrapped: dict[Any, dict[str, Any]] = {}
    for number, entry in entries.items():
        if not isinstance(entry, Mapping) or not all(isinstance(key, str) for key in entry):
            raise ConfigError(f"kfac: the state of parameter {_shown(number)} is no dict of values; {REMEDY}")
        # Of a flat state torch.distributed.checkpoint makes {} for what another process keeps.
        mine = {key: value for key, value in entry.items()
                if key.startswith(PREFIX) and not (isinstance(value, dict) and not value)}
        rest = {key: value for key, value in entry.items() if not key.startswith(PREFIX)}
        if mine:
            own[number] = mine
        if rest or not mine:
            wrapped[number] = rest
    if not own:
        raise ConfigError("kfac: the state has nothing of K-FAC; load a state of a plain optimizer "
                          "with optimizer.optimizer.load_state_dict()")
    return {**further, "state": wrapped, "param_groups": state_dict["param_groups"]}, own


def kfac_part(entries: Entries, numbers: Mapping[Any, int], places: Places,
              ) -> tuple[str, dict[str, int], dict[str, torch.Tensor]]:
    """The reverse of entries_of(). `numbers`: those of the keys, which may be names."""
    by_number = {}
    for key, entry in entries.items():
        if key not in numbers:
            raise ConfigError(f"kfac: the state has an entry of parameter {_shown(key)}, which no group has; "
                              f"{REMEDY}")
        by_number[numbers[key]] = dict(entry)
    for number, entry in by_number.items():
        for name, value in entry.items():
            if type(value) is not torch.Tensor or value.layout != torch.strided or value.is_meta:
                raise ConfigError(f"kfac: {name} of parameter {number} is no plain tensor; {REMEDY}")
    first = by_number.get(places.first, {})
    options = first.pop(OPTIONS, None)
    counters = first.pop(COUNTERS, None)
    if options is None or options.dtype != torch.uint8 or options.dim() != 1:
        raise ConfigError(f"kfac: the state has no {OPTIONS} in its first entry; {REMEDY}")
    if counters is None or counters.dtype != torch.int64 or counters.shape != (len(COUNTER_NAMES),):
        raise ConfigError(f"kfac: the state has no {COUNTERS} in its first entry; {REMEDY}")
    for number in range(places.count):
        steps = by_number.get(number, {}).pop(STEPS, None)
        if steps is None or steps.dtype != torch.int64 or steps.dim() != 0 or (
                int(steps) != int(counters[0])):
            raise ConfigError(f"kfac: parameter {number} has no entry of step {int(counters[0])}; "
                              f"{REMEDY}")
    tensors = {}
    names = {place: (layer, key) for layer in places.layers()
             for key in _keys(by_number) for place in [places.of(layer, key)]}
    for number, entry in by_number.items():
        for name, value in entry.items():
            if (number, name) not in names:
                raise ConfigError(f"kfac: parameter {number} has {name}, but no layer for it; {REMEDY}")
            layer, own = names[(number, name)]
            tensors[f"{layer}.{own}"] = value.detach().cpu()
    text = bytes(options.cpu().tolist()).rstrip(b"\0").decode(errors="replace")
    return text, dict(zip(COUNTER_NAMES, counters.tolist(), strict=True)), tensors


def _keys(entries: Entries) -> list[str]:
    keys = {key[len(PREFIX):].partition("@")[0] for entry in entries.values() for key in entry}
    return sorted(keys)


def check_wrapped(state: Mapping[str, Any], optimizer: torch.optim.Optimizer) -> dict[Any, int]:
    """Checks the wrapped optimizer's part as far as torch does not, before anything is changed.

    Returns the number of the parameter of each key, which torch matches by place.
    """
    groups = state["param_groups"]
    if not isinstance(groups, (list, tuple)) or not all(isinstance(each, Mapping) for each in groups):
        raise ConfigError(f"kfac: `param_groups` is no list of groups; {REMEDY}")
    here = optimizer.param_groups
    if len(groups) != len(here):
        raise ConfigError(f"kfac: the state has {len(groups)} parameter groups, the optimizer "
                          f"{len(here)}; {REMEDY}")
    parameters: dict[Any, torch.Tensor] = {}
    numbers: dict[Any, int] = {}
    group_of: dict[Any, int] = {}
    parts = [part for part in parts_of(optimizer) for _ in part.param_groups]
    for number, (group, own, part) in enumerate(zip(groups, here, parts, strict=True)):
        keys = group.get("params")
        if not isinstance(keys, (list, tuple)) or len(keys) != len(own["params"]):
            raise ConfigError("kfac: the state has a parameter group of another size than the "
                              f"optimizer's; {REMEDY}")
        for key, parameter in zip(keys, own["params"], strict=True):
            if not isinstance(key, (int, str)) or isinstance(key, bool) or key in parameters:
                raise ConfigError(f"kfac: the groups name parameter {_shown(key)} twice or wrongly; "
                                  f"{REMEDY}")
            numbers[key] = len(parameters)
            group_of[key] = number
            parameters[key] = parameter
        for name, value in part.defaults.items():
            if not _same_kind(value, group.get(name, _default(value))):
                raise ConfigError(f"kfac: {name} of a parameter group is {_shown(group.get(name))}; "
                                  f"{REMEDY}")
    known = [_of_torch(part) for part in parts]
    kinds: dict[tuple[int, int], frozenset[tuple[str, bool]]] = {}  # Adafactor's depend on the dimensions
    for key, entry in state["state"].items():
        if key not in parameters:
            raise ConfigError(f"kfac: the state has an entry of parameter {_shown(key)}, which no group has; "
                              f"{REMEDY}")
        kind = frozenset((name, isinstance(value, torch.Tensor)) for name, value in entry.items())
        own_known, dimensions = known[group_of[key]], parameters[key].dim()
        if own_known and kinds.setdefault((group_of[key], dimensions), kind) != kind:
            raise ConfigError("kfac: the entries of the wrapped optimizer differ in their fields; "
                              f"{REMEDY}")
        _check_entry(key, entry, parameters[key], optimizer.state.get(parameters[key], {}), own_known)
    return numbers


def _of_torch(optimizer: torch.optim.Optimizer) -> bool:
    """Others may keep what they like."""
    return type(optimizer).__module__.startswith("torch.optim")


def _check_entry(key: Any, entry: Mapping[str, Any], parameter: torch.Tensor,
                 present: Mapping[str, Any], known: bool) -> None:
    """`known`: of an optimizer of torch. What others keep is their own affair, unless it is there to compare."""
    if present and present.keys() != entry.keys():
        raise ConfigError(f"kfac: the state of parameter {key} has {sorted(entry)}, the optimizer "
                          f"{sorted(present)}; {REMEDY}")
    for name, value in entry.items():
        shape = getattr(present.get(name), "shape", None)
        if isinstance(value, torch.Tensor):
            fits = value.shape == shape if shape is not None else (
                not known or value.numel() == 1 or _spreads(value, parameter))
            if fits and value.layout == torch.strided and not value.is_meta:
                continue
        elif shape is None and (not known or value is None or isinstance(value, (int, float))):
            continue
        raise ConfigError(f"kfac: {name} of parameter {key} does not fit the parameter; {REMEDY}")


def _spreads(value: torch.Tensor, parameter: torch.Tensor) -> bool:
    """Whether it has the parameter's shape, or means over some dimensions, as Adafactor keeps them."""
    return value.dim() == parameter.dim() and all(
        here in (1, there) for here, there in zip(value.shape, parameter.shape, strict=True))


def _default(value: Any) -> Any:
    """Later versions of torch add switches to the groups; numbers must be there."""
    return value if value is None or isinstance(value, bool) else ...


def _same_kind(here: Any, value: Any) -> bool:
    if isinstance(here, (tuple, list)):
        return (isinstance(value, (tuple, list)) and len(value) == len(here)
                and all(_same_kind(*pair) for pair in zip(here, value, strict=True)))
    if isinstance(here, bool):
        return isinstance(value, bool)
    if here is None or isinstance(here, str):
        return value is None or isinstance(value, (bool, int, float, str))
    if isinstance(here, (int, float, torch.Tensor)):
        if isinstance(value, torch.Tensor):
            return value.numel() == 1 and not value.is_meta and _is_amount(float(value), float(here))
        return isinstance(value, (int, float)) and _is_amount(value, float(here))
    return True


def _shown(value: object) -> str:
    """In one short line."""
    return " ".join(f"{value!r}".split())[:80]


def _is_amount(value: float, here: float) -> bool:
    """Rates, factors and the like are not negative, but exponents and coefficients may be by default."""
    return math.isfinite(value) and (value >= 0 or here < 0)


def load(state_dict: Mapping[str, Any], optimizer: torch.optim.Optimizer, kfac: _core.Preconditioner,
         layers: CoveredLayers) -> None:
    """Loads both parts, or raises and leaves everything as it is.

    Processes load together: what one of them refuses is an error on all.
    """
    before = [(part, part.state, part.param_groups) for part in parts_of(optimizer)]
    refused = True  # by this process, before it has met the others
    try:
        own = _load_wrapped(state_dict, optimizer, layers)
        refused = False
        kfac.load(*own)
    except BaseException as error:
        for part, state, groups in before:
            part.state, part.param_groups = state, groups
        if refused and isinstance(error, Exception):
            kfac.load_failed()
        raise


def _load_wrapped(state_dict: Mapping[str, Any], optimizer: torch.optim.Optimizer,
                  layers: CoveredLayers) -> tuple[str, dict[str, int], dict[str, torch.Tensor]]:
    """Loads the wrapped optimizer's part; returns K-FAC's, checked as far as it is here."""
    wrapped, entries = split(state_dict, of_torch=all(_of_torch(part) for part in parts_of(optimizer)))
    numbers = check_wrapped(wrapped, optimizer)
    own = kfac_part(entries, numbers, Places(layers, optimizer.param_groups))
    try:
        optimizer.load_state_dict(wrapped)
    except Exception as error:
        raise ConfigError(f"kfac: the wrapped optimizer refuses the state ({_shown(error)}); "
                          f"{REMEDY}") from error
    return own
