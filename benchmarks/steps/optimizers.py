# SPDX-License-Identifier: Apache-2.0
"""The optimizers: SGD, AdamW, and K-FAC over the one of them that suits the model."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import nn

from mistake import Mistake

BASE = "base"  # the model's own one of first order
FIRST_ORDER = ("sgd", "adamw")
KINDS = (*FIRST_ORDER, "kfac", "kfac-pytorch")
PACKAGES = {"kfac": "spdkfac", "kfac-pytorch": "kfac.preconditioner"}
# So low that losses hardly fall: what is timed then has gradients of their usual size.
RATES = {"sgd": 1e-4, "adamw": 1e-5}
# nn.MultiheadAttention takes the weight of this layer without calling it, which kfac-pytorch does not see.
NEVER_CALLED = "NonDynamicallyQuantizableLinear"
OF_INTERVALS = ("interval", "factor_interval", "inverse_interval", "factor_update_steps", "inv_update_steps")


@dataclass(frozen=True)
class Intervals:
    """Steps between new factors, and between new inverses."""

    factors: int
    inverses: int

    def __str__(self) -> str:
        return f"{self.factors}/{self.inverses}"


@dataclass(frozen=True)
class Optimizer:
    """`options` go to the optimizer as they are, except `inner`: what K-FAC wraps (sgd, adamw)."""

    name: str
    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    intervals: Intervals | None = None  # only of K-FAC

    @property
    def first_order(self) -> bool:
        return self.kind in FIRST_ORDER

    @property
    def hooks(self) -> bool:
        """Whether it adds hooks to modules."""
        return self.kind == "kfac-pytorch"

    @property
    def title(self) -> str:
        return f"{self.name} {self.intervals}" if self.intervals else self.name


class Stepper(Protocol):
    def zero_grad(self) -> None: ...
    def step(self) -> Any: ...


class Preconditioned:
    """kfac-pytorch changes gradients before an optimizer's step."""

    def __init__(self, preconditioner: Any, optimizer: torch.optim.Optimizer) -> None:
        self.preconditioner, self.optimizer = preconditioner, optimizer

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()

    def step(self) -> None:
        self.preconditioner.step()
        self.optimizer.step()


def intervals_of(text: str) -> Intervals:
    try:
        factors, inverses = map(int, text.split("/"))
    except ValueError:
        raise Mistake(f"--intervals: is no pair of numbers ({text}); write 10/100: new factors every 10 steps, new "
                      "inverses every 100") from None
    if factors < 1 or inverses < factors or inverses % factors:
        raise Mistake(f"--intervals: the second is no multiple of the first ({text}); give such as 10/100")
    return Intervals(factors, inverses)


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
                      'write {"solver": "ekfac"}') from error
    if not isinstance(options, dict):
        raise Mistake(f"--variant: the options of {name} must be an object ({options_text}); "
                      'write {"solver": "ekfac"}')
    if options.get("inner", "sgd") not in FIRST_ORDER:
        raise Mistake(f"--variant: inner of {name} is unknown ({options['inner']}); give sgd or adamw")
    for key in OF_INTERVALS:
        if key in options:
            raise Mistake(f"--variant: {key} of {name} is no option here ({options[key]}); give --intervals")
    return Optimizer(name, kind, options)


def chosen(names: str, variants: Sequence[str], intervals: str) -> list[Optimizer]:
    """Those asked for, variants last; K-FAC once for each pair of intervals."""
    own = {variant.name: variant for variant in map(variant_of, variants)}
    pairs = [intervals_of(text) for text in dict.fromkeys(intervals.split(","))]
    found: list[Optimizer] = []
    for name in dict.fromkeys([*filter(None, names.split(",")), *own]):
        if name not in own and name not in (BASE, *KINDS):
            raise Mistake(f"--optimizers: unknown optimizer ({name}); give one of {', '.join((BASE, *KINDS))}, "
                          "or define it with --variant")
        one = own.get(name, Optimizer(name, name))
        found += [one] if one.first_order or one.kind == BASE else [replace(one, intervals=each) for each in pairs]
    return found


def for_model(optimizers: Sequence[Optimizer], first_order: str) -> list[Optimizer]:
    """With the model's own optimizer in the place of `base`; nothing twice."""
    named = [Optimizer(first_order, first_order) if one.kind == BASE else one for one in optimizers]
    return list({one.title: one for one in named}.values())


def make(optimizer: Optimizer, model: nn.Module, first_order: str, precision: str) -> Stepper:
    options = dict(optimizer.options)
    if optimizer.first_order:
        return make_first_order(optimizer.kind, model, options)
    inner = options.pop("inner", first_order)
    wrapped = make_first_order(inner, model, {})
    assert optimizer.intervals is not None
    return (make_kfac if optimizer.kind == "kfac" else make_kfac_pytorch)(
        wrapped, model, optimizer.intervals, options, precision)


def make_first_order(kind: str, model: nn.Module, options: Mapping[str, Any]) -> torch.optim.Optimizer:
    if kind == "sgd":
        return torch.optim.SGD(model.parameters(), **{"lr": RATES[kind], "momentum": 0.9, **options})
    return torch.optim.AdamW(model.parameters(), **{"lr": RATES[kind], **options})


def make_kfac(inner: torch.optim.Optimizer, model: nn.Module, intervals: Intervals, options: Mapping[str, Any],
              precision: str) -> Stepper:
    import spdkfac
    own = {"interval": "fixed", "factor_interval": intervals.factors, "inverse_interval": intervals.inverses}
    if precision == "fp32":
        own["precision"] = "fp32"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "spdkfac: K-FAC covers")
        made: Stepper = spdkfac.SPDKFACOptimizer(inner, model, **{**own, **options})
    return made


def make_kfac_pytorch(inner: torch.optim.Optimizer, model: nn.Module, intervals: Intervals,
                      options: Mapping[str, Any], precision: str) -> Stepper:
    from kfac.preconditioner import KFACPreconditioner
    own = {"factor_update_steps": intervals.factors, "inv_update_steps": intervals.inverses,
           "compute_method": "inverse", "skip_layers": [NEVER_CALLED], "lr": inner.param_groups[0]["lr"], "loglevel": logging.NOTSET}
    return Preconditioned(KFACPreconditioner(model, **{**own, **options}), inner)
