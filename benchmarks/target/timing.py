# SPDX-License-Identifier: Apache-2.0
"""Seconds of steps, measured alone: optimizers take turns, so that all of them meet the same machine.

Every step to the target is measured, not one for all: with intervals that adapt, early steps cost more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from summary import median
from training import Place, Plan, Trainer

TURN = 20  # steps until the next optimizer has its turn
ROUNDS = 3  # whole measurements; the median of each turn counts
WARM_UP = 3  # steps of each optimizer that nobody measures


@dataclass(frozen=True)
class Clock:
    """How many seconds the turns of a run took."""

    turns: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Seconds of a step."""
        return sum(self.turns) / (TURN * len(self.turns))

    def at(self, step: int) -> float:
        """Seconds from the start to a step; within a turn all steps are alike."""
        whole, rest = divmod(step, TURN)
        part = self.turns[whole] * rest / TURN if rest else 0.0
        return sum(self.turns[:whole]) + part


def measure(plans: Mapping[str, tuple[Plan, int]], place: Place) -> dict[str, Clock]:
    """A clock for each plan and its number of steps."""
    for plan, _ in plans.values():
        Trainer(plan, place).train(min(WARM_UP, plan.steps))
    rounds = [one_round(plans, place) for _ in range(ROUNDS)]
    return {name: Clock(tuple(median(times) for times in zip(*(found[name] for found in rounds))))
            for name in plans}


def one_round(plans: Mapping[str, tuple[Plan, int]], place: Place) -> dict[str, list[float]]:
    """The seconds of each turn; the last one is counted as a whole one."""
    trainers = {name: Trainer(plan, place) for name, (plan, _) in plans.items()}
    times: dict[str, list[float]] = {name: [] for name in plans}
    while waiting := [name for name, (_, steps) in plans.items() if trainers[name].step < steps]:
        for name in waiting:
            steps = min(TURN, plans[name][1] - trainers[name].step)
            times[name].append(trainers[name].train(steps) * TURN / steps)
    return times
