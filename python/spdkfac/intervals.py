# SPDX-License-Identifier: Apache-2.0
"""How often a forecast takes factors and inverses to be renewed."""

from __future__ import annotations

from typing import Literal

from . import _plan
from .errors import ConfigError

Interval = Literal["fixed", "auto", "adaptive"]
OVER_STEPS = 1000  # that growing intervals are averaged over, unless said


def intervals_of(factors: int | None, inverses: int | None, interval: Interval,
               over_steps: int, spread: bool) -> tuple[int, int, int, bool]:
    """Both intervals, the steps that growing ones are averaged over (0 for fixed ones), and `spread`."""
    if interval == "fixed":
        factors = 1 if factors is None else factors
        return factors, factors if inverses is None else inverses, 0, spread
    if interval not in ("auto", "adaptive"):
        raise ConfigError(f"simulate: interval={interval}; pass one of fixed, auto, adaptive")
    if spread and interval == "adaptive":
        raise ConfigError("simulate: spread_refreshes=True makes no sense with interval=adaptive, where each layer "
                          "has steps of its own; pass interval=auto or fixed, or leave it out")
    if over_steps < 1:
        raise ConfigError(f"simulate: over_steps={over_steps}; pass at least 1")
    most_factors, most_inverses = _plan.most_of_growing_intervals()
    if inverses is None:
        inverses = most_inverses if factors is None else factors
    return most_factors if factors is None else factors, inverses, over_steps, spread
