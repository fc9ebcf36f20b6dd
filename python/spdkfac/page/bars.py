# SPDX-License-Identifier: Apache-2.0
"""Lying bars of runs: whole iterations, and stacks of their parts."""

from __future__ import annotations

import plotly.graph_objects as go

from .charts import axis, chart_time_unit, label_axis, layout, plot_text
from .compare import colours
from .markup import source_names
from .palette import CATEGORIES
from .records import Run, Timing
from .words import duration, duration_range, short

ROW_PIXELS = 19  # height of one bar
GAP_PIXELS = 16  # between runs
AXIS_PIXELS = 62

HATCH = {"forecast": {"shape": "/", "fillmode": "replace", "size": 6, "solidity": 0.45},
         "replay": {"shape": "x", "fillmode": "replace", "size": 6, "solidity": 0.35}}


def sources_of(runs: list[Run]) -> list[str]:
    """Where the times of these runs come from, in the order of the bars."""
    there = {"paper": any(run.paper is not None for run in runs),
             "forecast": any(run.forecast for run in runs),
             "replay": any(run.replay for run in runs),
             "measured": any(run.measured for run in runs)}
    return [source for source, found in there.items() if found]


def timed_sources(runs: list[Run]) -> list[str]:
    """Those of them that have parts: not the paper's."""
    return [source for source in sources_of(runs) if source != "paper"]


def seconds_of(run: Run, source: str) -> float | None:
    if source == "paper":
        return run.paper
    timing: Timing | None = getattr(run, source)
    return timing.seconds if timing else None


class Rows:
    """Where the bars of some runs stand: a row for each run, a bar in it for each source."""

    def __init__(self, runs: list[Run], sources: list[str]) -> None:
        self.labels = [short(run.label) for run in runs]
        self.sources = sources
        row = len(sources) * ROW_PIXELS + GAP_PIXELS
        self.height = len(runs) * row + AXIS_PIXELS
        self.step = ROW_PIXELS / row
        self.width = 0.86 * self.step

    def position(self, row: int, source: str) -> float:
        return row + (self.sources.index(source) - (len(self.sources) - 1) / 2) * self.step


def marker(colours: str | list[str], source: str) -> dict:
    """Measured is filled, a simulation is hatched, the paper's is an outline."""
    line = {"color": colours, "width": 1.2}
    if source == "measured":
        return {"color": colours, "line": line}
    if source in HATCH:
        return {"color": colours, "line": line, "pattern": HATCH[source]}
    return {"color": "rgba(0,0,0,0)", "line": line}


def label_trace(x: list[float], y: list[float], texts: list[str]) -> go.Scatter:
    """Numbers at the ends of bars, behind their error bars."""
    return go.Scatter(x=x, y=y, text=[f"  {text}" for text in texts], mode="text",
                      textposition="middle right", hoverinfo="skip", cliponaxis=False)


def iteration_bars(runs: list[Run], real: str) -> go.Figure:
    """Iteration times of runs, with the confidence interval where there is one."""
    rows = Rows(runs, sources_of(runs))
    unit, length = chart_time_unit(seconds_of(run, source) for run in runs
                                   for source in rows.sources)
    figure = go.Figure()
    ends: list[tuple[float, float, str]] = []
    of_runs = colours(runs)
    names = source_names(real)
    for source in rows.sources:
        shown = [(place, run, seconds_of(run, source)) for place, run in enumerate(runs)
                 if seconds_of(run, source) is not None]
        y = [rows.position(place, source) for place, _, _ in shown]
        hover, low, high = [], [], []
        for place, run, value in shown:
            text = f"<b>{plot_text(run.label)}</b><br>{names[source]}: {duration(value)}"
            timing = run.measured if source == "measured" else None
            if timing:
                text += f"<br>95 % interval {duration_range(timing.low, timing.high)}"
            low.append(value - timing.low if timing else 0)
            high.append(timing.high - value if timing else 0)
            hover.append(text)
            ends.append(((value + high[-1]) / length, rows.position(place, source),
                         duration(value)))
        bars = go.Bar(x=[value / length for _, _, value in shown], y=y, orientation="h",
                      width=rows.width, hovertext=hover, hoverinfo="text",
                      marker=marker([of_runs[place] for place, _, _ in shown], source))
        if source == "measured":
            bars.error_x = {"type": "data", "array": [value / length for value in high],
                            "arrayminus": [value / length for value in low],
                            "thickness": 1.4, "width": 4}
        figure.add_trace(bars)
    figure.add_trace(label_trace([end[0] for end in ends], [end[1] for end in ends],
                                 [end[2] for end in ends]))
    longest = max((end[0] for end in ends), default=1.0)
    figure.layout = layout(rows.height, barmode="overlay", yaxis=label_axis(rows.labels),
                           xaxis=axis(f"iteration time ({unit})", range=[0, 1.22 * longest]))
    return figure


