# SPDX-License-Identifier: Apache-2.0
"""Where an iteration's time goes, as in the paper's figure of time breakdowns."""

from __future__ import annotations

from ..bars import stacked_bars, timed_sources
from ..charts import Charts, grid
from ..compare import find, groups, hiding, hiding_text
from ..markup import Number, category_legend, source_legend, table
from ..palette import CATEGORIES
from ..records import Record, Run
from ..section import Finding, Section, block, mode_of
from ..words import duration, percent, place


def with_parts(runs: list[Run]) -> list[Run]:
    return [run for run in runs
            if any(timing and timing.breakdown
                   for timing in (run.forecast, run.replay, run.measured))]


def choose(records: list[Record]) -> list[Record]:
    """Records of breakdowns, and of iterations unless a breakdown has the same runs."""
    def key(record: Record, run: Run) -> tuple[str, str, str, int, str]:
        return record.mode, record.cluster, run.model, run.world, run.algorithm

    seen = {key(record, run) for record in records if record.experiment == "breakdown"
            for run in record.runs}
    return [record for record in records if with_parts(record.runs) and (
        record.experiment == "breakdown" or record.experiment == "iteration"
        and not all(key(record, run) in seen for run in with_parts(record.runs)))]


def largest_text(run: Run) -> str | None:
    """The part on which a run spends most of its time."""
    timing = run.best
    if timing is None or not timing.breakdown or not sum(timing.breakdown.values()):
        return None
    parts = {name: timing.breakdown.get(name, 0.0) for name in CATEGORIES}
    part = max(parts, key=parts.get)
    return (f"{run.label} spends most of its time on {CATEGORIES[part][0]}: "
            f"{duration(parts[part])}, {percent(parts[part] / sum(parts.values()))}.")


def findings(runs: list[Run]) -> list[str]:
    best = find(runs, "spd-kfac")
    hidden = hiding(best)
    texts = [hiding_text(hidden) if hidden else None, largest_text(best or runs[0])]
    return [text for text in texts if text]


def rows_of(record: Record) -> list[list[object]]:
    rows: list[list[object]] = []
    for run in with_parts(record.runs):
        for kind, timing in (("forecast", run.forecast), ("replay", run.replay),
                             (record.real, run.measured)):
            if timing and timing.breakdown:
                values = [timing.breakdown.get(name, 0.0) for name in CATEGORIES]
                rows.append([run.model, Number(run.world), run.label, kind,
                             *(Number(duration(value)) for value in values),
                             Number(duration(sum(values)))])
    return rows


def make(records: list[Record], charts: Charts) -> Section | None:
    blocks, said = [], []
    for record in choose(records):
        pieces, words = [], []
        for (model, world), runs in groups(with_parts(record.runs)).items():
            name = place(model, world)
            words += [Finding(name, text, mode_of(record, runs)) for text in findings(runs)]
            figure = stacked_bars(runs, list(CATEGORIES), "time of an iteration", record.real)
            pieces.append(charts.add(figure, f"Stacked bars of the parts of iterations, {name}",
                                     name))
        said += words
        sources = timed_sources(record.runs)
        names = [name for name, _ in CATEGORIES.values()]
        head = ("model", "ranks", "algorithm", "", *names, "sum")
        content = (category_legend() + source_legend(record.real, sources) + grid(pieces)
                   + table(head, rows_of(record), "Breakdowns in numbers"))
        blocks.append(block(record, words, content))
    if not blocks:
        return None
    intro = ("<p>The parts of a bar add up to the iteration; communication counts only where "
             "no computation hides it.</p>")
    return Section("breakdown", "Breakdown", said, intro + "".join(blocks))
