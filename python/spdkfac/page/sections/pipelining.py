# SPDX-License-Identifier: Apache-2.0
"""Pipelining: computing factors, and the communication of factors that stays visible."""

from __future__ import annotations

from ..bars import stacked_bars, timed_sources
from ..charts import Charts, grid
from ..compare import groups, hiding, hiding_text
from ..markup import Number, legend, source_legend, table
from ..palette import CATEGORIES
from ..records import Record, Run
from ..section import Finding, Section, block, mode_of
from .breakdown import with_parts
from ..words import duration, percent, place

PARTS = ["factor_comp", "factor_comm"]


def findings(runs: list[Run]) -> list[str]:
    """The run that hides most, and the one that hides least."""
    known = sorted(filter(None, (hiding(run) for run in runs)),
                   key=lambda found: found.hidden_share, reverse=True)
    texts = [hiding_text(known[0])] if known else []
    if len(known) > 1:
        least = known[-1]
        texts.append(f"{least.run.label} hides least, {percent(least.hidden_share)}: "
                     f"{duration(least.exposed)} stay visible.")
    return texts


def rows_of(record: Record) -> list[list[object]]:
    rows: list[list[object]] = []
    for run in with_parts(record.runs):
        for kind, timing in (("forecast", run.forecast), ("replay", run.replay),
                             (record.real, run.measured)):
            if timing is None or not timing.breakdown:
                continue
            exposed, messages = timing.breakdown.get("factor_comm", 0.0), timing.factor_messages
            rows.append([run.model, Number(run.world), run.label, kind,
                         Number(duration(timing.breakdown.get("factor_comp", 0.0))),
                         Number(duration(exposed)),
                         None if messages is None else Number(duration(messages)),
                         Number(percent(max(0.0, 1 - exposed / messages))) if messages else None])
    return rows


def make(records: list[Record], charts: Charts) -> Section | None:
    chosen = [record for record in records
              if record.experiment == "pipelining" and with_parts(record.runs)]
    blocks, said = [], []
    for record in chosen:
        pieces, words = [], []
        for (model, world), runs in groups(with_parts(record.runs)).items():
            name = place(model, world)
            words += [Finding(name, text, mode_of(record, runs)) for text in findings(runs)]
            figure = stacked_bars(runs, PARTS, "factors: computation and visible communication",
                                  record.real, hidden=True)
            pieces.append(charts.add(figure, f"Factor computation and communication, {name}", name))
        said += words
        sources = timed_sources(record.runs)
        key = (legend(CATEGORIES[part] for part in PARTS)
               + legend([("FactorComm, hidden", CATEGORIES["factor_comm"][1])], "pale")
               + source_legend(record.real, sources))
        head = ("model", "ranks", "schedule", "", "FactorComp", "FactorComm, visible",
                "factor messages", "hidden")
        content = key + grid(pieces) + table(head, rows_of(record), "Pipelining in numbers")
        blocks.append(block(record, words, content))
    if not blocks:
        return None
    intro = ("<p>The number at a bar is the time that counts: computing factors, and sending them where "
             "no computation hides it. The pale end is sent meanwhile and costs nothing.</p>")
    return Section("pipelining", "Pipelining", said, intro + "".join(blocks))
