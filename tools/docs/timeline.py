# SPDX-License-Identifier: Apache-2.0
"""An iteration of three algorithms on the paper's cluster, one above the other: from traces of the simulator."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from svg import CATEGORIES, Picture, Theme

MODEL, CLUSTER = "resnet50", "paper-64x2080ti"
ALGORITHMS = (("d-kfac", "D-KFAC"), ("spd-kfac", "SPD-KFAC"), ("auto", "auto"))
COMPUTE = ("ff_bp", "factor_comp", "inverse_comp", "precondition")
CHANNEL = ("grad_comm", "factor_comm", "inverse_comm")
WORDS = {"ff_bp": "forward and backward", "factor_comp": "factors", "inverse_comp": "inverses",
         "precondition": "preconditioning", "grad_comm": "gradients", "factor_comm": "factors",
         "inverse_comm": "inverses, or preconditioned gradients"}
LEFT, RIGHT, TOP, LANE, BLOCK = 92, 78, 62, 24, 88
Event = tuple[str, float, float]  # part, start and end in ms


class Timeline:
    """The busiest rank's events of an iteration."""

    def __init__(self, name: str, events: Sequence[dict[str, Any]]) -> None:
        inverting: dict[int, float] = defaultdict(float)
        for event in events:
            inverting[event["pid"]] += event["dur"] if event["cat"] == "inverse_comp" else 0
        self.name, self.rank = name, max(sorted(inverting), key=lambda rank: inverting[rank])
        self.events: list[Event] = [(event["cat"], event["ts"] / 1e3, (event["ts"] + event["dur"]) / 1e3)
                                    for event in events if event["pid"] == self.rank]
        self.end = max(event["ts"] + event["dur"] for event in events) / 1e3


def simulated(program: Path) -> list[Timeline]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for algorithm, name in ALGORITHMS:
            trace = Path(folder, "trace.json")
            subprocess.run([program, "simulate", "--model", MODEL, "--cluster", CLUSTER, "--algorithm", algorithm,
                            "--trace", trace], check=True, stdout=subprocess.DEVNULL)
            events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
            found.append(Timeline(name, [event for event in events if event["ph"] == "X"]))
    return found


def draw(theme: Theme, lines: Sequence[Timeline]) -> str:
    picture = Picture(theme, TOP + BLOCK * len(lines) + 92,
                      "An iteration of ResNet-50 on 64 GPUs with D-KFAC, SPD-KFAC and auto")
    scale = (picture.width - LEFT - RIGHT) / max(line.end for line in lines)
    picture.text(12, 22, "One iteration of ResNet-50 on 64 GPUs, as forecast", size=16, bold=True)
    picture.text(12, 42, "The rank that inverts longest, over milliseconds; new factors and inverses in the step",
                 size=13, fill=theme.soft)
    bottom = TOP + BLOCK * len(lines)
    for tick in range(0, int(max(line.end for line in lines)) + 1, 100):
        x = LEFT + tick * scale
        picture.line([(x, TOP), (x, bottom - 12)], theme.grid)
        picture.text(x, bottom + 4, str(tick), size=12.5, fill=theme.soft, anchor="middle")
    for index, line in enumerate(lines):
        block(picture, line, TOP + index * BLOCK, scale)
    legend(picture, bottom + 34)
    return picture.svg()


def block(picture: Picture, line: Timeline, top: float, scale: float) -> None:
    theme = picture.theme
    picture.text(12, top + 18, line.name, bold=True)
    for lane, (word, parts) in enumerate((("computes", COMPUTE), ("sends", CHANNEL))):
        y = top + 26 + lane * (LANE + 2)
        picture.text(LEFT - 10, y + 16, word, size=12.5, fill=theme.soft, anchor="end")
        picture.rect(LEFT, y, line.end * scale, LANE, theme.tint)
        for part in parts:
            picture.bars(spans(line.events, part, scale), y, LANE, theme.colour(CATEGORIES[part][1]))
    x = LEFT + line.end * scale
    picture.line([(x, top + 22), (x, top + 30 + 2 * LANE)], theme.ink, 1.6)
    picture.text(x + 7, top + 26 + LANE + 5, f"{line.end:.0f} ms", bold=True)


def spans(events: Sequence[Event], part: str, scale: float) -> list[tuple[float, float]]:
    """The events of a part as places in the picture; those that touch are one."""
    joined: list[list[float]] = []
    for _, start, end in sorted(event for event in events if event[0] == part):
        start, end = LEFT + start * scale, LEFT + end * scale
        if joined and start - joined[-1][1] < 0.15:
            joined[-1][1] = max(end, joined[-1][1])
        else:
            joined.append([start, end])
    return [(start, end - start) for start, end in joined]


def legend(picture: Picture, top: float) -> None:
    for row, (word, parts) in enumerate((("computes", COMPUTE), ("sends", CHANNEL))):
        x, y = float(LEFT), top + row * 24
        picture.text(LEFT - 10, y + 11, word, size=12.5, fill=picture.theme.soft, anchor="end")
        for part in parts:
            picture.rect(x, y, 13, 13, picture.theme.colour(CATEGORIES[part][1]), radius=2)
            picture.text(x + 19, y + 11.5, WORDS[part], size=13)
            x += 42 + 7.2 * len(WORDS[part])
