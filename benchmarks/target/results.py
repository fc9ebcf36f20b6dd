# SPDX-License-Identifier: Apache-2.0
"""What the referee found on a task, ready for the table, the record and the picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from progress import setting_text
from search import Entry, Outcome
from summary import Row
from timing import Clock
from training import Plan, Point, Run


@dataclass(frozen=True)
class Line:
    """The course of one run."""

    optimizer: str
    seed: int
    settings: str
    points: list[Point]


@dataclass(frozen=True)
class Result:
    task: str
    metric: str
    target: float
    setter: str | None
    budget: int
    rows: list[Row]
    lines: list[Line]
    trials: dict[str, int]
    step_seconds: dict[str, float]  # mean of those measured alone, where runs shared the device

    @staticmethod
    def of(outcome: Outcome, alone: Mapping[str, Clock]) -> Result:
        rows, lines = [], []
        for entry in outcome.entries:
            name = entry.optimizer.name
            found = [timed_by(alone.get(name), run) for run in entry.runs]
            rows.append(row_of(outcome, entry, found))
            lines += [Line(name, run.plan.seed, plan_settings(run.plan), list(run.points)) for run in found]
        trials = {entry.optimizer.name: entry.trials for entry in outcome.entries}
        return Result(outcome.task.name, outcome.task.metric, outcome.target, outcome.setter, outcome.budget,
                      rows, lines, trials, {name: clock.mean for name, clock in alone.items()})

    @property
    def headline(self) -> str:
        setter = f", the median of {self.setter} after {self.budget} steps" if self.setter else ""
        return f"{self.task}: {self.metric} of {self.target:.4g}{setter}"


def timed_by(clock: Clock | None, run: Run) -> Run:
    """The run with the seconds of a clock, if there is one."""
    if clock is None:
        return run
    return Run(run.plan, tuple(Point(point.step, clock.at(point.step), point.metric) for point in run.points))


def plan_settings(plan: Plan) -> str:
    return f"{setting_text(plan.setting)}, {plan.steps} steps"


def row_of(outcome: Outcome, entry: Entry, runs: list[Run]) -> Row:
    points = [run.reached(outcome.target) for run in runs]
    return Row(outcome.task.name, entry.optimizer.name, entry.optimizer.first_order,
               [point.step if point else math.inf for point in points],
               [point.seconds if point else math.inf for point in points], plan_settings(runs[0].plan))
