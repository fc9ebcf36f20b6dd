# SPDX-License-Identifier: Apache-2.0
"""One training run: the same loop for every task and optimizer."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import nn

import optimizers
import schedule
from data import Batch, Data
from files import Sources
from optimizers import Optimizer
from spread import Setting
from tasks import Task

DIVERGED = 1e6  # no metric is that large in a run that learns


@dataclass(frozen=True)
class Plan:
    """All that determines a run, apart from the machine."""

    task: Task
    optimizer: Optimizer
    setting: Setting
    steps: int  # the schedule ends with them
    seed: int
    target: float | None = None  # the run ends where its metric is not above this
    evaluations: int = 40  # in a whole run, at equal distances


@dataclass(frozen=True)
class Point:
    step: int
    seconds: float  # of training
    metric: float  # infinite once a run has diverged


@dataclass(frozen=True)
class Run:
    plan: Plan
    points: tuple[Point, ...]

    @property
    def final(self) -> float:
        return self.points[-1].metric

    def reached(self, target: float) -> Point | None:
        """The first point that is not above the target."""
        return next((point for point in self.points if point.metric <= target), None)


@dataclass(frozen=True)
class Place:
    """Where runs happen and where their data is."""

    device: torch.device
    sources: Sources


Report = Callable[[Plan, Point], None]


@lru_cache(maxsize=4)
def data_of(task: str, load: Callable[[Sources, torch.device], Data], place: Place) -> Data:
    return load(place.sources, place.device)


class Trainer:
    """The state of a run between its steps."""

    def __init__(self, plan: Plan, place: Place) -> None:
        self.plan, self.device, self.step = plan, place.device, 0
        self.data = data_of(plan.task.name, plan.task.load, place)
        torch.manual_seed(plan.seed)
        self.model: nn.Module = plan.task.model().to(place.device)
        self.optimizer = optimizers.make(plan.optimizer, plan.setting, self.model, plan.task)
        self.rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.batches: Iterator[Batch] = self.data.batches(plan.task.batch, plan.seed)
        self.schedule: str = {**plan.optimizer.options, **plan.setting}.get("schedule", "cosine")

    def train(self, steps: int) -> float:
        """So many steps; the seconds that they took."""
        self._wait()
        start = time.perf_counter()
        for _ in range(steps):
            share = schedule.share(self.schedule, self.step, self.plan.steps)
            for group, rate in zip(self.optimizer.param_groups, self.rates):
                group["lr"] = rate * share
            self.optimizer.zero_grad()
            self.plan.task.loss(self.model, next(self.batches)).backward()
            self.optimizer.step()
            self.step += 1
        self._wait()
        return time.perf_counter() - start

    def measure(self) -> float:
        self.model.eval()
        with torch.no_grad():
            value = float(self.plan.task.measure(self.model, self.data.tests()))
        self.model.train()
        return value if value < DIVERGED else math.inf  # NaN is not

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def evaluation_steps(steps: int, evaluations: int) -> list[int]:
    """Equally spaced, the last step among them."""
    count = min(steps, evaluations)
    return [round(steps * (place + 1) / count) for place in range(count)]


def run(plan: Plan, place: Place, report: Report = lambda plan, point: None) -> Run:
    """Trains to the target, the last step or divergence."""
    trainer = Trainer(plan, place)
    points: list[Point] = []
    seconds = 0.0
    for step in evaluation_steps(plan.steps, plan.evaluations):
        seconds += trainer.train(step - trainer.step)
        points.append(Point(step, seconds, trainer.measure()))
        report(plan, points[-1])
        if math.isinf(points[-1].metric) or (plan.target is not None and points[-1].metric <= plan.target):
            break
    return Run(plan, tuple(points))
