# SPDX-License-Identifier: Apache-2.0
"""What turns add up to: a row for each variant, and the file of them."""

from __future__ import annotations

import datetime
import json
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from measuring import Job, Place, Turn
from mistake import installed

TROUBLE = ("inverses_kept", "nonfinite_factors", "nonfinite_gradients", "layers_without_factors", "layers_scaled")


@dataclass
class Row:
    """All turns of a variant, or why there are none."""

    job: Job
    turns: list[Turn] = field(default_factory=list)
    error: str = ""

    @property
    def seconds(self) -> list[float]:
        return [each for turn in self.turns for each in turn.seconds]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.seconds)

    @property
    def wall(self) -> float:
        return sum(turn.wall for turn in self.turns) / len(self.seconds)

    @property
    def quartiles(self) -> list[float]:
        """With the median between them."""
        shares = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
        found: list[float] = torch.tensor(self.seconds, dtype=torch.float64).quantile(shares).tolist()
        return found

    def peak(self, what: str) -> int | None:
        """Bytes: `peak` or `reserved`."""
        found = [getattr(turn.memory, what) for turn in self.turns if turn.memory]
        return max(found) if found else None

    @property
    def trouble(self) -> dict[str, int]:
        """Counters of spdkfac that say that steps were not all that they should be."""
        return {name: count for turn in self.turns for name, count in turn.counters.items()
                if name in TROUBLE and count}


def base_of(rows: Sequence[Row]) -> Row | None:
    """The first-order optimizer of the model, among rows of one model and mode."""
    return next((row for row in rows if row.turns and row.job.optimizer.kind == row.job.model.first_order), None)


def ratio(row: Row, rows: Sequence[Row]) -> float | None:
    base = base_of(rows)
    return row.mean / base.mean if base and row.turns else None


def one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def entry(row: Row, rows: Sequence[Row]) -> dict[str, Any]:
    job, optimizer = row.job, row.job.optimizer
    found: dict[str, Any] = {
        "model": job.model.name, "batch": job.batch, "mode": job.mode, "optimizer": optimizer.title,
        "kind": optimizer.kind, "options": dict(optimizer.options),
        "intervals": asdict(optimizer.intervals) if optimizer.intervals else None,
        "warm_up": job.warm_up, "error": row.error or None}
    if row.turns:
        low, median, high = row.quartiles
        found |= {"median": median, "low": low, "high": high, "mean": row.mean, "slowest": max(row.seconds),
                  "wall": row.wall, "ratio": ratio(row, rows), "turns": [asdict(turn) for turn in row.turns]}
    return found


def environment(place: Place) -> dict[str, Any]:
    cuda = place.device.type == "cuda"
    packages = ("spdkfac", "torchvision", "timm", "transformers", "kfac-pytorch")
    return {"time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "device": device_text(place), "torch": torch.__version__,
            "cuda": torch.version.cuda if cuda else None, "cudnn": torch.backends.cudnn.version() if cuda else None,
            "python": platform.python_version(),
            "packages": {name: version for name in packages if (version := version_of(name))}}


def version_of(package: str) -> str | None:
    try:
        if package == "spdkfac" and installed(package):  # perhaps one that was built, not installed
            import spdkfac
            return str(spdkfac.__version__)
        return metadata.version(package)
    except ImportError:  # also of metadata
        return None


def device_text(place: Place) -> str:
    if place.device.type == "cuda":
        return str(torch.cuda.get_device_name(place.device))
    threads = torch.get_num_threads()
    return f"cpu, {threads} thread{'' if threads == 1 else 's'}"


def write(path: Path, groups: Sequence[Sequence[Row]], made: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Seconds and bytes."""
    rows = [entry(row, group) for group in groups for row in group]
    text = json.dumps({"format": "spdkfac.steps/1", "made": made, "options": options, "rows": rows}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")
