# SPDX-License-Identifier: Apache-2.0
"""One training step: SGD and K-FAC, and what the parts of a K-FAC step take."""

from __future__ import annotations

import statistics

import plotly.graph_objects as go

from ..charts import Charts, axis, chart_time_unit, label_axis, layout, plot_text
from ..markup import Number, table
from ..palette import BLUE
from ..records import Record
from ..section import Finding, Section, block
from ..words import duration, duration_range, short, times


def quartiles(samples: list[float]) -> tuple[float, float, float]:
    """First quartile, median, third quartile."""
    if len(samples) == 1:
        return samples[0], samples[0], samples[0]
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, middle, high


def figure_of(spreads: dict[str, tuple[float, float, float]]) -> go.Figure:
    unit, length = chart_time_unit(high for _, _, high in spreads.values())
    rows = list(range(len(spreads)))
    figure = go.Figure(go.Bar(
        x=[middle / length for _, middle, _ in spreads.values()], y=rows, orientation="h",
        width=0.7, marker={"color": BLUE}, hoverinfo="text",
        hovertext=[f"<b>{plot_text(name)}</b><br>median {duration(middle)}<br>quartiles "
                   f"{duration_range(low, high)}" for name, (low, middle, high)
                   in spreads.items()],
        error_x={"type": "data", "thickness": 1.4, "width": 4,
                 "array": [(high - middle) / length for _, middle, high in spreads.values()],
                 "arrayminus": [(middle - low) / length for low, middle, _ in spreads.values()]}))
    longest = max((high for _, _, high in spreads.values()), default=0.0) / length or 1.0
    figure.layout = layout(len(rows) * 30 + 66, xaxis=axis(f"time of a step ({unit})",
                                                           range=[0, 1.1 * longest]),
                           yaxis=label_axis([short(name) for name in spreads]))
    return figure


def findings(spreads: dict[str, tuple[float, float, float]]) -> list[str]:
    if "sgd" not in spreads or "kfac" not in spreads or spreads["sgd"][1] == 0:
        return []
    sgd, kfac = spreads["sgd"][1], spreads["kfac"][1]
    return [f"A K-FAC step takes {duration(kfac)}, {times(kfac / sgd)} an SGD step "
            f"({duration(sgd)})."]


def part_table(record: Record) -> str:
    alone = record.body["calls_alone_ms"]
    rows = [[name, Number(duration(1e-3 * value)),
             Number(duration(1e-3 * alone[name])) if name in alone else None]
            for name, value in record.body["parts_ms"].items()]
    return table(("part of a traced step", "takes", "its library calls alone"), rows,
                 "Parts of a K-FAC step") if rows else ""


def make(records: list[Record], charts: Charts) -> Section | None:
    blocks, said = [], []
    for record in records:
        if record.experiment != "step":
            continue
        spreads = {name: quartiles(samples)
                   for name, samples in record.body["seconds"].items() if samples}
        if not spreads:
            continue
        model = str(record.options.get("model", ""))
        words = [Finding(model, text, record.mode) for text in findings(spreads)]
        said += words
        rows = [[name, Number(duration(middle)), Number(duration_range(low, high))]
                for name, (low, middle, high) in spreads.items()]
        content = (charts.add(figure_of(spreads), f"Bars of step times, {model}", model)
                   + table(("step", "median", "quartiles"), rows, "Steps in numbers", True)
                   + part_table(record))
        blocks.append(block(record, words, content))
    if not blocks:
        return None
    intro = ("<p>One rank, one step of each variant in turn. Bars are medians, lines the quartiles. "
             "Capture: layers are watched, no factor is computed.</p>")
    return Section("step", "One step", said, intro + "".join(blocks))
