# SPDX-License-Identifier: Apache-2.0
"""The summary: in words what the main runs show, their numbers large, then every section's news."""

from __future__ import annotations

from html import escape

from .compare import (error_texts, fastest_text, find, groups, hiding, hiding_text, mean_error,
                      order_texts, speed_up, speed_up_text)
from .markup import MODE_MEANS, badge, items
from .records import Record, Run
from .section import Finding, Section, mode_of
from .words import duration, duration_range, percent, place, times

PREFERRED = ("measured", "emulated", "simulated")
MOST_SENTENCES = 3  # of a section; the rest stands there
SPEED_UPS = (("d-kfac", "SP1"), ("mpd-kfac", "SP2"))


def main_group(records: list[Record]) -> tuple[Record, list[Run]] | None:
    """The runs that the summary begins with: the first with SPD-KFAC, measured if possible."""
    for mode in PREFERRED:
        for record in records:
            if record.experiment == "iteration" and record.mode == mode:
                for runs in groups(record.runs).values():
                    best = find(runs, "spd-kfac")
                    if best and best.best:
                        return record, runs
    return None


def tile(value: str, name: str, more: str) -> str:
    return (f'<div class="tile"><strong>{escape(value)}</strong><span>{escape(name)}</span>'
            f"<small>{escape(more)}</small></div>")


def tiles(record: Record, runs: list[Run]) -> str:
    """The numbers of the main runs."""
    run = find(runs, "spd-kfac")
    timing = run.best
    interval = ("forecast" if timing.low is None
                else f"95 % interval {duration_range(timing.low, timing.high)}")
    pieces = [tile(duration(timing.seconds), f"{run.label} iteration", interval)]
    for over, name in SPEED_UPS:
        up = speed_up(run, find(runs, over))
        if up:
            other = up.over.forecast if up.forecast else up.over.measured
            more = (f"the paper has {times(up.paper)}" if up.paper
                    else f"that takes {duration(other.seconds)}")
            pieces.append(tile(times(up.factor) if up.differs else "no difference",
                               f"as fast as {up.over.label} ({name})" if up.differs
                               else f"to {up.over.label} ({name})",
                               more if up.differs else "within the noise of the samples"))
    hidden = hiding(run)
    if hidden:
        pieces.append(tile(percent(hidden.hidden_share), "of factor communication hidden",
                           f"{duration(hidden.exposed)} stay visible"))
    for source in ("replay", "forecast"):
        error = mean_error(runs, source)
        if error is not None:
            pieces.append(tile(percent(error), f"mean error of the {source}s",
                               f"against {record.real}"))
    return f'<div class="tiles">{"".join(pieces)}</div>'


def lead_findings(record: Record, runs: list[Run]) -> list[Finding]:
    """What the main runs say."""
    run = find(runs, "spd-kfac")
    hidden = hiding(run)
    ups = [(speed_up(run, find(runs, over)), name) for over, name in SPEED_UPS]
    texts = [hiding_text(hidden) if hidden else None, fastest_text(runs, record.real),
             *(speed_up_text(up, name) for up, name in ups if up),
             *error_texts(runs, record.real), *order_texts(runs, record.real)]
    where = place(run.model, run.world)
    return [Finding(where, text, mode_of(record, runs)) for text in texts if text]


def lead(record: Record, runs: list[Run], findings: list[Finding]) -> str:
    """The main runs in sentences, and their numbers."""
    where = place(runs[0].model, runs[0].world) + (f", {record.cluster}" if record.cluster else "")
    mode = mode_of(record, runs)
    meaning = f'<span class="soft">{escape(MODE_MEANS[mode])}</span>'
    return (f'<p class="where">{escape(where)} {badge(mode)} {meaning}</p>'
            + items((finding.text for finding in findings), "findings lead")
            + tiles(record, runs))


def sentences(section: Section, said: list[Finding]) -> str:
    """The first findings of a section that are not said yet, what was measured before the rest."""
    ordered = sorted((finding for finding in section.findings if finding not in said),
                     key=lambda finding: PREFERRED.index(finding.mode))
    if not ordered:
        return ""
    shown: dict[tuple[str, str], list[str]] = {}
    for finding in ordered[:MOST_SENTENCES]:
        shown.setdefault((finding.where, finding.mode), []).append(finding.text)
    lists = "".join(f'<p class="where">{escape(where)} {badge(mode)}</p>{items(texts)}'
                    for (where, mode), texts in shown.items())
    left = len(ordered) - MOST_SENTENCES
    more = (f'<p class="more"><a href="#{section.id}">{left} more in the section</a></p>'
            if left > 0 else "")
    return (f'<div class="found"><h3><a href="#{section.id}">{escape(section.title)}</a></h3>'
            f"{lists}{more}</div>")


def make(records: list[Record], sections: list[Section]) -> Section:
    if not records:
        html = ('<p class="empty">No records were given, so there is nothing to show. Make one '
                "with <code>spdkfac bench iteration --out record.json</code>.</p>")
    elif not sections:
        html = '<p class="empty">The records are empty: no runs, models, curves or points.</p>'
    else:
        main = main_group(records)
        said = lead_findings(*main) if main else []
        html = (lead(*main, said) if main else "") + '<div class="summary">' + "".join(
            sentences(section, said) for section in sections) + "</div>"
    return Section("summary", "Summary", [], html)
