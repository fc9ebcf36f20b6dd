# SPDX-License-Identifier: Apache-2.0
"""Memory for factors, inverses and buffers, by algorithm and rank."""

from __future__ import annotations

import plotly.graph_objects as go

from ..charts import Charts, axis, chart_size_unit, grid, label_axis, layout, plot_text
from ..markup import Number, legend, table
from ..palette import MEMORY_PARTS
from ..records import Record
from ..section import Finding, Section, block
from ..words import byte_count, place, short

MOST_RANKS = 8  # with more, the least, the middle and the most


def total(rank: dict) -> float:
    return sum(rank[part] for part in MEMORY_PARTS)


def shown_ranks(ranks: list[dict]) -> list[tuple[str, dict]]:
    """All ranks, or when they are many the one with least, the middle one and the one with most."""
    if len(ranks) <= MOST_RANKS:
        return [(f"rank {number}", rank) for number, rank in enumerate(ranks)]
    order = sorted(range(len(ranks)), key=lambda number: total(ranks[number]))
    chosen = (("least", order[0]), ("middle", order[len(order) // 2]), ("most", order[-1]))
    return [(f"{word}: rank {number}", ranks[number]) for word, number in chosen]


def figure_of(entries: list[dict]) -> go.Figure:
    rows = [(entry["label"], name, rank) for entry in entries
            for name, rank in shown_ranks(entry["ranks"])]
    unit, length = chart_size_unit(total(rank) for _, _, rank in rows)
    figure = go.Figure()
    for part, (name, colour) in MEMORY_PARTS.items():
        figure.add_trace(go.Bar(
            x=[rank[part] / length for _, _, rank in rows], y=list(range(len(rows))), width=0.78,
            orientation="h", marker={"color": colour}, hoverinfo="text", hovertext=[
                f"<b>{name}</b> {byte_count(rank[part])}<br>{plot_text(label)}, {who}"
                for label, who, rank in rows]))
    longest = max((total(rank) for _, _, rank in rows), default=0.0) / length or 1.0
    figure.add_trace(go.Scatter(
        x=[total(rank) / length for _, _, rank in rows], y=list(range(len(rows))), mode="text",
        text=[f"  {byte_count(total(rank))}" for _, _, rank in rows], hoverinfo="skip",
        textposition="middle right", cliponaxis=False))
    labels = [f"{short(label, 20)}, {who}" for label, who, _ in rows]
    figure.layout = layout(len(rows) * 24 + 66, barmode="stack", yaxis=label_axis(labels),
                           xaxis=axis(f"memory ({unit})", range=[0, 1.22 * longest]))
    return figure


def findings(entries: list[dict]) -> list[str]:
    most = {entry["label"]: max(total(rank) for rank in entry["ranks"]) for entry in entries}
    least = min(most, key=most.get)
    text = f"{least} needs least: at most {byte_count(most[least])} on a rank"
    largest = max(most, key=most.get)
    if most[largest] > most[least]:
        text += f"; {largest} needs most, {byte_count(most[largest])}"
    return [text + "."]


def rows_of(entries: list[dict]) -> list[list[object]]:
    return [[entry["model"], Number(entry["world"]), entry["label"], Number(number),
             *(Number(byte_count(rank[part])) for part in MEMORY_PARTS),
             Number(byte_count(total(rank)))]
            for entry in entries for number, rank in enumerate(entry["ranks"])]


def make(records: list[Record], charts: Charts) -> Section | None:
    blocks, said = [], []
    for record in records:
        entries = record.body.get("memory") if record.experiment == "memory" else None
        if not entries:
            continue
        by_place: dict[str, list[dict]] = {}
        for entry in entries:
            by_place.setdefault(place(entry["model"], entry["world"]), []).append(entry)
        words = [Finding(name, text, record.mode) for name, found in by_place.items()
                 for text in findings(found)]
        pieces = [charts.add(figure_of(found), f"Memory of ranks, {name}", name)
                  for name, found in by_place.items()]
        said += words
        head = ("model", "ranks", "algorithm", "rank", *MEMORY_PARTS, "sum")
        content = (legend(MEMORY_PARTS.values()) + grid(pieces)
                   + table(head, rows_of(entries), "Memory in numbers"))
        blocks.append(block(record, words, content))
    if not blocks:
        return None
    intro = ("<p>What K-FAC needs in addition to the model and its activations. With more than "
             f"{MOST_RANKS} ranks: those with the least, the median and the most memory.</p>")
    return Section("memory", "Memory", said, intro + "".join(blocks))
