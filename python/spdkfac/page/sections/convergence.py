# SPDX-License-Identifier: Apache-2.0
"""Convergence: loss and accuracy over steps and over seconds."""

from __future__ import annotations

import statistics

import plotly.graph_objects as go

from ..charts import Charts, axis, grid, plot_text, with_legend
from ..markup import Number, table
from ..palette import algorithm_colour
from ..records import Record
from ..section import Finding, Section, block
from ..words import and_list, percent, plural, significant

VIEWS = (("accuracy", "step"), ("accuracy", "seconds"), ("loss", "step"), ("loss", "seconds"))
AXES = {"step": "steps", "seconds": "time (s)", "loss": "loss", "accuracy": "accuracy (%)"}


def value(point: dict, name: str) -> float | None:
    if point[name] is None:
        return None
    return 100 * point[name] if name == "accuracy" else point[name]


def figure_of(lines: list[dict], what: str, over: str) -> go.Figure:
    """One line for each seed; those of one optimizer share a colour and a legend."""
    figure = go.Figure()
    seen: set[str] = set()
    for line in lines:
        label, points = line["label"], line["points"]
        colour = algorithm_colour(label)
        figure.add_trace(go.Scatter(
            x=[point[over] for point in points], y=[value(point, what) for point in points],
            mode="lines+markers" if len(points) < 60 else "lines", name=plot_text(label),
            legendgroup=label, showlegend=label not in seen, opacity=0.85,
            line={"color": colour, "width": 1.7}, marker={"color": colour, "size": 4},
            hoverinfo="text", hovertext=[
                f"<b>{plot_text(label)}</b>, seed {line['seed']}<br>step {point['step']}, "
                f"{significant(point['seconds'])} s<br>{what} "
                + (f"{value(point, what):.4g}" if point[what] is not None else "none")
                for point in points]))
        seen.add(label)
    figure.layout = with_legend(340, xaxis=axis(AXES[over], rangemode="tozero"),
                                yaxis=axis(AXES[what]))
    return figure


def best(line: dict) -> float | None:
    return max((point["accuracy"] for point in line["points"] if point["accuracy"] is not None),
               default=None)


def common_goal(lines: list[dict]) -> float | None:
    """The best accuracy that every line reaches, in whole percent."""
    reached = [best(line) for line in lines]
    if not reached or any(accuracy is None for accuracy in reached):
        return None
    return int(100 * min(reached)) / 100


def first_to(line: dict, goal: float) -> dict:
    return next(point for point in line["points"]
                if point["accuracy"] is not None and point["accuracy"] >= goal)


def findings(record: Record) -> list[Finding]:
    lines = [line for line in record.body["convergence"] if line["points"]]
    goal = common_goal(lines)
    if goal is None:
        return []
    parts = []
    for label in dict.fromkeys(line["label"] for line in lines):
        points = [first_to(line, goal) for line in lines if line["label"] == label]
        steps = statistics.median(point["step"] for point in points)
        seconds = statistics.median(point["seconds"] for point in points)
        seeds = f", median of {plural(len(points), 'seed')}" if len(points) > 1 else ""
        parts.append(f"{label} after {steps:g} steps and {significant(seconds)} s{seeds}")
    text = f"{percent(goal)} accuracy is reached by {and_list(parts)}."
    return [Finding("", text, record.mode)]


def rows_of(lines: list[dict]) -> list[list[object]]:
    rows: list[list[object]] = []
    for line in lines:
        last = line["points"][-1]
        top = best(line)
        rows.append([line["label"], line["settings"], Number(line["seed"]), Number(last["step"]),
                     Number(significant(last["seconds"])),
                     None if last["loss"] is None else Number(f"{last['loss']:.4f}"),
                     None if last["accuracy"] is None
                     else Number(f"{100 * last['accuracy']:.2f} %"),
                     None if top is None else Number(f"{100 * top:.2f} %")])
    return rows


def make(records: list[Record], charts: Charts) -> Section | None:
    blocks, said = [], []
    for record in records:
        if record.experiment != "convergence":
            continue
        lines = [line for line in record.body["convergence"] if line["points"]]
        if not lines:
            continue
        words = findings(record)
        pieces = [charts.add(figure_of(lines, what, over), f"{what} over {AXES[over]}",
                             f"{what} over {'steps' if over == 'step' else 'seconds'}")
                  for what, over in VIEWS]
        said += words
        head = ("optimizer", "settings", "seed", "steps", "seconds", "last loss", "last accuracy",
                "best accuracy")
        blocks.append(block(record, words, grid(pieces) + table(head, rows_of(lines),
                                                               "Convergence in numbers")))
    if not blocks:
        return None
    intro = ("<p>Each line is one seed. Steps show how fast an optimizer learns, seconds what it costs."
             "</p>")
    return Section("convergence", "Convergence", said, intro + "".join(blocks))
