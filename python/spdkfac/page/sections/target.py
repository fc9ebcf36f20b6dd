# SPDX-License-Identifier: Apache-2.0
"""Time to target: steps and seconds until each optimizer reaches a metric, and the way there."""

from __future__ import annotations

import plotly.graph_objects as go

from ..charts import Charts, axis, grid, log_axis, plot_text, with_legend
from ..markup import Number, table
from ..palette import run_colours
from ..records import Record
from ..section import Finding, Section, block
from ..words import plural, significant

OVER = {"step": "steps", "seconds": "time (s)"}
HEAD = ("task", "optimizer", "settings", "reached by", "steps", "quartiles", "seconds", "quartiles",
        "steps ratio", "seconds ratio")


def figure_of(entry: dict, over: str) -> go.Figure:
    """One line for each seed; those of one optimizer share a colour. The target is dashed."""
    labels = list(dict.fromkeys(line["label"] for line in entry["lines"]))
    colours = dict(zip(labels, run_colours([(label, label) for label in labels])))
    figure, seen = go.Figure(), set()
    for line in entry["lines"]:
        label, points = line["label"], [point for point in line["points"] if point["metric"]]
        figure.add_trace(go.Scatter(
            x=[point[over] for point in points], y=[point["metric"] for point in points],
            mode="lines", name=plot_text(label), legendgroup=label, showlegend=label not in seen,
            opacity=0.85, line={"color": colours[label], "width": 1.7}, hoverinfo="text",
            hovertext=[f"<b>{plot_text(label)}</b>, seed {line['seed']}<br>step {point['step']}, "
                       f"{significant(point['seconds'])} s<br>{point['metric']:.4g}"
                       for point in points]))
        seen.add(label)
    values = [point["metric"] for line in entry["lines"] for point in line["points"]
              if point["metric"]]
    figure.layout = with_legend(340, xaxis=axis(OVER[over], rangemode="tozero"),
                                yaxis=log_axis(plot_text(entry["metric"]), values))
    if entry["value"] > 0:
        figure.add_hline(y=entry["value"], line={"dash": "dash", "width": 1.2, "color": "#8691a1"})
    return figure


def finding(entry: dict, row: dict) -> str:
    """How soon an optimizer got there."""
    if row["steps"]["median"] is None or row["seconds"]["median"] is None:
        return f"{row['label']} does not reach it ({row['reached']} of {plural(row['seeds'], 'seed')})."
    text = (f"{row['label']} reaches {entry['metric']} {entry['value']:.4g} after "
            f"{row['steps']['median']:g} steps and {significant(row['seconds']['median'])} s")
    if row["seconds_ratio"] is not None and not row["first_order"]:
        text += f", {row['seconds_ratio']:.2f} of the time of the best first-order optimizer"
    return text + f" (median of {plural(row['seeds'], 'seed')})."


def quartiles(spread: dict) -> Number | None:
    ends = ["∞" if spread[end] is None else significant(spread[end]) for end in ("low", "high")]
    return None if spread["median"] is None else Number("–".join(ends))


def row_of(entry: dict, row: dict) -> list[object]:
    def number(value: float | None) -> Number | None:
        return None if value is None else Number(significant(value))
    return [entry["task"], row["label"], row["settings"], Number(f"{row['reached']} of {row['seeds']}"),
            number(row["steps"]["median"]), quartiles(row["steps"]),
            number(row["seconds"]["median"]), quartiles(row["seconds"]),
            number(row["steps_ratio"]), number(row["seconds_ratio"])]


def make(records: list[Record], charts: Charts) -> Section | None:
    blocks, said = [], []
    for record in records:
        entries = record.body["target"] if record.experiment == "target" else []
        entries = [entry for entry in entries if entry["optimizers"]]
        if not entries:
            continue
        words = [Finding(entry["task"], finding(entry, row), record.mode)
                 for entry in entries for row in entry["optimizers"]]
        said += words
        pieces = [charts.add(figure_of(entry, over), f"{entry['metric']} over {OVER[over]}, {entry['task']}",
                             f"{entry['task']}, over {'steps' if over == 'step' else 'seconds'}")
                  for entry in entries for over in OVER]
        rows = [row_of(entry, row) for entry in entries for row in entry["optimizers"]]
        numbers = table(HEAD, rows, "Time to target in numbers", True)
        blocks.append(block(record, words, grid(pieces) + numbers))
    if not blocks:
        return None
    intro = ("<p>Each line is one seed and ends where it meets the target (dashed), or with its "
             "schedule. Ratios are to the best first-order optimizer.</p>")
    return Section("target", "Time to target", said, intro + "".join(blocks))
