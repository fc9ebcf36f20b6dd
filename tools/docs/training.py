# SPDX-License-Identifier: Apache-2.0
"""The error over seconds of training, with SGD, AdamW and K-FAC: from the record of `make train`."""

from __future__ import annotations

import json
import math
from typing import Any

from svg import ROOT, Picture, Theme, algorithm_colour

RECORD = ROOT / "docs/measured/training.json"
NAMES = {"sgd": "SGD", "adamw": "AdamW", "kfac": "K-FAC"}
TITLES = {"autoencoder-small": "Deep autoencoder", "cnn": "Small convolutional network"}
TICKS = (1, 2, 3, 5, 10, 20, 30, 50, 100)
TOP, BOTTOM, LEFT, RIGHT, GAP = 56, 44, 48, 12, 64
WORDS = 190  # width of the longest label


def record() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def draw(theme: Theme) -> str:
    tasks = record()["target"]
    picture = Picture(theme, 340, "Error over seconds of training with SGD, AdamW and K-FAC")
    width = (picture.width - LEFT - RIGHT - GAP * (len(tasks) - 1)) / len(tasks)
    for index, task in enumerate(tasks):
        Panel(picture, task, LEFT + index * (width + GAP), width).draw()
    return picture.svg()


class Panel:
    """One task: time to the right, the error upwards on a logarithmic scale."""

    def __init__(self, picture: Picture, task: dict[str, Any], left: float, width: float) -> None:
        self.picture, self.task, self.left, self.width = picture, task, left, width
        points = [point for line in task["lines"] for point in line["points"] if point["metric"]]
        self.longest = 1.04 * max(point["seconds"] for point in points)
        starts = [line["points"][0]["metric"] for line in task["lines"]]
        self.high, self.low = 1.15 * max(starts), task["value"] * 0.7
        self.top, self.bottom = float(TOP), picture.height - BOTTOM

    def x(self, seconds: float) -> float:
        return self.left + self.width * seconds / self.longest

    def y(self, metric: float) -> float:
        share = math.log(metric / self.low) / math.log(self.high / self.low)
        return self.bottom - (self.bottom - self.top) * share

    def draw(self) -> None:
        self.axes()
        picture, target = self.picture, self.y(self.task["value"])
        picture.line([(self.left, target), (self.left + self.width, target)], picture.theme.soft, 1.2, dashed=True)
        reached = [found for line in self.task["lines"] if (found := self.run(line))]
        for words, colour, x in reached:
            self.label(words, colour, x, last=x == max(place for _, _, place in reached))

    def axes(self) -> None:
        picture, theme = self.picture, self.picture.theme
        picture.text(self.left - 36, 20, TITLES.get(self.task["task"], self.task["task"]), size=16, bold=True)
        picture.text(self.left - 36, 40, f"{self.task['metric']}; dashed: the target, {self.task['value']:g}", size=13,
                     fill=theme.soft)
        for tick in TICKS:
            if self.low <= tick <= self.high:
                picture.line([(self.left, self.y(tick)), (self.left + self.width, self.y(tick))], theme.grid)
                picture.text(self.left - 8, self.y(tick) + 4.5, f"{tick:g}", size=13, fill=theme.soft, anchor="end")
        step = next(step for step in (0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 50, 100) if self.longest / step <= 6)
        for count in range(int(self.longest / step) + 1):
            picture.text(self.x(count * step), self.bottom + 18, f"{count * step:g}", size=13, fill=theme.soft,
                         anchor="middle")
        picture.line([(self.left, self.bottom), (self.left + self.width, self.bottom)], theme.line)
        picture.text(self.left + self.width / 2, self.bottom + 38, "seconds of training", size=13, fill=theme.soft,
                     anchor="middle")

    def run(self, line: dict[str, Any]) -> tuple[str, str, float] | None:
        """Draws a run; what to write where it reaches the target, if it does."""
        picture = self.picture
        colour = picture.theme.colour(algorithm_colour(line["label"]))
        name = NAMES.get(line["label"], line["label"])
        points = [(self.x(point["seconds"]), self.y(point["metric"])) for point in line["points"]]
        picture.line(points, colour, 2.6 if line["label"] == "kfac" else 2)
        reached = next((point for point in line["points"] if point["metric"] <= self.task["value"]), None)
        if reached:
            picture.dot(self.x(reached["seconds"]), self.y(reached["metric"]), 5, colour)
            return f"{name} {reached['seconds']:.2g} s", colour, self.x(reached["seconds"])
        end = points[-1][0]
        highest = min(y for x, y in points if x > end - WORDS)
        picture.text(end, highest - 10, f"{name} does not get there", fill=colour, bold=True, anchor="end")
        return None

    def label(self, words: str, colour: str, x: float, last: bool) -> None:
        """Below the target. The last one begins at its dot or ends at the edge, away from the others."""
        edge, anchor = self.left + self.width, "middle"
        if last:
            x, anchor = (x - 8, "start") if x + WORDS / 2 < edge else (edge, "end")
        self.picture.text(x, self.y(self.task["value"]) + 24, words, fill=colour, bold=True, anchor=anchor)
