# SPDX-License-Identifier: Apache-2.0
"""Timeline of an iteration: what each rank does and sends: forecast, replay, measured."""

from __future__ import annotations

from .. import events
from ..charts import Charts
from ..markup import Number, category_legend, source_names, table
from ..palette import CATEGORIES
from ..records import Record
from ..section import Finding, Section, block
from ..words import count, duration, percent, place, plural

MOST_EVENTS = 240_000  # of all timelines of a page
HEIGHT = 460  # until the script has drawn it
KINDS = ("forecast", "replay", "measured")


def shown(trace: dict) -> bool:
    """Whether there are events of any kind."""
    return any(trace.get(kind) for kind in KINDS)


def channel_share(found: events.Events) -> float | None:
    """Of the time that channels are busy, the share in which their rank computes."""
    busy = hidden = 0.0
    for rank in sorted({int(row) // 2 for row in found.rows}):
        lanes = []
        for lane in range(2):
            of_lane = found.rows == 2 * rank + lane
            lanes.append(list(zip(found.starts[of_lane].tolist(),
                                  (found.starts + found.durations)[of_lane].tolist())))
        compute, channel = lanes
        busy += sum(end - start for start, end in channel)
        place_of = 0
        for start, end in channel:
            while place_of < len(compute) and compute[place_of][1] <= start:
                place_of += 1
            other = place_of
            while other < len(compute) and compute[other][0] < end:
                hidden += min(end, compute[other][1]) - max(start, compute[other][0])
                other += 1
    return hidden / busy if busy else None


def side(found: list[list] | None, most: int) -> tuple[dict | None, dict | None]:
    """Events for the page, and what the table tells of them."""
    if not found:
        return None, None
    whole = events.columns(found)
    reduced, pixel = events.reduce(whole, most)
    facts = {"events": len(whole), "drawn": len(reduced), "pixel": pixel, "end": whole.end,
             "ranks": len({int(row) // 2 for row in whole.rows}),
             "merged": int(reduced.counts[reduced.counts > 1].sum()),
             "share": channel_share(whole)}
    return events.spec(reduced), facts


def merged_text(facts: dict) -> str:
    return (f"{count(facts['merged'])} of {plural(facts['events'], 'event')} were shorter than "
            f"{duration(facts['pixel'])} and are merged with their neighbours; "
            f"{count(facts['drawn'])} are left.")


def findings(where: str, label: str, kind: str, facts: dict, mode: str,
             main: bool) -> list[Finding]:
    """What was merged; of the main algorithm also how well it hides its messages."""
    texts = []
    if main and facts["share"] is not None:
        texts.append(f"{label}, {kind}: ranks compute during {percent(facts['share'])} of the time "
                     "in which they send.")
    if facts["merged"]:
        texts.append(f"{label}, {kind}: {merged_text(facts)}")
    return [Finding(where, text, mode) for text in texts]


def main_trace(traces: list[dict]) -> int:
    """The one to show first: that of SPD-KFAC if there is one."""
    return next((place for place, trace in enumerate(traces)
                 if trace["algorithm"] == "spd-kfac"), 0)


def make(records: list[Record], charts: Charts) -> Section | None:
    chosen = [record for record in records
              if any(shown(trace) for trace in record.body.get("traces", []))]
    if not chosen:
        return None
    most = events.fair_share([len(trace.get(kind) or []) for record in chosen
                              for trace in record.body["traces"]
                              for kind in KINDS], MOST_EVENTS)
    blocks, said = [], []
    for record in chosen:
        views, words, rows = [], [], []
        traces = [trace for trace in record.body["traces"] if shown(trace)]
        first = main_trace(traces)
        main = traces[first]["algorithm"]
        for trace in traces:
            where = place(trace["model"], trace["world"])
            label = trace["label"] or trace["algorithm"]
            view = {"label": f"{label} · {where}"}
            for kind in KINDS:
                word = source_names(record.real)[kind]
                view[kind], facts = side(trace.get(kind), most)
                if facts:
                    mode = record.mode if kind == "measured" else "simulated"
                    words += findings(where, label, word, facts, mode,
                                      trace["algorithm"] == main)
                    rows.append([where, label, word, Number(count(facts["events"])),
                                 Number(count(facts["drawn"])), Number(duration(facts["end"])),
                                 Number(facts["ranks"]), None if facts["share"] is None
                                 else Number(percent(facts["share"]))])
            views.append(view)
        spec = {"kind": "timeline", "views": views, "first": first, "real": record.real,
                "categories": [[name, colour] for name, colour in CATEGORIES.values()]}
        said += words
        chart = charts.place(spec, HEIGHT, "Timeline of an iteration by rank and lane")
        head = ("of", "algorithm", "", "events", "drawn", "length", "ranks",
                "sending that computation hides")
        content = category_legend() + chart + table(head, rows, "Timelines in numbers")
        blocks.append(block(record, words, content))
    intro = ("<p>Time runs to the right. Each rank has a lane of computation and a lane of "
             "messages; drag to zoom in, double-click to see all, hover for the name.</p>")
    return Section("timeline", "Timeline", said, intro + "".join(blocks))
