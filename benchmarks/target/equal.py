# SPDX-License-Identifier: Apache-2.0
"""Nothing tuned but the baseline: all others train with its rate, weight decay and schedule."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from mistake import Mistake
from optimizers import Optimizer
from progress import setting_text
from search import Desk, Protocol, Runner, together
from spread import Setting
from summary import aligned, median, number_text, ratio_text, spread_text
from tasks import Task
from training import Run

HEAD = ("task", "optimizer", "final metric", "× baseline", "steps to baseline's", "steps ×", "settings")
OWN = ("lr", "weight_decay")  # what others take over from the baseline


@dataclass(frozen=True)
class Entry:
    """All seeds of one optimizer, at whole length."""

    optimizer: Optimizer
    runs: list[Run]

    @property
    def finals(self) -> list[float]:
        return [run.final for run in self.runs]


@dataclass(frozen=True)
class Equals:
    task: Task
    budget: int
    setting: Setting
    entries: list[Entry]  # the baseline first

    @property
    def target(self) -> float:
        """What the baseline is left with; of an even number of seeds the upper median."""
        return statistics.median_high(self.entries[0].finals)


def equals(task: Task, baseline: Optimizer, others: Sequence[Optimizer], protocol: Protocol, runner: Runner,
           setting: Setting | None = None) -> Equals:
    """`setting`: of the baseline, instead of a search for it."""
    desk = Desk(task, baseline, protocol)
    if setting is None:
        trials = together({baseline.name: desk.trials(None)}, runner)[baseline.name]
        best = min(trials, key=lambda run: run.final)
        if math.isinf(best.final):
            raise Mistake(f"{task.name}: {baseline.name} diverges with every setting; give one with --setting")
        setting = {name: value for name, value in best.plan.setting.items() if name in OWN}
    desks = [desk, *(Desk(task, other, protocol) for other in others)]
    plans = [plan for one in desks for plan in one.seeds(setting, protocol.budget, None)]
    runs = iter(runner(plans))
    entries = [Entry(one.optimizer, [next(runs) for _ in range(protocol.seeds)]) for one in desks]
    return Equals(task, protocol.budget, setting, entries)


def setting_of(text: str) -> Setting:
    """The setting of `lr=0.003,weight_decay=0`."""
    setting: Setting = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        try:
            setting[name] = float(value)
        except ValueError:
            name = ""
        if name not in OWN:
            raise Mistake(f"--setting: must read lr=0.003,weight_decay=0 ({text})")
    if "lr" not in setting:
        raise Mistake(f"--setting: has no learning rate ({text}); write lr=0.003")
    return setting


def table(found: Sequence[Equals]) -> str:
    """Medians with quartiles over the seeds. Steps are to what the baseline is left with."""
    lines = []
    for equal in found:
        own = median(equal.entries[0].finals)
        for entry in equal.entries:
            points = [run.reached(equal.target) for run in entry.runs]
            steps = [point.step if point else math.inf for point in points]
            share = median(entry.finals) / own if own and math.isfinite(median(entry.finals)) else None
            middle = median(steps)
            lines.append([equal.task.name, entry.optimizer.name, spread_text(entry.finals), ratio_text(share),
                          "not reached" if math.isinf(middle) else number_text(middle),
                          ratio_text(middle / equal.budget if math.isfinite(middle) else None),
                          f"{setting_text(equal.setting)}, {equal.budget} steps"])
    return aligned(HEAD, lines)
