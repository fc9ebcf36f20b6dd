# SPDX-License-Identifier: Apache-2.0
"""Runs that are worked out instead of trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from optimizers import Optimizer
from training import Plan, Point, Run

SGD, ADAMW, KFAC = Optimizer("sgd", "sgd"), Optimizer("adamw", "adamw"), Optimizer("kfac", "kfac")


def course(plan: Plan, finals: Callable[[Plan], float]) -> Run:
    """Falls to its final value in the last of four evaluations; ends early where it meets its target."""
    points = []
    for part in range(1, 5):
        points.append(Point(plan.steps * part // 4, float(part), finals(plan) + 4 - part))
        if plan.target is not None and points[-1].metric <= plan.target:
            break
    return Run(plan, tuple(points))


class Referee:
    """Runs plans by a formula of their final metric, and remembers them."""

    def __init__(self, finals: Callable[[Plan], float]) -> None:
        self.finals = finals
        self.plans: list[Plan] = []

    def __call__(self, plans: Sequence[Plan]) -> list[Run]:
        self.plans += plans
        return [course(plan, self.finals) for plan in plans]
