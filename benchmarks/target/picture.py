# SPDX-License-Identifier: Apache-2.0
"""A picture of the metric over seconds: one colour for each optimizer, the target as a dashed line."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mistake import Mistake
from results import Result

# Okabe and Ito's colours, as on the page; further optimizers take those that are left.
COLOURS = {"sgd": "#8691a1", "adamw": "#d98e04", "kfac": "#0072b2"}
OTHERS = ("#009e73", "#cc79a7", "#d55e00", "#4aa5dc", "#7a5cc0", "#7f6a2a")
INCHES = (6.4, 4.4)  # of a panel
HIGHEST = 2.0  # the picture ends that much above the highest first value


def possible() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def write(path: Path, found: Sequence[Result]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(INCHES[0] * len(found), INCHES[1]), layout="constrained")
    for axes, result in zip(figure.subplots(1, len(found), squeeze=False)[0], found):
        draw(axes, result)
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise Mistake(f"--picture: cannot be written ({path}: {error}); "
                      "check its folder and ending") from error


def colours_of(names: Sequence[str]) -> dict[str, str]:
    left = iter(OTHERS * len(names))
    return {name: COLOURS.get(name) or next(left) for name in dict.fromkeys(names)}


def draw(axes: Any, result: Result) -> None:
    """One line for each seed; where a run meets the target, a dot."""
    colours = colours_of([line.optimizer for line in result.lines])
    labelled: set[str] = set()
    for line in result.lines:
        colour = colours[line.optimizer]
        label = line.optimizer if line.optimizer not in labelled else None
        labelled.add(line.optimizer)
        axes.plot([point.seconds for point in line.points], [point.metric for point in line.points],
                  color=colour, linewidth=1.4, alpha=0.85, label=label)
        reached = next((point for point in line.points if point.metric <= result.target), None)
        if reached:
            axes.plot(reached.seconds, reached.metric, "o", color=colour, markersize=5)
    axes.axhline(result.target, color="black", linestyle="--", linewidth=1,
                 label=f"target {result.target:.4g}")
    axes.set(title=result.task, xlabel="seconds of training", ylabel=result.metric, yscale="log")
    axes.set_xlim(left=0)
    starts = [line.points[0].metric for line in result.lines if math.isfinite(line.points[0].metric)]
    if starts:  # a run that diverges leaves the picture
        axes.set_ylim(top=min(HIGHEST * max(starts), axes.get_ylim()[1]))
    axes.grid(alpha=0.25, which="both")
    axes.legend(frameon=False)
