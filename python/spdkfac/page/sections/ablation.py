# SPDX-License-Identifier: Apache-2.0
"""Ablation: what pipelining and load balancing give, alone and together."""

from __future__ import annotations

from ..bars import iteration_bars, sources_of
from ..charts import Charts, grid
from ..compare import SpeedUp, groups, speed_up
from ..markup import Number, source_legend, table
from ..records import Record, Run
from ..section import Finding, Section, block, mode_of
from ..words import change, duration, duration_range, percent, place


def saving_text(run: Run, found: SpeedUp) -> str:
    if not found.differs:
        return (f"{run.label} against {found.over.label}: the difference is not "
                "significant.")
    share = 1 - 1 / found.factor
    word = "saves" if share >= 0 else "adds"
    return f"{run.label} {word} {percent(abs(share))} of the time of {found.over.label}."


def savings(runs: list[Run]) -> list[tuple[Run, SpeedUp]]:
    """Each variant against the first, which has neither."""
    found = ((run, speed_up(run, runs[0])) for run in runs[1:])
    return [(run, up) for run, up in found if up]


def rows_of(runs: list[Run]) -> list[list[object]]:
    against = {id(run): up for run, up in savings(runs)}
    rows: list[list[object]] = []
    for run in runs:
        up = against.get(id(run))
        saved = None if up is None else (
            change(1 / up.factor - 1) if up.differs else "no difference")
        rows.append([run.model, Number(run.world), run.label,
                     None if run.paper is None else Number(duration(run.paper)),
                     Number(duration(run.forecast.seconds)) if run.forecast else None,
                     Number(duration(run.replay.seconds)) if run.replay else None,
                     Number(duration(run.measured.seconds)) if run.measured else None,
                     Number(duration_range(run.measured.low, run.measured.high))
                     if run.measured else None,
                     None if saved is None else Number(saved)])
    return rows


def make(records: list[Record], charts: Charts) -> Section | None:
    blocks, said = [], []
    for record in records:
        if record.experiment != "ablation" or not sources_of(record.runs):
            continue
        found = groups(record.runs)
        pieces, words = [], []
        for (model, world), runs in found.items():
            name = place(model, world)
            words += [Finding(name, saving_text(*saving), mode_of(record, runs))
                      for saving in savings(runs)]
            if sources_of(runs):
                pieces.append(charts.add(iteration_bars(runs, record.real),
                                         f"Bars of the ablation, {name}", name))
        said += words
        head = ("model", "ranks", "variant", "the paper’s", "forecast", "replay",
                record.real, "95 % interval", "against the first")
        rows = [row for runs in found.values() for row in rows_of(runs)]
        content = (source_legend(record.real, sources_of(record.runs)) + grid(pieces)
                   + table(head, rows, "Ablation in numbers"))
        blocks.append(block(record, words, content))
    if not blocks:
        return None
    intro = ("<p>Each variant against the first one. Pipe: factors are sent while others are "
             "computed; LBP: inverses are distributed by their cost.</p>")
    return Section("ablation", "Ablation", said, intro + "".join(blocks))
