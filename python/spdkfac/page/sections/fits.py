# SPDX-License-Identifier: Apache-2.0
"""Cost models: measured times of communication and inversion, and the curves fitted to them."""

from __future__ import annotations

import bisect
import math
import statistics

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ..charts import (Charts, axis, chart_time_unit, dim_ticks, grid, log_axis, plot_text,
                      with_legend)
from ..markup import Number, table
from ..palette import BLUE, GREEN, ORANGE, PURPLE, VERMILION
from ..records import Record
from ..section import Finding, Section, block
from ..words import count, duration, percent

FIT_COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE)
UNITS = {"elements": "elements", "dim": "dimension"}


def at(curve: list[list[float]], x: float) -> float | None:
    """The value of a fitted curve, linear between its points; None outside of them."""
    xs = [point[0] for point in curve]
    place = bisect.bisect_left(xs, x)
    if place < len(xs) and xs[place] == x:
        return curve[place][1]
    if place in (0, len(xs)):
        return None
    (x0, y0), (x1, y1) = curve[place - 1], curve[place]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def residuals(points: list[list[float]], curve: list[list[float]]) -> list[tuple[float, float]]:
    """Size and how far the curve is off there, relative to what was measured."""
    curve = sorted(curve)
    found = ((x, y, at(curve, x)) for x, y in points if y > 0)
    return [(x, fitted / y - 1) for x, y, fitted in found if fitted is not None]


def point_trace(curve: dict, length: float) -> go.Scatter:
    unit = UNITS[curve["unit"]]
    return go.Scatter(
        x=[x for x, _ in curve["points"]], y=[y / length for _, y in curve["points"]],
        mode="markers", name="measured", hoverinfo="text", meta="ink",
        marker={"size": 8, "symbol": "circle-open", "line": {"width": 2}},
        hovertext=[f"{unit} {count(x)}: {duration(y)}" for x, y in curve["points"]])


def fit_name(fit: dict) -> str:
    return plot_text(fit["form"] + (", used" if fit.get("used") else ""))


def fit_figure(curve: dict) -> go.Figure:
    """Points and fitted curves; below, on the same axis, how far the curves are off."""
    unit, length = chart_time_unit(y for _, y in curve["points"])
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.7, 0.3],
                           vertical_spacing=0.06)
    figure.add_trace(point_trace(curve, length), row=1, col=1)
    for fit, colour in zip(curve["fits"], FIT_COLOURS * (1 + len(curve["fits"]))):
        name, points = fit_name(fit), sorted(fit["curve"])
        style = {"color": colour, "width": 2.6 if fit.get("used") else 1.6,
                 "dash": "solid" if fit.get("used") else "dash"}
        figure.add_trace(go.Scatter(
            x=[x for x, _ in points], y=[y / length for _, y in points], mode="lines", line=style,
            name=name, legendgroup=name, hoverinfo="text",
            hovertext=[f"{name}<br>{count(x)}: {duration(y)}" for x, y in points]), row=1, col=1)
        off = residuals(curve["points"], points)
        figure.add_trace(go.Scatter(
            x=[x for x, _ in off], y=[100 * value for _, value in off], mode="lines+markers",
            line={**style, "width": 1.2}, marker={"color": colour, "size": 5}, name=name,
            legendgroup=name, showlegend=False, hoverinfo="text",
            hovertext=[f"{name}<br>{count(x)}: {100 * value:+.1f} %" for x, value in off]),
            row=2, col=1)
    figure.update_layout(with_legend(470))
    sizes = [x for x, _ in curve["points"]]
    ticks = dim_ticks(sizes) if curve["unit"] == "dim" else None
    figure.update_xaxes(**log_axis("", sizes, ticks))
    figure.update_xaxes(title={"text": UNITS[curve["unit"]], "standoff": 8}, row=2, col=1)
    figure.update_yaxes(**log_axis(f"time ({unit})", (y / length for _, y in curve["points"])),
                        row=1, col=1)
    figure.update_yaxes(**axis("off by (%)", rangemode="tozero"), row=2, col=1)
    figure.layout.yaxis2.zeroline = True
    return figure


