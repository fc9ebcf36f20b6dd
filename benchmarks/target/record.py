# SPDX-License-Identifier: Apache-2.0
"""The record of the referee (docs/records.md), which `spdkfac report` draws."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from mistake import Mistake
from results import Line, Result
from summary import Row, ratio, spread_of
from training import Place

SHARED = ("Runs shared the device: seconds are those of the same steps measured alone, in turn with the "
          "other optimizers.")


def write(path: Path, found: Sequence[Result], options: Mapping[str, Any], place: Place) -> None:
    text = json.dumps(record_of(found, options, place), indent=1, allow_nan=False)
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise Mistake(f"--out: cannot be written ({path}: {error.strerror}); check its folder") from error


def record_of(found: Sequence[Result], options: Mapping[str, Any], place: Place) -> dict[str, Any]:
    return {"format": "spdkfac.record/1", "experiment": "target", "mode": "measured", "made": made(place),
            "options": dict(options), "cluster": "",
            "note": SHARED if any(result.step_seconds for result in found) else "",
            "target": [result_json(result) for result in found]}


def made(place: Place) -> dict[str, str]:
    """When, by which version and commit, on which machine."""
    cores = os.cpu_count() or 1
    device = (torch.cuda.get_device_name() if place.device.type == "cuda"
              else f"cpu, {torch.get_num_threads()} thread{'' if torch.get_num_threads() == 1 else 's'}")
    host = f"{processor()}, {cores} core{'' if cores == 1 else 's'}"
    return {"time": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "version": version(),
            "commit": commit(), "host": host, "device": device}


def version() -> str:
    try:
        import spdkfac
    except ImportError:
        return ""
    return str(spdkfac.__version__)


def commit() -> str:
    try:
        done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=Path(__file__).parent, text=True,
                              capture_output=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(": ")[2] for line in lines if line.startswith("model name"))
    return next(named, platform.machine() or "unknown processor")


def finite(value: float) -> float | None:
    """Infinities are null: JSON has none."""
    return value if math.isfinite(value) else None


def result_json(result: Result) -> dict[str, Any]:
    return {"task": result.task, "metric": result.metric, "value": result.target, "set_by": result.setter,
            "budget": result.budget, "optimizers": [row_json(row, result) for row in result.rows],
            "lines": [line_json(line) for line in result.lines]}


def row_json(row: Row, result: Result) -> dict[str, Any]:
    return {"label": row.optimizer, "first_order": row.first_order, "settings": row.settings,
            "trials": result.trials.get(row.optimizer, 0), "seeds": len(row.steps), "reached": row.reached,
            "steps": spread_json(row.steps), "seconds": spread_json(row.seconds),
            "steps_ratio": ratio(row, result.rows, "steps"),
            "seconds_ratio": ratio(row, result.rows, "seconds"),
            "step_seconds": result.step_seconds.get(row.optimizer)}


def spread_json(values: Sequence[float]) -> dict[str, float | None]:
    found = spread_of(values)
    return {"low": finite(found.low), "median": finite(found.median), "high": finite(found.high)}


def line_json(line: Line) -> dict[str, Any]:
    return {"label": line.optimizer, "seed": line.seed, "settings": line.settings,
            "points": [{"step": point.step, "seconds": point.seconds, "metric": finite(point.metric)}
                       for point in line.points]}