def stacked_bars(runs: list[Run], parts: list[str], title: str, real: str,
                 hidden: bool = False) -> go.Figure:
    """Parts of iterations: forecast, replay and measured.

    With `hidden`, communication of factors that computation hides follows as a pale end.
    """
    sources = timed_sources(runs)
    rows = Rows(runs, sources)
    known = [(place, run, source, getattr(run, source)) for place, run in enumerate(runs)
             for source in sources if getattr(run, source) and getattr(run, source).breakdown]
    totals = [sum(timing.breakdown.get(part, 0.0) for part in parts) for *_, timing in known]
    pale = [max(0.0, (timing.factor_messages or 0.0) - timing.breakdown.get("factor_comm", 0.0))
            if hidden else 0.0 for *_, timing in known]
    unit, length = chart_time_unit([total + more for total, more in zip(totals, pale)])
    figure = go.Figure()
    reached = [0.0] * len(known)
    for part in parts:
        name, colour = CATEGORIES[part]
        for source in sources:
            bars: dict[str, list] = {"x": [], "y": [], "base": [], "text": []}
            for place, (row, run, of, timing) in enumerate(known):
                value = timing.breakdown.get(part, 0.0)
                if of != source or value == 0:
                    continue
                word = source_names(real)[source]
                bars["x"].append(value / length)
                bars["y"].append(rows.position(row, source))
                bars["base"].append(reached[place] / length)
                bars["text"].append(f"<b>{plot_text(name)}</b> {duration(value)}<br>"
                                    f"{plot_text(run.label)}, {word}")
                reached[place] += value
            if bars["x"]:
                figure.add_trace(go.Bar(
                    x=bars["x"], y=bars["y"], base=bars["base"], orientation="h", width=rows.width,
                    hovertext=bars["text"], hoverinfo="text", marker=marker(colour, source)))
    if any(pale):
        colour = CATEGORIES["factor_comm"][1]
        figure.add_trace(go.Bar(
            x=[value / length for value in pale], base=[total / length for total in totals],
            y=[rows.position(row, source) for row, _, source, _ in known], orientation="h",
            width=rows.width, hoverinfo="text",
            hovertext=[f"<b>hidden FactorComm</b> {duration(value)}<br>{plot_text(run.label)}"
                       for value, (_, run, _, _) in zip(pale, known)],
            marker={"color": colour, "opacity": 0.28, "line": {"color": colour, "width": 1}}))
    ends = [(total + more) / length for total, more in zip(totals, pale)]
    figure.add_trace(label_trace(ends, [rows.position(row, source) for row, _, source, _ in known],
                                 [duration(total) for total in totals]))
    figure.layout = layout(rows.height, barmode="overlay", yaxis=label_axis(rows.labels),
                           xaxis=axis(f"{title} ({unit})",
                                      range=[0, 1.22 * max(ends, default=1.0)]))
    return figure
