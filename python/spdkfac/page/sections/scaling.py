# SPDX-License-Identifier: Apache-2.0
"""Scaling: iteration times over the number of ranks."""

from __future__ import annotations

import plotly.graph_objects as go

from ..bars import sources_of
from ..charts import Charts, axis, chart_time_unit, grid, layout, log_axis, plot_text
from ..compare import fastest_text, find, groups, speed_up, speed_up_text
from ..markup import Number, legend, line_legend, source_names, table
from ..palette import run_colours
from ..records import Record, Run
from ..section import Finding, Section, block, mode_of
from ..words import count, duration, duration_range, place


DASHES = {"forecast": "dot", "replay": "dash", "measured": "solid"}


def series(runs: list[Run]) -> list[tuple[list[Run], str]]:
    """The runs of each algorithm, by the number of ranks, and their colour."""
    found: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        found.setdefault((run.algorithm, run.label), []).append(run)
    return [(sorted(line, key=lambda run: run.world), colour)
            for line, colour in zip(found.values(), run_colours(list(found)))]


def line(runs: list[Run], colour: str, source: str, word: str, length: float) -> go.Scatter | None:
    """One algorithm: simulations are dotted or dashed, measured is solid with its intervals."""
    known = [(run, getattr(run, source)) for run in runs if getattr(run, source)]
    if not known:
        return None
    real = source == "measured"
    trace = go.Scatter(
        x=[run.world for run, _ in known], y=[timing.seconds / length for _, timing in known],
        name=plot_text(f"{runs[0].label}, {word}"), mode="lines+markers", hoverinfo="text",
        line={"color": colour, "width": 2, "dash": DASHES[source]},
        marker={"color": colour, "size": 7, "symbol": "circle" if real else "circle-open"},
        hovertext=[f"<b>{plot_text(run.label)}</b>, {word}<br>{count(run.world)} ranks: "
                   f"{duration(timing.seconds)}" for run, timing in known])
    if real:
        trace.error_y = {
            "type": "data", "thickness": 1.4, "width": 4, "color": colour,
            "array": [(timing.high - timing.seconds) / length for _, timing in known],
            "arrayminus": [(timing.seconds - timing.low) / length for _, timing in known]}
    return trace


def figure_of(runs: list[Run], real: str) -> go.Figure:
    unit, length = chart_time_unit(timing.seconds for run in runs
                                   for timing in (run.forecast, run.replay, run.measured) if timing)
    figure = go.Figure()
    for of_one, colour in series(runs):
        for source in DASHES:
            trace = line(of_one, colour, source, source_names(real)[source], length)
            if trace is not None:
                figure.add_trace(trace)
    worlds = sorted({run.world for run in runs})
    figure.layout = layout(380, xaxis=log_axis("ranks", worlds, worlds),
                           yaxis=axis(f"iteration time ({unit})", rangemode="tozero"))
    return figure


def findings(runs: list[Run], real: str) -> list[str]:
    """At the largest world."""
    best = find(runs, "spd-kfac")
    up = speed_up(best, find(runs, "d-kfac"))
    texts = [fastest_text(runs, real), speed_up_text(up, "SP1") if up else None]
    return [text for text in texts if text]


def make(records: list[Record], charts: Charts) -> Section | None:
    blocks, said = [], []
    for record in records:
        runs = [run for run in record.runs if run.best]
        if record.experiment != "scaling" or not runs:
            continue
        words, pieces = [], []
        for model in dict.fromkeys(run.model for run in runs):
            of_model = [run for run in runs if run.model == model]
            largest = max(run.world for run in of_model)
            last = groups(of_model)[model, largest]
            words += [Finding(place(model, largest), text, mode_of(record, last))
                      for text in findings(last, record.real)]
            pieces.append(charts.add(figure_of(of_model, record.real),
                                     f"Iteration time over the number of ranks, {model}", model))
        said += words
        rows = [[run.model, run.label, Number(run.world),
                 Number(duration(run.forecast.seconds)) if run.forecast else None,
                 Number(duration(run.replay.seconds)) if run.replay else None,
                 Number(duration(run.measured.seconds)) if run.measured else None,
                 Number(duration_range(run.measured.low, run.measured.high))
                 if run.measured else None] for run in runs]
        head = ("model", "algorithm", "ranks", "forecast", "replay", record.real,
                "95 % interval")
        key = legend((of_one[0].label, colour) for of_one, colour in series(runs))
        content = (key + line_legend(record.real, sources_of(runs)) + grid(pieces)
                   + table(head, rows, "Scaling in numbers"))
        blocks.append(block(record, words, content))
    if not blocks:
        return None
    intro = ("<p>Each rank has its own batch, so a flat line is ideal. The sentences are "
             "about the largest number of ranks.</p>")
    return Section("scaling", "Scaling", said, intro + "".join(blocks))
