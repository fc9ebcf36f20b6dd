# SPDX-License-Identifier: Apache-2.0
"""What a step costs, in steps of SGD: spdkfac next to kfac-pytorch, from measured times."""

from __future__ import annotations

import json
from typing import Any

from svg import BLUE, ORANGE, ROOT, Picture, Theme

RECORD = ROOT / "docs/measured/step-cost.json"
LIBRARIES = (("spdkfac", BLUE), ("kfac-pytorch", ORANGE))
LEFT, RIGHT, TOP = 186, 136, 40
BAR, ROW, HEAD = 15, 45, 34  # heights of a bar, of a model, of a group's title


def record() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def draw(theme: Theme) -> str:
    groups = record()["groups"]
    rows = sum(len(group["rows"]) for group in groups)
    picture = Picture(theme, TOP + rows * ROW + len(groups) * HEAD + 26,
                      "Cost of a training step in steps of SGD, spdkfac next to kfac-pytorch")
    longest = max(row["ms"]["kfac-pytorch"] / row["ms"]["sgd"] for group in groups for row in group["rows"])
    scale = (picture.width - LEFT - RIGHT) / longest
    head(picture)
    y = float(TOP)
    for group in groups:
        picture.text(12, y + 20, group["title"], size=14, bold=True)
        y += HEAD
        picture.line([(LEFT + scale, y - 2), (LEFT + scale, y + ROW * len(group["rows"]) - 8)], theme.soft, 1.2,
                     dashed=True)
        for row in group["rows"]:
            bars(picture, row, y, scale)
            y += ROW
    picture.text(LEFT + scale, y + 12, "1 × SGD", size=13, fill=theme.soft, anchor="middle")
    return picture.svg()


def head(picture: Picture) -> None:
    picture.text(12, 22, "Time of a training step, as a multiple of a step of SGD", size=16, bold=True)
    x = picture.width - 236.0
    for name, colour in LIBRARIES:
        picture.rect(x, 10, 14, 14, picture.theme.colour(colour), radius=2)
        picture.text(x + 20, 22, name)
        x += 110


def bars(picture: Picture, row: dict[str, Any], y: float, scale: float) -> None:
    ms = row["ms"]
    picture.text(LEFT - 12, y + 14, row["model"], anchor="end")
    picture.text(LEFT - 12, y + 31, f"SGD {ms['sgd']:g} ms", size=12.5, fill=picture.theme.soft, anchor="end")
    for index, (name, colour) in enumerate(LIBRARIES):
        times = ms[name] / ms["sgd"]
        top = y + index * (BAR + 3)
        picture.rect(LEFT, top, times * scale, BAR, picture.theme.colour(colour), radius=2)
        words = f"{times:.1f} ×"
        picture.text(LEFT + times * scale + 8, top + 12.5, words, size=13.5, bold=True)
        picture.text(LEFT + times * scale + 16 + 7.6 * len(words), top + 12.5, f"{ms[name]:g} ms", size=12.5,
                     fill=picture.theme.soft)