def threshold_figure(curves: list[dict], threshold: int | None) -> go.Figure:
    """Inverting beside receiving the inverse: where the lines cross is the threshold."""
    unit, length = chart_time_unit(y for curve in curves for _, y in curve["points"])
    figure = go.Figure()
    names = {"inverse": "invert it", "broadcast": "receive it"}
    for curve, colour in zip(curves, (BLUE, VERMILION, GREEN, ORANGE)):
        points = sorted(curve["points"])
        figure.add_trace(go.Scatter(
            x=[x for x, _ in points], y=[y / length for _, y in points], mode="lines+markers",
            name=plot_text(names.get(curve["name"], curve["name"])),
            line={"color": colour, "width": 2}, hoverinfo="text",
            hovertext=[f"dimension {count(x)}: {duration(y)}" for x, y in points]))
    every = [point for curve in curves for point in curve["points"]]
    sizes = [x for x, _ in every]
    figure.layout = with_legend(
        360, xaxis=log_axis("dimension of the factor", sizes, dim_ticks(sizes)),
        yaxis=log_axis(f"time ({unit})", (y / length for _, y in every)))
    if threshold is not None:
        figure.add_shape(type="line", x0=threshold, x1=threshold, y0=0, y1=1, yref="paper",
                         line={"dash": "dash", "width": 1.5, "color": PURPLE})
        # On a logarithmic axis annotations, unlike shapes, stand at the logarithm.
        figure.add_annotation(x=math.log10(threshold), y=1, yref="paper", showarrow=False,
                              xanchor="right", yanchor="top", xshift=-6,
                              text=f"threshold {threshold}")
    return figure


def best_fit(curve: dict) -> dict | None:
    """The fit that forecasts use, or else the one that is nearest to the points."""
    used = [fit for fit in curve["fits"] if fit.get("used")]
    return min(used or curve["fits"], key=lambda fit: -(fit["r2"] or 0.0), default=None)


def findings(record: Record) -> list[Finding]:
    where = record.cluster or record.made["host"]
    texts = []
    for curve in record.body["curves"]:
        fit = best_fit(curve)
        if fit is None:
            continue
        text = f"{curve['name']}: {fit['form']}"
        text += f", {fit['text']}" if fit["text"] else ""
        text += f"; R² {fit['r2']:.3f}" if fit["r2"] is not None else ""
        if fit["mean_residual"] is not None:
            text += f", off by {percent(fit['mean_residual'])} on average"
        texts.append(text + ".")
    threshold = record.body.get("threshold")
    if threshold is not None:
        texts.append(f"Inverting is cheaper than receiving up to dimension {threshold}.")
    return [Finding(where, text, record.mode) for text in texts]


def rows_of(curves: list[dict]) -> list[list[object]]:
    rows: list[list[object]] = []
    for curve in curves:
        for fit in curve["fits"]:
            off = [abs(value) for _, value in residuals(curve["points"], fit["curve"])]
            rows.append([curve["name"], fit["form"], fit["text"],
                         None if fit["r2"] is None else Number(f"{fit['r2']:.4f}"),
                         None if fit["mean_residual"] is None
                         else Number(percent(fit["mean_residual"])),
                         Number(percent(statistics.fmean(off))) if off else None,
                         Number(percent(max(off))) if off else None,
                         "yes" if fit.get("used") else "no"])
    return rows


def make(records: list[Record], charts: Charts) -> Section | None:
    blocks, said = [], []
    for record in records:
        curves = [curve for curve in record.body.get("curves", []) if curve["points"]]
        if record.experiment not in ("comm", "inverse") or not curves:
            continue
        words = findings(record)
        both = ""
        if record.experiment == "inverse" and len(curves) > 1:
            figure = threshold_figure(curves, record.body.get("threshold"))
            both = charts.add(figure, "Times to invert and to receive, by dimension",
                              "Invert or receive?")
        pieces = [charts.add(fit_figure(curve), f"Times of {curve['name']} and fitted curves",
                              curve["name"]) for curve in curves]
        said += words
        fits = table(("curve", "form", "fitted", "R²", "mean residual", "of the points drawn",
                      "worst of them", "used"), rows_of(curves), "Fits in numbers")
        points = table(("curve", "size", "time"),
                       [[curve["name"], Number(count(x)), Number(duration(y))] for curve in curves
                        for x, y in curve["points"]], "Measured points")
        blocks.append(block(record, words, both + grid(pieces) + fits + points))
    if not blocks:
        return None
    intro = ("<p>Forecasts rest on these curves. Below each, how far a curve is from the "
             "measured points, relative to them.</p>")
    return Section("fits", "Cost models", said, intro + "".join(blocks))
