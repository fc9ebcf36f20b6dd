# SPDX-License-Identifier: Apache-2.0
"""A line for each run on stderr; on a terminal it changes while the run goes on."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from training import Plan, Point, Run


def value_text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def setting_text(setting: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value_text(value)}" for name, value in setting.items())


def plan_text(plan: Plan) -> str:
    return (f"{plan.task.name:18} {plan.optimizer.name:12} {setting_text(plan.setting)}, "
            f"{plan.steps} steps, seed {plan.seed}")


def point_text(plan: Plan, point: Point) -> str:
    wanted = "" if plan.target is None else f" (wanted {plan.target:.4g})"
    return (f"step {point.step}/{plan.steps}, {point.seconds:.1f} s, {plan.task.metric} "
            f"{point.metric:.4g}{wanted}")


def end_text(run: Run) -> str:
    last, target = run.points[-1], run.plan.target
    verdict = "" if target is None else ", reached" if last.metric <= target else ", not reached"
    return point_text(run.plan, last) + verdict


class Progress:
    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.live, self.done = self.stream.isatty(), 0

    def going(self, plan: Plan, point: Point) -> None:
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            text = f"{plan.task.name} {plan.optimizer.name}: {point_text(plan, point)}"[:width]
            self.stream.write(f"\r{text:{width}}")
            self.stream.flush()

    def ended(self, run: Run, cached: bool = False) -> None:
        self.done += 1
        self.say(f"{self.done:4} {plan_text(run.plan)}: {end_text(run)}{' (kept)' if cached else ''}")

    def say(self, text: str) -> None:
        if self.live:
            self.stream.write("\r\x1b[K")
        print(text, file=self.stream, flush=True)
