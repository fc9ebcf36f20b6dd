# SPDX-License-Identifier: Apache-2.0
"""What a section of the page is, and the frame that each of its records stands in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape

from .markup import badge, items
from .records import Record, Run


@dataclass(frozen=True)
class Finding:
    """A sentence about what is seen: on which model and world, and how that is known."""

    where: str
    text: str
    mode: str


@dataclass(frozen=True)
class Section:
    """A part of the page. The summary repeats its findings."""

    id: str
    title: str
    findings: list[Finding]
    html: str


def found_list(findings: list[Finding], title: str) -> str:
    """Findings as lists, one for each place that they are about."""
    places: dict[str, list[str]] = {}
    for finding in findings:
        places.setdefault(finding.where, []).append(finding.text)
    lists = "".join(
        "<div>" + (f'<p class="where">{escape(where)}</p>' if where not in ("", title) else "")
        + items(texts) + "</div>" for where, texts in places.items())
    return f'<div class="places">{lists}</div>'


def mode_of(record: Record, runs: list[Run]) -> str:
    """How these runs of a record are known: where nothing was measured, by simulation."""
    return record.mode if any(run.measured for run in runs) else "simulated"


def option_text(value: object) -> str:
    """A value of an option as people would write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {option_text(entry)}"
                         for name, entry in value.items() if entry not in ("", None, [], {}))
    if isinstance(value, list):
        if value and all(isinstance(entry, int) for entry in value):
            return "×".join(str(entry) for entry in value)
        return "; ".join(option_text(entry) for entry in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def origin(record: Record) -> str:
    """Where a record comes from."""
    made = record.made
    facts = [("cluster", record.cluster), ("host", made["host"]), ("device", made["device"]),
             ("version", " ".join(filter(None, (made["version"], made["commit"])))),
             ("made", made["time"]),
             *((name.replace("_", " "), option_text(value))
               for name, value in record.options.items())]
    pairs = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
                    for name, value in facts if value)
    return f'<dl class="origin">{pairs}</dl>'


def block(record: Record, findings: list[Finding], content: str) -> str:
    """One record of a section: title and badge, what is seen, its charts, where it comes from."""
    host = record.made["host"] if record.mode != "simulated" else ""
    title = record.cluster or host or record.experiment
    note = f'<p class="note">{escape(record.note)}</p>' if record.note else ""
    return (f'<article class="record"><header><h3>{escape(title)}</h3>{badge(record.mode)}</header>'
            f"{found_list(findings, title)}{note}{content}{origin(record)}</article>")
