# SPDX-License-Identifier: Apache-2.0
"""Who is tuned how: the protocol, as a dialogue of plans and runs. README.md says why it is fair."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import optimizers
import spread
from mistake import Mistake
from optimizers import Optimizer
from spread import Setting
from summary import median
from tasks import Task
from training import Plan, Run

TUNING_SEED = 0  # the seeds that count are 1, 2, …
LENGTHS = [2 ** (-step / 4) for step in range(17)]  # of a schedule, as shares of the budget
SETTINGS = 2  # that are tried at each length

T = TypeVar("T")
Runner = Callable[[Sequence[Plan]], list[Run]]
Dialogue = Generator[list[Plan], list[Run], T]


@dataclass(frozen=True)
class Protocol:
    budget: int  # steps of a run of whole length
    trials: int = 8
    seeds: int = 3
    evaluations: int = 40
    target: float | None = None  # given instead of found
    sample_seed: int = 0


@dataclass(frozen=True)
class Shortest:
    """Runs with the quickest setting and length, one for each seed, and how many lengths were tried."""

    runs: list[Run]
    tried: int


@dataclass(frozen=True)
class Entry:
    optimizer: Optimizer
    runs: list[Run]
    trials: int  # settings, and settings at shorter lengths


@dataclass(frozen=True)
class Outcome:
    task: Task
    target: float
    setter: str | None  # the optimizer that set the target
    budget: int
    entries: list[Entry]


@dataclass(frozen=True)
class Desk:
    """Makes the plans of one optimizer on one task."""

    task: Task
    optimizer: Optimizer
    protocol: Protocol

    def plan(self, setting: Setting, steps: int, seed: int, target: float | None) -> Plan:
        return Plan(self.task, self.optimizer, setting, steps, seed, target, self.protocol.evaluations)

    def seeds(self, setting: Setting, steps: int, target: float | None) -> list[Plan]:
        return [self.plan(setting, steps, TUNING_SEED + 1 + number, target)
                for number in range(self.protocol.seeds)]

    def trials(self, target: float | None) -> Dialogue[list[Run]]:
        """Settings that are spread well, each with a schedule of whole length."""
        space = optimizers.space_of(self.optimizer, self.task)
        settings = spread.sample(space, self.protocol.trials, self.protocol.sample_seed)
        runs = yield [self.plan(setting, self.protocol.budget, TUNING_SEED, target) for setting in settings]
        return runs

    def whole(self, trials: list[Run], target: float | None) -> Dialogue[list[Run]]:
        """The best setting at whole length, with all seeds; the last metric decides without a target."""
        best = min(trials, key=lambda run: rank(run, -math.inf if target is None else target))
        runs = yield self.seeds(best.plan.setting, self.protocol.budget, target)
        return runs

    def shortest(self, trials: list[Run], whole: list[Run], target: float) -> Dialogue[Shortest]:
        """Bisects the lengths for the shortest schedule with which most seeds reach the target."""
        if math.isinf(self.median_steps(whole, target)):
            return Shortest(whole, 0)
        best = whole[0].plan.setting
        others = [run.plan.setting for run in sorted(trials, key=lambda run: rank(run, target))]
        settings = [best, *(setting for setting in others if setting != best)][:SETTINGS]
        tried = [whole]
        good, bad = 0, len(LENGTHS)
        while bad - good > 1 and len(tried) <= self.protocol.trials:
            middle, reached = (good + bad) // 2, False
            for setting in settings[:self.protocol.trials + 1 - len(tried)]:
                steps = max(1, round(self.protocol.budget * LENGTHS[middle]))
                tried.append((yield from self.judged(self.seeds(setting, steps, target), target)))
                reached = math.isfinite(self.median_steps(tried[-1], target))
                if reached:
                    settings = [setting, *(other for other in settings if other != setting)]
                    break
            good, bad = (middle, bad) if reached else (good, middle)
        runs = min(tried, key=lambda some: self.median_steps(some, target))
        left = self.seeds(runs[0].plan.setting, runs[0].plan.steps, target)[len(runs):]
        return Shortest(runs + ((yield left) if left else []), len(tried) - 1)

    def judged(self, plans: list[Plan], target: float) -> Dialogue[list[Run]]:
        """Runs of so many seeds as decide whether more than half of them reach the target."""
        most = len(plans) // 2 + 1
        runs = yield plans[:most]
        while len(runs) < len(plans):
            reached = sum(run.reached(target) is not None for run in runs)
            if reached >= most or reached + len(plans) - len(runs) < most:
                break
            runs = runs + (yield [plans[len(runs)]])
        return runs

    def median_steps(self, runs: list[Run], target: float) -> float:
        """Seeds that were not run count as not reached."""
        steps = [steps_to(run, target) for run in runs]
        return median(steps + [math.inf] * (self.protocol.seeds - len(runs)))


def rank(run: Run, target: float) -> tuple[float, float]:
    """Quickest to the target first, then the nearest to it."""
    return steps_to(run, target), run.final


def steps_to(run: Run, target: float) -> float:
    point = run.reached(target)
    return math.inf if point is None else point.step


def together(dialogues: Mapping[str, Dialogue[T]], runner: Runner) -> dict[str, T]:
    """Leads all dialogues at once, so that a runner may do their plans side by side."""
    results: dict[str, T] = {}
    asked: dict[str, list[Plan]] = {}

    def go_on(name: str, runs: list[Run] | None) -> None:
        try:
            asked[name] = next(dialogues[name]) if runs is None else dialogues[name].send(runs)
        except StopIteration as end:
            asked.pop(name, None)
            results[name] = end.value

    for name in dialogues:
        go_on(name, None)
    while asked:
        sizes = {name: len(plans) for name, plans in asked.items()}
        runs = iter(runner([plan for plans in asked.values() for plan in plans]))
        for name, size in sizes.items():
            go_on(name, [next(runs) for _ in range(size)])
    return results


def choose_target(whole: Mapping[str, list[Run]]) -> tuple[float, str]:
    """The best median of final metrics, and whose it is.

    Final, not best of a run: it is what a user has in the end, and no luck of one evaluation. Of an even
    number of seeds it is the upper median, so that more than half of these runs reach it.
    """
    finals = {name: statistics.median_high(run.final for run in runs) for name, runs in whole.items()}
    setter = min(finals, key=lambda name: finals[name])
    if math.isinf(finals[setter]):
        raise Mistake(f"target: no first-order run learns anything ({', '.join(finals)} diverge); "
                      "give more --trials, or other rates with --variant")
    return finals[setter], setter


def search(task: Task, chosen: Sequence[Optimizer], protocol: Protocol, runner: Runner) -> Outcome:
    desks = {optimizer.name: Desk(task, optimizer, protocol) for optimizer in chosen}
    target, setter = protocol.target, None
    trials: dict[str, list[Run]] = {}
    whole: dict[str, list[Run]] = {}

    def tune(names: list[str]) -> None:
        found = together({name: desks[name].trials(target) for name in names}, runner)
        trials.update(found)
        whole.update(together({name: desks[name].whole(found[name], target) for name in names}, runner))

    if target is None:
        tune([optimizer.name for optimizer in chosen if optimizer.first_order])
        target, setter = choose_target(whole)
    tune([name for name in desks if name not in trials])
    shortest = together({name: desk.shortest(trials[name], whole[name], target)
                         for name, desk in desks.items()}, runner)
    entries = [Entry(desks[name].optimizer, found.runs, len(trials[name]) + found.tried)
               for name, found in ((name, shortest[name]) for name in desks)]
    return Outcome(task, target, setter, protocol.budget, entries)
