# SPDX-License-Identifier: Apache-2.0
"""Learning rates over a run, as shares of its highest; every schedule ends at zero with the run."""

from __future__ import annotations

import math
from collections.abc import Callable

from mistake import Mistake

WARM_UP = 0.05  # share of a run in which the rate rises


def cosine(done: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * done))


def linear(done: float) -> float:
    return 1 - done


SCHEDULES: dict[str, Callable[[float], float]] = {"cosine": cosine, "linear": linear}


def share(name: str, step: int, steps: int) -> float:
    """Of step 0 to steps − 1: above 0 always, 1 at the end of the warm-up."""
    if name not in SCHEDULES:
        raise Mistake(f"schedule: is unknown ({name}); give one of {', '.join(SCHEDULES)}")
    warm = max(1, round(WARM_UP * steps))
    if step < warm:
        return (step + 1) / warm
    return SCHEDULES[name]((step + 1 - warm) / (steps + 1 - warm))
