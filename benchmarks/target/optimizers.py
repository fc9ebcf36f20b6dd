# SPDX-License-Identifier: Apache-2.0
"""The optimizers as values: what they are made of and where their settings are searched."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import extras
from mistake import Mistake
from schedule import SCHEDULES
from spread import Choices, Dimension, LogRange, Setting, Space
from tasks import Task

FIRST_ORDER = ("sgd", "adamw")
OWN_KEYS = ("inner", "rates", "schedule", "search")  # of the options; all others go to the optimizer
RATES = ("sgd", "adam", "kfac")


@dataclass(frozen=True)
class Optimizer:
    """`options` go to the optimizer as they are, except:

    inner: what K-FAC wraps (sgd, adamw); rates: whose range of learning rates is searched (sgd, adam, kfac);
    schedule: cosine or linear; search: more to search, each a list of choices or a text "low..high".
    An option that is given is not searched.
    """

    name: str
    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def first_order(self) -> bool:
        return self.kind in FIRST_ORDER

    @property
    def grafted(self) -> bool:
        """Whether updates have the length of those of what K-FAC wraps, or of another method."""
        unless_said = "none" if self.options.get("preset") == "paper" else "inner"
        return bool(self.options.get("graft", unless_said) != "none")

    @property
    def relative(self) -> bool:
        """Whether damping is relative to the factors."""
        unless_said = "pi" if self.options.get("preset") == "paper" else "relative"
        return bool(self.options.get("damping_mode", unless_said) == "relative")

    @property
    def passed(self) -> dict[str, Any]:
        return {name: value for name, value in self.options.items() if name not in OWN_KEYS}


# A variant of K-FAC is one line here, or `--variant` on the command line.
OPTIMIZERS: dict[str, Optimizer] = {optimizer.name: optimizer for optimizer in (
    Optimizer("sgd", "sgd", {"momentum": 0.9, "nesterov": True}),
    Optimizer("adamw", "adamw"),
    Optimizer("kfac", "kfac", {"inner": "adamw"}),
    Optimizer("kfac-adam", "kfac", {"inner": "adamw", "solver": "adam"}),
    Optimizer("kfac-sgd", "kfac", {"inner": "sgd"}),
    Optimizer("kfac-paper", "kfac", {"inner": "sgd", "preset": "paper", "factor_interval": 5,
                                     "inverse_interval": 10}),
    Optimizer("shampoo", "shampoo"),
    Optimizer("soap", "soap"),
)}
KINDS = ("sgd", "adamw", "kfac", "shampoo", "soap")

DECAYS = {"sgd": Choices((0.0, 1e-4, 5e-4, 1e-3)), "adam": Choices((0.0, 1e-2, 1e-1)),
          "kfac": Choices((0.0, 1e-3, 1e-2))}
RELATIVE_DAMPINGS = LogRange(3e-4, 3e-1)


def rates_of(optimizer: Optimizer) -> str:
    """Whose learning rates suit: those of the step whose length it has."""
    given: str | None = optimizer.options.get("rates")
    if given:
        return given
    if optimizer.kind != "kfac":
        return "sgd" if optimizer.kind == "sgd" else "adam"
    inner = optimizer.options.get("inner", "adamw")
    if not optimizer.grafted:
        return "kfac" if inner == "sgd" else "adam"
    return "sgd" if optimizer.options.get("graft", inner) == "sgd" else "adam"


def space_of(optimizer: Optimizer, task: Task) -> Space:
    """What is searched, the learning rate first."""
    rates = rates_of(optimizer)
    space: dict[str, Dimension] = {"lr": LogRange(*getattr(task.rates, rates))}
    if task.decays:
        space["weight_decay"] = DECAYS[rates]
    if optimizer.kind == "kfac":
        space["damping"] = RELATIVE_DAMPINGS if optimizer.relative else LogRange(*task.damping)
    for name, values in optimizer.options.get("search", {}).items():
        space[name] = dimension_of(name, values)
    return {name: values for name, values in space.items() if name not in optimizer.passed}


def dimension_of(name: str, values: Any) -> Dimension:
    if isinstance(values, list) and values:
        return Choices(tuple(values))
    try:
        low, high = (float(end) for end in values.split(".."))
        if 0 < low <= high:
            return LogRange(low, high)
    except (AttributeError, ValueError):
        pass
    raise Mistake(f"--variant: search.{name} is no list and no range ({values}); "
                  'write [1, 2] or "0.001..0.1"')


def variant_of(text: str) -> Optimizer:
    """The optimizer of `name=kind:{options}`."""
    name, equals, rest = text.partition("=")
    kind, _, options_text = rest.partition(":")
    if not equals or not name or kind not in KINDS:
        raise Mistake(f"--variant: must read name=kind:{{…}} ({text}); kind is one of {', '.join(KINDS)}")
    try:
        options = json.loads(options_text or "{}")
    except json.JSONDecodeError as error:
        raise Mistake(f"--variant: the options of {name} are no JSON ({error.msg} in {options_text}); "
                      'write {"damping": 0.01}') from error
    if not isinstance(options, dict) or not isinstance(options.get("search", {}), dict):
        raise Mistake(f"--variant: the options of {name}, and search in them, must be objects "
                      f"({options_text}); write {{\"damping\": 0.01}}")
    for key, known in (("rates", RATES), ("schedule", tuple(SCHEDULES)), ("inner", FIRST_ORDER)):
        if options.get(key, known[0]) not in known:
            raise Mistake(f"--variant: {key} of {name} is unknown ({options[key]}); "
                          f"give one of {', '.join(known)}")
    for key, values in options.get("search", {}).items():
        dimension_of(key, values)
    return Optimizer(name, kind, options)


def optimizer_named(name: str) -> Optimizer:
    if name not in OPTIMIZERS:
        raise Mistake(f"--optimizers: unknown optimizer ({name}); give one of {', '.join(OPTIMIZERS)}, "
                      "or define it with --variant")
    return OPTIMIZERS[name]


def make(optimizer: Optimizer, setting: Setting, model: nn.Module, task: Task) -> torch.optim.Optimizer:
    options = {**optimizer.passed, **setting}
    options.pop("schedule", None)
    rate = options.pop("lr")
    groups = decay_groups(model, options.pop("weight_decay", 0.0))
    try:
        if optimizer.kind == "sgd":
            return torch.optim.SGD(groups, lr=rate, **options)
        if optimizer.kind == "adamw":
            return torch.optim.AdamW(groups, lr=rate, **options)
        if optimizer.kind == "kfac":
            clip = {} if optimizer.grafted else {"kl_clip": task.kl_clip}
            return make_kfac(optimizer, rate, groups, {**clip, **options}, model)
        return extras.make(optimizer.kind, groups, rate, options)
    except (TypeError, ValueError) as error:
        raise Mistake(f"{optimizer.name}: its options are refused ({error}); change the variant") from error


def decay_groups(model: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Weights decay; biases, norms and other vectors do not."""
    matrices = [p for p in model.parameters() if p.requires_grad and p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.requires_grad and p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def make_kfac(optimizer: Optimizer, rate: float, groups: list[dict[str, Any]], options: dict[str, Any],
              model: nn.Module) -> torch.optim.Optimizer:
    try:
        import spdkfac
    except ImportError as error:
        raise Mistake(f"{optimizer.name}: spdkfac cannot be imported ({error}); pip install . , or set "
                      "PYTHONPATH=build/dev/python") from error
    inner: torch.optim.Optimizer
    if optimizer.options.get("inner", "adamw") == "sgd":
        inner = torch.optim.SGD(groups, lr=rate, momentum=options.pop("momentum", 0.9), nesterov=True)
    else:
        inner = torch.optim.AdamW(groups, lr=rate)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "spdkfac: K-FAC covers")  # which layers it leaves out is known
        wrapped: torch.optim.Optimizer = spdkfac.SPDKFACOptimizer(inner, model, **options)
    return wrapped
