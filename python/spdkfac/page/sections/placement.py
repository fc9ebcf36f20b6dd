# SPDX-License-Identifier: Apache-2.0
"""Placement of inverses: how much each rank inverts, and who owns which factor."""

from __future__ import annotations

import statistics

import plotly.graph_objects as go

from ..charts import (Charts, axis, chart_time_unit, dim_ticks, grid, layout, log_axis,
                      plot_text)
from ..compare import colours, groups
from ..markup import Number, legend, table
from ..palette import SIDES
from ..records import Record, Run
from ..section import Finding, Section, block, mode_of
from ..words import duration, percent, place, plural

EVEN = 0.005  # loads that differ less are said to be even
LONGEST_LIST = 6  # layers named in a hover
MANY_RANKS = 16
BESIDE = 0.17  # of a row: A above its middle, G below, so that neither hides the other


def loads(run: Run) -> list[float]:
    for timing in (run.measured, run.replay, run.forecast):
        if timing and timing.inverse_loads:
            return timing.inverse_loads
    return []


def load_figure(runs: list[Run]) -> go.Figure:
    """Seconds of inversions by rank, one colour for each run: bars, or lines for many ranks."""
    unit, length = chart_time_unit(value for run in runs for value in loads(run))
    figure = go.Figure()
    many = max(len(loads(run)) for run in runs) > MANY_RANKS
    for run, colour in zip(runs, colours(runs)):
        values = loads(run)
        shared = {"x": list(range(len(values))), "y": [value / length for value in values],
                  "hoverinfo": "text", "hovertext": [
                      f"<b>{plot_text(run.label)}</b><br>rank {rank}: {duration(value)}"
                      for rank, value in enumerate(values)]}
        if many:
            line = {"color": colour, "width": 2, "shape": "hvh"}
            figure.add_trace(go.Scatter(mode="lines", line=line, **shared))
        else:
            figure.add_trace(go.Bar(marker={"color": colour}, **shared))
    figure.layout = layout(300, barmode="group", yaxis=axis(f"inverting ({unit})",
                                                            rangemode="tozero"),
                           xaxis=axis("rank", dtick=None if many else 1, showgrid=False))
    figure.layout.bargap = 0.25
    return figure


def owner_figure(run: Run) -> go.Figure:
    """Factors by dimension and owner; a larger mark stands for several of one dimension."""
    everyone = any(owner["owner"] is None for owner in run.owners)
    last = max(run.world - 1, max(owner["owner"] or 0 for owner in run.owners))
    room = max(1.0, last / 14)  # so that the row of everyone stands apart
    top = last + room
    figure = go.Figure()
    for side, (name, colour) in SIDES.items():
        places: dict[tuple[int, float], list[int]] = {}
        for owner in run.owners:
            if owner["side"] == side:
                row = top if owner["owner"] is None else owner["owner"]
                places.setdefault((owner["dim"], row), []).append(owner["layer"])
        hover = []
        for (dim, row), layers in places.items():
            who = "everyone" if row == top else f"rank {row}"
            some = ", ".join(str(layer) for layer in layers[:LONGEST_LIST])
            more = ", …" if len(layers) > LONGEST_LIST else ""
            hover.append(f"<b>{who}</b><br>{plural(len(layers), 'factor')} {side.upper()} of "
                         f"dimension {dim}<br>layer {some}{more}")
        figure.add_trace(go.Scatter(
            x=[dim for dim, _ in places], mode="markers", name=name, cliponaxis=False,
            y=[row + (BESIDE if side == "a" else -BESIDE) * (room if row == top else 1)
               for _, row in places],
            hovertext=hover, hoverinfo="text",
            marker={"color": colour, "opacity": 0.72, "symbol": "circle" if side == "a"
                    else "diamond", "line": {"width": 0.5, "color": colour},
                    "size": [min(22.0, 6 + 2.4 * len(layers) ** 0.5)
                             for layers in places.values()]}))
    step = max(1, (last + 8) // 8)
    ticks: list[float] = list(range(0, last + 1, step))
    texts = [f"rank {tick}" for tick in ticks]
    if everyone:
        ticks, texts = [*ticks, top], [*texts, "everyone"]
    dims = [owner["dim"] for owner in run.owners]
    figure.layout = layout(min(520, 100 + 28 * (last + 2)),
                           xaxis=log_axis("dimension of the factor", dims, dim_ticks(dims)),
                           yaxis=axis("", tickmode="array", tickvals=ticks, ticktext=texts,
                                      range=[-0.6 * room, (top if everyone else last)
                                             + 0.6 * room]))
    return figure


def dealt_out(run: Run) -> bool:
    return any(owner["owner"] is not None for owner in run.owners)


def findings(runs: list[Run]) -> list[str]:
    texts = []
    for run in runs:
        values = loads(run)
        mean = statistics.fmean(values) if values else 0.0
        parts = []
        if mean > 0:
            over = max(values) / mean - 1
            parts.append(f"the busiest rank inverts for {duration(max(values))}"
                         + (f", {percent(over)} over the mean" if over >= EVEN else ", as all do"))
        if run.owners:
            shared = sum(owner["owner"] is None for owner in run.owners)
            parts.append(f"{shared} of {plural(len(run.owners), 'factor')} are inverted by "
                         "every rank")
        if parts:
            texts.append(f"{run.label}: {'; '.join(parts)}.")
    return texts


def rows_of(record: Record) -> list[list[object]]:
    rows: list[list[object]] = []
    for run in record.runs:
        values = loads(run)
        owners = {owner["owner"] for owner in run.owners if owner["owner"] is not None}
        for rank in sorted(owners | set(range(len(values)))):
            own = [owner["dim"] for owner in run.owners if owner["owner"] == rank]
            rows.append([run.model, Number(run.world), run.label, Number(rank),
                         Number(duration(values[rank])) if rank < len(values) else None,
                         Number(len(own)) if run.owners else None,
                         Number(max(own)) if own else None])
    return rows


def make(records: list[Record], charts: Charts) -> Section | None:
    blocks, said = [], []
    for record in records:
        if record.experiment != "placement":
            continue
        words, pieces, owned = [], [], []
        for (model, world), runs in groups(record.runs).items():
            name = place(model, world)
            words += [Finding(name, text, mode_of(record, runs)) for text in findings(runs)]
            loaded = [run for run in runs if loads(run)]
            if loaded:
                pieces.append(
                    legend(zip((run.label for run in loaded), colours(loaded)))
                    + charts.add(load_figure(loaded), f"Seconds of inversions by rank, {name}",
                                 f"{name}: load of each rank"))
            owned += [charts.add(owner_figure(run), f"Owners of factors, {run.label}, {name}",
                                 f"{name}: who inverts what, {run.label}")
                      for run in runs if dealt_out(run)]
        if not pieces and not owned:
            continue
        said += words
        head = ("model", "ranks", "algorithm", "rank", "inverting", "factors of its own",
                "largest dimension")
        content = "".join(pieces) + (legend(SIDES.values()) + grid(owned) if owned else "")
        content += table(head, rows_of(record), "Placement in numbers")
        blocks.append(block(record, words, content))
    if not blocks:
        return None
    intro = ("<p>Inverses are distributed over the ranks; those cheaper to compute than to receive "
             "are inverted by every rank.</p>")
    return Section("placement", "Placement", said, intro + "".join(blocks))
