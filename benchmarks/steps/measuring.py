# SPDX-License-Identifier: Apache-2.0
"""Turns: a variant is made, warmed up, timed and freed, so that nothing of the others is there meanwhile.

A parked K-FAC would not be nothing: it watches calls of layers, takes memory, and may switch torch.compile off.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

import optimizers
from models import Model
from optimizers import Optimizer

SETTLE = 5  # steps of a warm-up besides an interval


@dataclass(frozen=True)
class Place:
    """What all variants have in common."""

    device: torch.device
    precision: str = "fp32"
    channels_last: bool = False
    backend: str = "inductor"


@dataclass(frozen=True)
class Job:
    """One line of the table."""

    model: Model
    batch: int
    mode: str  # eager or compiled
    optimizer: Optimizer
    steps: int  # of a turn: whole intervals
    warm_up: int

    @property
    def text(self) -> str:
        return f"{self.model.name}, {self.mode}, {self.optimizer.title}"


@dataclass(frozen=True)
class Memory:
    """Bytes of torch's allocator: before the model was made, and at most in the timed steps."""

    before: int
    peak: int
    reserved: int


@dataclass(frozen=True)
class Turn:
    seconds: list[float]  # of each step, from its start to that of the next one
    wall: float  # of all of them, on the host, to the end of the last one
    memory: Memory | None
    counters: dict[str, int]  # of spdkfac


class Trainee:
    """Trains on one random batch."""

    def __init__(self, job: Job, place: Place) -> None:
        torch.manual_seed(1)
        self.device, self.loss_of = place.device, job.model.loss
        self.bf16 = place.precision == "bf16"
        with place.device:
            model = job.model.build()
        model = model.to(place.device).train()
        images, labels = job.model.inputs(job.batch, place.device)
        if place.channels_last and job.model.images and job.optimizer.kind != "kfac-pytorch":
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            images = images.to(memory_format=torch.channels_last)
        self.batch = images, labels
        self.optimizer = optimizers.make(job.optimizer, model, job.model.first_order, place.precision)
        self.model: Callable[..., Any] = model
        if job.mode == "compiled":
            self.model = torch.compile(model, backend=place.backend)
        self.loss = torch.tensor(math.nan)

    def step(self) -> None:
        self.optimizer.zero_grad()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            loss = self.loss_of(self.model, self.batch)
        loss.backward()
        self.optimizer.step()
        self.loss = loss.detach()


def warm_up_steps(optimizer: Optimizer) -> int:
    """With K-FAC the second refresh is among them."""
    return SETTLE + (optimizer.intervals.inverses if optimizer.intervals else 0)


def turn_steps(optimizer: Optimizer, at_least: int) -> int:
    """Whole intervals, so that the mean over them has as many refreshes as training."""
    interval = optimizer.intervals.inverses if optimizer.intervals else 1
    return interval * math.ceil(at_least / interval)


def take_turn(job: Job, place: Place, memory: bool) -> Turn:
    before = torch.cuda.memory_allocated(place.device) if memory else 0
    trainee = Trainee(job, place)
    for _ in range(job.warm_up):
        trainee.step()
    if memory:
        torch.cuda.synchronize(place.device)
        torch.cuda.empty_cache()  # what only the search for algorithms needed
        torch.cuda.reset_peak_memory_stats(place.device)
        trainee.step()
    clock = cuda_seconds if place.device.type == "cuda" else cpu_seconds
    seconds, wall = clock(trainee.step, job.steps)
    found = Memory(before, torch.cuda.max_memory_allocated(place.device),
                   torch.cuda.max_memory_reserved(place.device)) if memory else None
    loss = float(trainee.loss)
    if not math.isfinite(loss):
        raise ArithmeticError(f"the loss is {loss} after {job.warm_up + job.steps} steps; times would not be "
                              "those of training")
    return Turn(seconds, wall, found, dict(getattr(trainee.optimizer, "counters", {})))


def cuda_seconds(step: Callable[[], None], count: int) -> tuple[list[float], float]:
    """Nothing waits for the GPU between the first step and the last."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for event in events[:-1]:
        event.record()
        step()
    events[-1].record()
    torch.cuda.synchronize()
    wall = time.perf_counter() - begin
    return [start.elapsed_time(end) / 1e3 for start, end in pairwise(events)], wall


def cpu_seconds(step: Callable[[], None], count: int) -> tuple[list[float], float]:
    times = [time.perf_counter()]
    for _ in range(count):
        step()
        times.append(time.perf_counter())
    return [end - start for start, end in pairwise(times)], times[-1] - times[0]


def free() -> None:
    """After a turn, also one that failed."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
