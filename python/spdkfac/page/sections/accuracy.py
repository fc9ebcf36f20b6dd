# SPDX-License-Identifier: Apache-2.0
"""Accuracy: how far preconditioned gradients are from those of double precision."""

from __future__ import annotations

import plotly.graph_objects as go

from ..charts import Charts, axis, layout, plot_text
from ..markup import Number, table
from ..palette import BLUE
from ..records import Record
from ..section import Finding, Section, block


def worst_layer(entry: dict) -> dict | None:
    return max(entry["layers"], key=lambda layer: layer["error"], default=None)


def figure_of(entries: list[dict]) -> go.Figure:
    """The error of every layer, by precision."""
    figure = go.Figure()
    for entry in entries:
        layers = [layer for layer in entry["layers"] if layer["error"] > 0]
        figure.add_trace(go.Box(
            y=[layer["error"] for layer in layers], name=plot_text(entry["precision"]),
            boxpoints="all", jitter=0.4, pointpos=0, marker={"color": BLUE, "size": 4},
            line={"color": BLUE}, hoverinfo="text",
            hovertext=[f"<b>{plot_text(layer['name'])}</b><br>{layer['error']:.1e}"
                       for layer in layers]))
    figure.layout = layout(320, xaxis=axis("precision of products"), yaxis=axis("relative error", type="log"))
    return figure


def make(records: list[Record], charts: Charts) -> Section | None:
    blocks, said = [], []
    for record in records:
        entries = record.body.get("accuracy") if record.experiment == "accuracy" else None
        if not entries:
            continue
        model = str(record.options.get("model", ""))
        words = [Finding(model, f"In {entry['precision']} preconditioned gradients are "
                                f"{entry['error']:.1e} off.", record.mode) for entry in entries]
        said += words
        rows: list[list[object]] = []
        for entry in entries:
            worst = worst_layer(entry)
            rows.append([entry["precision"], Number(f"{entry['error']:.1e}"),
                         Number(f"{worst['error']:.1e}") if worst else None,
                         worst["name"] if worst else None])
        content = (charts.add(figure_of(entries), f"Errors of the layers, {model}", model)
                   + table(("precision", "error", "largest of a layer", "layer"), rows,
                           "Accuracy in numbers", True))
        blocks.append(block(record, words, content))
    if not blocks:
        return None
    intro = ("<p>Relative error of preconditioned gradients against double precision with the same "
             "factors, on a network that was trained a little. A dot is a layer.</p>")
    return Section("accuracy", "Accuracy", said, intro + "".join(blocks))
