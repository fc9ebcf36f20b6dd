# SPDX-License-Identifier: Apache-2.0
"""Medians, quartiles and ratios, and the table of them. What was not reached counts as infinite."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

NOT_REACHED = "not reached"


@dataclass(frozen=True)
class Spread:
    """The middle half of some values; infinite where runs did not get there."""

    low: float
    median: float
    high: float


def quantile(values: Sequence[float], share: float) -> float:
    """Between two values in proportion; infinite where the upper one is, unless it has no weight."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below, weight = math.floor(place), place - math.floor(place)
    if weight == 0:
        return ordered[below]
    if math.isinf(ordered[below + 1]):
        return math.inf
    return (1 - weight) * ordered[below] + weight * ordered[below + 1]


def median(values: Sequence[float]) -> float:
    return quantile(values, 0.5)


def spread_of(values: Sequence[float]) -> Spread:
    return Spread(quantile(values, 0.25), median(values), quantile(values, 0.75))


@dataclass(frozen=True)
class Row:
    """One optimizer on one task: steps and seconds to the target, by seed."""

    task: str
    optimizer: str
    first_order: bool
    steps: list[float]
    seconds: list[float]
    settings: str

    @property
    def reached(self) -> int:
        return sum(math.isfinite(steps) for steps in self.steps)


def ratio(row: Row, rows: Sequence[Row], what: str) -> float | None:
    """The median of a row over that of the best first-order optimizer on its task."""
    own = median(getattr(row, what))
    rivals = [other for other in rows if other.first_order and other.task == row.task]
    best = min((median(getattr(other, what)) for other in rivals), default=math.inf)
    return own / best if math.isfinite(own) and math.isfinite(best) else None


def number_text(value: float) -> str:
    if math.isinf(value):
        return "∞"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def spread_text(values: Sequence[float]) -> str:
    found = spread_of(values)
    if math.isinf(found.median):
        return NOT_REACHED
    if len(values) == 1:
        return number_text(found.median)
    return f"{number_text(found.median)} ({number_text(found.low)}–{number_text(found.high)})"


def ratio_text(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


HEAD = ("task", "optimizer", "reached", "steps", "seconds", "steps ×", "seconds ×", "settings")


def table(rows: Sequence[Row]) -> str:
    """Medians with quartiles; × is the ratio to the best first-order optimizer."""
    lines = [[row.task, row.optimizer, f"{row.reached} of {len(row.steps)}", spread_text(row.steps),
              spread_text(row.seconds), ratio_text(ratio(row, rows, "steps")),
              ratio_text(ratio(row, rows, "seconds")), row.settings] for row in rows]
    return aligned(HEAD, lines)


def aligned(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; all but the first two and the last are numbers, at the right."""
    widths = [max(map(len, column)) for column in zip(head, *lines)]

    def line(cells: Sequence[str]) -> str:
        last = len(cells) - 1
        return "  ".join(cell.ljust(width) if place in (0, 1, last) else cell.rjust(width)
                         for place, (cell, width) in enumerate(zip(cells, widths))).rstrip()
    return "\n".join([line(head), "  ".join("─" * width for width in widths), *map(line, lines)])
