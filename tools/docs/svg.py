# SPDX-License-Identifier: Apache-2.0
"""Small SVG pictures, light or dark: shapes and text at given places, and the axes of charts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python/spdkfac"))  # the colours of the page that `spdkfac report` draws
from page.palette import (  # noqa: E402
    BLUE as BLUE, CATEGORIES as CATEGORIES, GREEN as GREEN, GREY as GREY, ORANGE as ORANGE, PURPLE as PURPLE,
    SKY as SKY, VERMILION as VERMILION, algorithm_colour as algorithm_colour)

WIDTH = 800
FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','DejaVu Sans',Helvetica,Arial,sans-serif"


@dataclass(frozen=True)
class Theme:
    name: str
    ink: str
    soft: str
    line: str
    grid: str
    tint: str
    colours: dict[str, str] = field(default_factory=dict)  # those that differ from the light ones

    def colour(self, light: str) -> str:
        return self.colours.get(light, light)


LIGHT = Theme("light", "#1c2430", "#5a6675", "#b3bcc7", "#e3e7ec", "#eef2f6")
DARK = Theme("dark", "#e6eaf0", "#9ba7b6", "#4b5766", "#29323d", "#1f2731",
             {BLUE: "#3d9fe6", GREEN: "#1fb58a", ORANGE: "#e8a33d", VERMILION: "#ee7b3a", PURPLE: "#dc96bc",
              SKY: "#8cc8ec", GREY: "#8b97a7"})
THEMES = (LIGHT, DARK)


def ink_on(fill: str) -> str:
    """Black or white, whichever stands out more on a coloured area."""
    def linear(digits: str) -> float:
        value = int(digits, 16) / 255
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
    light = 0.2126 * linear(fill[1:3]) + 0.7152 * linear(fill[3:5]) + 0.0722 * linear(fill[5:7])
    return "#ffffff" if 1.05 / (light + 0.05) > 1.2 * (light + 0.05) / 0.05 else "#0f1419"


def number(value: float) -> str:
    """Two digits after the point at most, and never -0."""
    return f"{round(value, 2) + 0:.2f}".rstrip("0").rstrip(".")


class Picture:
    """Collects elements; `text()` of the whole is the file. y grows downwards."""

    def __init__(self, theme: Theme, height: float, title: str, width: float = WIDTH) -> None:
        self.theme, self.width, self.height, self.title = theme, width, height, title
        self.parts: list[str] = []

    def rect(self, x: float, y: float, width: float, height: float, fill: str, *, radius: float = 0,
             stroke: str = "", opacity: float = 1, dashed: bool = False) -> None:
        more = f' rx="{number(radius)}"' if radius else ""
        more += f' stroke="{stroke}"' if stroke else ""
        more += f' fill-opacity="{number(opacity)}"' if opacity != 1 else ""
        more += ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" '
                          f'height="{number(height)}" fill="{fill}"{more}/>')

    def bars(self, spans: Sequence[tuple[float, float]], y: float, height: float, fill: str) -> None:
        """Rectangles (x, width) of one colour at one height, as one element."""
        path = "".join(f"M{number(x)} {number(y)}h{number(w)}v{number(height)}h{number(-w)}z" for x, w in spans)
        if path:
            self.parts.append(f'<path d="{path}" fill="{fill}"/>')

    def line(self, points: Sequence[tuple[float, float]], stroke: str, width: float = 1, *,
             dashed: bool = False, arrow: bool = False) -> None:
        path = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)
        more = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(f'<path d="{path}" fill="none" stroke="{stroke}" stroke-width="{number(width)}" '
                          f'stroke-linejoin="round" stroke-linecap="butt"{more}/>')
        if arrow:
            self._head(points[-2], points[-1], stroke)

    def _head(self, before: tuple[float, float], tip: tuple[float, float], fill: str) -> None:
        dx, dy = tip[0] - before[0], tip[1] - before[1]
        length = (dx * dx + dy * dy) ** 0.5
        ux, uy = dx / length, dy / length
        corners = [tip, (tip[0] - 8 * ux + 4 * uy, tip[1] - 8 * uy - 4 * ux),
                   (tip[0] - 8 * ux - 4 * uy, tip[1] - 8 * uy + 4 * ux)]
        path = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in corners) + "z"
        self.parts.append(f'<path d="{path}" fill="{fill}"/>')

    def dot(self, x: float, y: float, radius: float, fill: str) -> None:
        self.parts.append(f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" fill="{fill}"/>')

    def text(self, x: float, y: float, words: str, *, size: float = 14, fill: str = "", bold: bool = False,
             anchor: str = "start", italic: bool = False) -> None:
        """`y` is the base line; `anchor` is start, middle or end."""
        more = "" if anchor == "start" else f' text-anchor="{anchor}"'
        more += ' font-weight="600"' if bold else ""
        more += ' font-style="italic"' if italic else ""
        more += f' font-size="{number(size)}"' if size != 14 else ""
        self.parts.append(f'<text x="{number(x)}" y="{number(y)}" fill="{fill or self.theme.ink}"{more}>'
                          f"{escape(words)}</text>")

    def svg(self) -> str:
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(self.width)} {number(self.height)}" '
                f'width="{number(self.width)}" height="{number(self.height)}" role="img" '
                f'aria-label={quoteattr(self.title)} font-size="14" font-family="{FONT}">')
        return "\n".join([head, f"<title>{escape(self.title)}</title>", *self.parts, "</svg>", ""])
