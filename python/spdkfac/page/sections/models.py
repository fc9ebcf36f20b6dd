# SPDX-License-Identifier: Apache-2.0
"""Models: their sizes beside the paper's, and how large their factors are."""

from __future__ import annotations

import math
from collections import Counter

import plotly.graph_objects as go

from ..charts import Charts, axis, grid, layout, size_text
from ..markup import Number, legend, table
from ..palette import SIDES
from ..records import Record
from ..section import Finding, Section, block
from ..words import change, count, percent

BINS_PER_DECADE = 4
MILLION = 1e6
NOT_EQUAL = 0.02  # a model further from the paper's numbers is named

FIELDS = (("parameters", "parameters"), ("layers", "layers"), ("a_elements", "elements of A"),
          ("g_elements", "elements of G"))


def packed(dim: int) -> int:
    """Elements of a symmetric matrix, one triangle with the diagonal."""
    return dim * (dim + 1) // 2


def bins(dims: list[int]) -> dict[int, int]:
    """How many factors there are in each bin of a logarithmic scale of packed sizes."""
    return Counter(math.floor(math.log10(packed(dim)) * BINS_PER_DECADE) for dim in dims)


def bin_text(place: int) -> str:
    low, high = (math.ceil(10 ** (edge / BINS_PER_DECADE)) for edge in (place, place + 1))
    return f"{count(low)} to {count(high - 1)} elements"


def figure_of(model: dict) -> go.Figure:
    figure = go.Figure()
    places: list[int] = []
    for side, (name, colour) in SIDES.items():
        found = sorted(bins(model[f"dims_{side}"]).items())
        places += [place for place, _ in found]
        figure.add_trace(go.Bar(
            x=[(place + 0.5) / BINS_PER_DECADE for place, _ in found],
            y=[number for _, number in found], name=name, hoverinfo="text",
            marker={"color": colour}, hovertext=[
                f"<b>{number} × {side.upper()}</b><br>{bin_text(place)}"
                for place, number in found]))
    low, high = min(places), max(places) + 1
    powers = range(low // BINS_PER_DECADE, high // BINS_PER_DECADE + 2)
    figure.layout = layout(
        280, barmode="group", yaxis=axis("factors", rangemode="tozero"),
        xaxis=axis("elements sent, d·(d+1)/2", tickmode="array", tickvals=list(powers),
                   ticktext=[size_text(10.0 ** power) for power in powers],
                   range=[low / BINS_PER_DECADE - 0.1, high / BINS_PER_DECADE + 0.1]))
    figure.layout.bargap = 0.08
    return figure


def differences(model: dict) -> list[tuple[str, float]]:
    """Where a model differs from the paper's, relative to that."""
    paper = model["paper"] or {}
    found = [(words, model[name] / paper[name] - 1) for name, words in FIELDS if paper.get(name)]
    return [(words, off) for words, off in found if abs(off) > NOT_EQUAL]


def finding(model: dict) -> str:
    dims = model["dims_a"] + model["dims_g"]
    sizes = [packed(dim) for dim in dims]
    text = f"{count(len(dims))} factors" if dims else "No factors"
    if sizes:
        text += f" of {count(min(sizes))} to {count(max(sizes))} elements"
    if model["paper"] is None:
        return text + "; not one of the paper’s models."
    off = differences(model)
    if not off:
        return text + f"; the size is the paper’s, within {percent(NOT_EQUAL)}."
    names = ", ".join(f"{words} {change(value)}" for words, value in off)
    return text + f"; against the paper: {names}."


def with_paper(model: dict, name: str, unit: float) -> list[object]:
    def shown(value: float) -> Number:
        return Number(f"{value / unit:.1f}" if unit > 1 else count(value))
    paper = model["paper"] or {}
    return [shown(model[name]), shown(paper[name]) if name in paper else None]


def make(records: list[Record], charts: Charts) -> Section | None:
    blocks, said = [], []
    for record in records:
        models = record.body.get("models") if record.experiment == "models" else None
        if not models:
            continue
        words = [Finding(model["name"], finding(model), record.mode) for model in models]
        pieces = [charts.add(figure_of(model), f"Sizes of the factors of {model['name']}",
                             model["name"])
                  for model in models if model["dims_a"] or model["dims_g"]]
        head = ["model", "batch"]
        for _, name in FIELDS:
            unit = "" if name == "layers" else " (million)"
            head += [f"{name}{unit}", "the paper’s"]
        rows = [[model["name"], Number(count(model["batch"])), *(
            value for name, _ in FIELDS
            for value in with_paper(model, name, 1 if name == "layers" else MILLION))]
            for model in models]
        said += words
        content = legend(SIDES.values()) + grid(pieces) + table(head, rows, "Models in numbers",
                                                                is_open=True)
        blocks.append(block(record, words, content))
    if not blocks:
        return None
    intro = ("<p>How many factors there are of each size, on a logarithmic scale: most are small, "
             "and a few hold most of the elements.</p>")
    return Section("models", "Models", said, intro + "".join(blocks))
