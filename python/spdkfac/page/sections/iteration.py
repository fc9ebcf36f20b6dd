# SPDX-License-Identifier: Apache-2.0
"""Iteration times: the paper's, forecast, replayed and measured."""

from __future__ import annotations

from ..bars import iteration_bars, sources_of
from ..charts import Charts, grid
from ..compare import (error_texts, errors, fastest_text, find, groups, order_texts, speed_up,
                       speed_up_text)
from ..markup import Number, source_legend, table
from ..records import Record, Run
from ..section import Finding, Section, block, mode_of
from ..words import byte_count, change, duration, duration_range, place, times


def findings(runs: list[Run], real: str) -> list[str]:
    """What the runs of one model and world say, in sentences."""
    best = find(runs, "spd-kfac")
    ups = [(speed_up(best, find(runs, over)), name)
           for over, name in (("d-kfac", "SP1"), ("mpd-kfac", "SP2"))]
    texts = [fastest_text(runs, real), *(speed_up_text(up, name) for up, name in ups if up),
             *error_texts(runs, real), *order_texts(runs, real)]
    return [text for text in texts if text]


def rows_of(runs: list[Run]) -> list[list[object]]:
    error = {(id(run), source): value for source in ("forecast", "replay")
             for run, value in errors(runs, source)}
    base = find(runs, "d-kfac")
    rows: list[list[object]] = []
    for run in runs:
        measured, best = run.measured, run.best
        up = speed_up(run, base) if run is not base else None
        rows.append([
            run.model, Number(run.world), run.label,
            None if run.paper is None else Number(duration(run.paper)),
            Number(duration(measured.seconds)) if measured else None,
            Number(duration_range(measured.low, measured.high)) if measured else None,
            *(cell for source in ("replay", "forecast") for cell in (
                Number(duration(getattr(run, source).seconds)) if getattr(run, source) else None,
                Number(change(error[id(run), source])) if (id(run), source) in error else None)),
            Number(times(up.factor) if up.differs else "no difference") if up else None,
            Number(byte_count(best.sent_bytes)) if best and best.sent_bytes is not None else None])
    return rows


def number_table(runs: list[Run], real: str, is_open: bool) -> str:
    head = ("model", "ranks", "algorithm", "the paper’s", real, "95 % interval", "replay",
            "its error", "forecast", "its error", "against D-KFAC", "sent by a rank")
    rows = [row for group in groups(runs).values() for row in rows_of(group)]
    return table(head, rows, "Iteration times in numbers", is_open)


def make(records: list[Record], charts: Charts) -> Section | None:
    chosen = [record for record in records if record.experiment == "iteration" and record.runs]
    if not chosen:
        return None
    blocks, said = [], []
    for record in chosen:
        pieces, words = [], []
        for (model, world), runs in groups(record.runs).items():
            name = place(model, world)
            words += [Finding(name, text, mode_of(record, runs))
                      for text in findings(runs, record.real)]
            if sources_of(runs):
                figure = iteration_bars(runs, record.real)
                pieces.append(charts.add(figure, f"Bars of iteration times, {name}", name))
        said += words
        content = (source_legend(record.real, sources_of(record.runs)) + grid(pieces)
                   + number_table(record.runs, record.real, True))
        blocks.append(block(record, words, content))
    intro = ("<p>One iteration of each algorithm. A forecast is made before the run, from the layers "
             "of the model and a cost model; a replay is a simulation fed with times measured in "
             "the same run. Measured times have a 95 % confidence interval of the median.</p>")
    return Section("iteration", "Iteration times", said, intro + "".join(blocks))
