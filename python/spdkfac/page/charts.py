# SPDX-License-Identifier: Apache-2.0
"""Charts of the page: plotly figures without colours of a theme, which the page adds."""

from __future__ import annotations

import json
import math
from html import escape
from typing import Iterable

import plotly.graph_objects as go

from .words import size_unit, time_unit


class Charts:
    """Collects the charts of a page and gives each its place."""

    def __init__(self) -> None:
        self.specs: list[dict] = []

    def add(self, figure: go.Figure, label: str, title: str = "") -> str:
        """The HTML of a chart; `label` tells what it shows to those who do not see it."""
        spec = json.loads(figure.to_json())
        spec["layout"].pop("template", None)
        return self.place({"kind": "plot", **spec}, figure.layout.height, label, title)

    def place(self, spec: dict, height: float, label: str, title: str = "") -> str:
        number = len(self.specs)
        self.specs.append(spec)
        heading = f"<figcaption>{escape(title)}</figcaption>" if title else ""
        return (f'<figure class="chart">{heading}<div class="plot" id="chart-{number}" role="img" '
                f'aria-label="{escape(label)}" style="height:{height:.0f}px"></div></figure>')


def grid(pieces: Iterable[str]) -> str:
    """Charts beside each other, where the window is wide enough."""
    pieces = list(pieces)
    kind = "charts one" if len(pieces) == 1 else "charts"
    return f'<div class="{kind}">' + "".join(pieces) + "</div>"


def plot_text(text: str) -> str:
    """A text for plotly, which would read tags in it."""
    return escape(text, quote=False)


def layout(height: float, **more: object) -> go.Layout:
    """What all charts share: room for labels, no title of their own."""
    return go.Layout(height=height, margin={"l": 12, "r": 18, "t": 14, "b": 44}, showlegend=False,
                     hovermode="closest", bargap=0, **more)


LEGEND_ABOVE = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom"}


def with_legend(height: float, **more: object) -> go.Layout:
    """As layout(), with plotly's legend above the plot."""
    found = layout(height, **more)
    found.update(showlegend=True, legend=LEGEND_ABOVE)
    return found


def axis(title: str, **more: object) -> dict:
    return {"title": {"text": title, "standoff": 8}, "automargin": True, "zeroline": False, **more}


def size_text(value: float) -> str:
    """A round number for an axis: 500, 4096, 20 k, 1 M."""
    if value < 10_000 and value % 1000:
        return f"{value:g}"
    for unit, length in (("\u00a0G", 1e9), ("\u00a0M", 1e6), ("\u00a0k", 1e3)):
        if value >= length:
            return f"{value / length:g}{unit}"
    return f"{value:g}"


def log_ticks(values: Iterable[float]) -> list[float]:
    """Powers of ten around these values; below two decades also their doubles and fivefolds."""
    found = [value for value in values if value > 0] or [1.0]
    first, last = math.floor(math.log10(min(found))), math.ceil(math.log10(max(found)))
    steps = (1, 2, 5) if math.log10(max(found) / min(found)) < 2 else (1,)
    return [step * 10.0 ** power for power in range(first, last + 1) for step in steps]


def log_axis(title: str, values: Iterable[float], ticks: list[float] | None = None) -> dict:
    """A logarithmic axis for these values with ticks at round numbers only."""
    values = list(values)
    ticks = ticks or log_ticks(values)
    return axis(title, type="log", tickmode="array", tickvals=ticks,
                ticktext=[size_text(tick) for tick in ticks])


def dim_ticks(dims: Iterable[float]) -> list[float]:
    """Powers of two, as dimensions of factors often are; every other one when they are many."""
    powers = [math.log2(dim) for dim in dims if dim > 0] or [0.0]
    first, last = math.floor(min(powers)), math.ceil(max(powers))
    return [2.0 ** power for power in range(first, last + 1, 1 if last - first <= 6 else 2)]


GAP = {"ticks": "outside", "ticklen": 6, "tickcolor": "rgba(0,0,0,0)"}


def label_axis(labels: list[str], **more: object) -> dict:
    """A vertical axis of names, the first at the top."""
    return {"tickmode": "array", "tickvals": list(range(len(labels))),
            "ticktext": [plot_text(label) for label in labels], "range": [len(labels) - 0.5, -0.5],
            "automargin": True, "fixedrange": True, "showgrid": False, "zeroline": False, **GAP,
            **more}


def chart_time_unit(seconds: Iterable[float | None]) -> tuple[str, float]:
    """The unit of a time axis and its length."""
    return time_unit(max((value for value in seconds if value is not None), default=0.0))


def chart_size_unit(sizes: Iterable[float]) -> tuple[str, float]:
    return size_unit(max(sizes, default=0.0))
