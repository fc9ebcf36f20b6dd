# SPDX-License-Identifier: Apache-2.0
"""Does planned runs: one after the other, or some at a time in processes that share the device."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

import training
from mistake import Mistake
from progress import Progress
from training import Place, Plan, Point, Run


@lru_cache(maxsize=1)
def spdkfac_digest() -> str:
    """Changes with the code of spdkfac: runs of an older one do not count any more."""
    found = importlib.util.find_spec("spdkfac")
    digest = hashlib.sha256()
    for folder in (found.submodule_search_locations or []) if found else []:
        for path in sorted([*Path(folder).glob("*.py"), *Path(folder).glob("*.so")]):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def description(plan: Plan, place: Place) -> dict[str, Any]:
    """All that a run depends on, as JSON."""
    return {"task": plan.task.name, "batch": plan.task.batch, "kl_clip": plan.task.kl_clip,
            "kind": plan.optimizer.kind, "options": dict(plan.optimizer.options), "setting": plan.setting,
            "steps": plan.steps, "seed": plan.seed, "target": plan.target, "evaluations": plan.evaluations,
            "device": place.device.type, "spdkfac": spdkfac_digest() if plan.optimizer.kind == "kfac" else "",
            "data": [place.sources.data_dir, place.sources.text]}


class Kept:
    """Finished runs in a folder, so that a search may be interrupted and go on."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Mistake(f"--kept: cannot be made ({folder}: {error.strerror}); "
                          "give another folder") from error

    def _path(self, plan: Plan, place: Place) -> Path | None:
        if self.folder is None:
            return None
        text = json.dumps(description(plan, place), sort_keys=True)
        return self.folder / f"{plan.task.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"

    def get(self, plan: Plan, place: Place) -> Run | None:
        path = self._path(plan, place)
        if path is None or not path.exists():
            return None
        try:
            points = json.loads(path.read_text(encoding="utf-8"))["points"]
            return Run(plan, tuple(Point(step, seconds, float(metric)) for step, seconds, metric in points))
        except (ValueError, KeyError, TypeError) as error:
            raise Mistake(f"{path}: is no finished run ({error}); remove it") from error

    def put(self, run: Run, place: Place) -> None:
        path = self._path(run.plan, place)
        if path is None:
            return
        points = [[point.step, point.seconds, str(point.metric)] for point in run.points]  # "inf" is no JSON
        text = json.dumps({"run": description(run.plan, place), "points": points}, indent=1)
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(text + "\n", encoding="utf-8")
        unfinished.replace(path)


def work(plan: Plan, place: Place, threads: int) -> tuple[Point, ...]:
    """One run in a process of its own."""
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("high")
    return training.run(plan, place).points


class Runs:
    """Call it with plans; it returns their runs in the same order."""

    def __init__(self, place: Place, progress: Progress, kept: Kept, share: int = 0) -> None:
        self.place, self.progress, self.kept, self.share = place, progress, kept, share
        self.pool: ProcessPoolExecutor | None = None  # made once, when it is needed: torch starts slowly

    def __call__(self, plans: Sequence[Plan]) -> list[Run]:
        found = {number: run for number, plan in enumerate(plans) if (run := self.kept.get(plan, self.place))}
        for run in found.values():
            self.progress.ended(run, cached=True)
        missing = {number: plan for number, plan in enumerate(plans) if number not in found}
        alone = self.share < 2 or len(missing) < 2
        found |= self._in_turn(missing) if alone else self._side_by_side(missing)
        return [found[number] for number in range(len(plans))]

    def _in_turn(self, plans: dict[int, Plan]) -> dict[int, Run]:
        return {number: self._finished(training.run(plan, self.place, self.progress.going))
                for number, plan in plans.items()}

    def _side_by_side(self, plans: dict[int, Plan]) -> dict[int, Run]:
        threads = max(1, torch.get_num_threads() // self.share)
        self.pool = self.pool or ProcessPoolExecutor(self.share, multiprocessing.get_context("spawn"))
        numbers = {self.pool.submit(work, plan, self.place, threads): number
                   for number, plan in plans.items()}
        return {numbers[done]: self._finished(Run(plans[numbers[done]], done.result()))
                for done in as_completed(numbers)}

    def close(self) -> None:
        """Ends the processes: what is timed alone must be alone."""
        if self.pool:
            self.pool.shutdown()
            self.pool = None

    def _finished(self, run: Run) -> Run:
        self.kept.put(run, self.place)
        self.progress.ended(run)
        return run
