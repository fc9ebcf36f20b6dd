# SPDX-License-Identifier: Apache-2.0
"""Pieces of HTML. Every text goes through escape(); what a function returns is HTML."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from typing import Iterable, Sequence

from .palette import CATEGORIES

MODE_MEANS = {
    "simulated": "from a cost model alone",
    "measured": "real ranks",
    "emulated": "one real rank of a larger world; its peers and link are emulated",
}


@dataclass(frozen=True)
class Raw:
    """HTML that stands in a cell as it is."""

    html: str


def script_json(value: object) -> str:
    """JSON that may stand in a <script>: no text in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def items(texts: Iterable[str], kind: str = "findings") -> str:
    return f'<ul class="{kind}">' + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"


def badge(mode: str) -> str:
    return f'<span class="badge {mode}" title="{escape(MODE_MEANS[mode])}">{mode}</span>'


def cell(value: object) -> str:
    if value is None:
        return '<td class="none">–</td>'
    if isinstance(value, Raw):
        return f"<td>{value.html}</td>"
    if isinstance(value, str):
        return f"<td>{escape(value)}</td>"
    return f'<td class="number">{escape(str(value))}</td>'


class Number(str):
    """A text that is a number: it stands at the right of its column."""

    __slots__ = ()


def table(head: Sequence[str], rows: Iterable[Sequence[object]], caption: str,
          is_open: bool = False) -> str:
    """A table that folds. None is a dash; Number stands at the right."""
    rows = list(rows)
    right = [all(row[place] is None or isinstance(row[place], Number) for row in rows)
             for place in range(len(head))]

    def made(value: object, place: int) -> str:
        if right[place]:
            content = "–" if value is None else escape(str(value))
            return f'<td class="number">{content}</td>'
        return cell(value)

    classes = [' class="number"' if numbers else "" for numbers in right]
    titles = "".join(f'<th scope="col"{kind}>{escape(title)}</th>'
                     for kind, title in zip(classes, head))
    body = "".join("<tr>" + "".join(made(value, place) for place, value in enumerate(row)) + "</tr>"
                   for row in rows)
    return (f'<details class="numbers"{" open" if is_open else ""}>'
            f"<summary>{escape(caption)}</summary>"
            f'<div class="scroll"><table><thead><tr>{titles}</tr></thead>'
            f"<tbody>{body}</tbody></table></div></details>")


def legend(entries: Iterable[tuple[str, str]], kind: str = "solid") -> str:
    """A key of names and colours."""
    return '<ul class="legend">' + "".join(
        f'<li><i class="{kind}" style="--c:{colour}"></i>{escape(name)}</li>'
        for name, colour in entries) + "</ul>"


def source_names(real: str) -> dict[str, str]:
    """What a reader calls the times of a source."""
    return {"paper": "the paper’s", "forecast": "forecast", "replay": "replay", "measured": real}


def source_legend(real: str, sources: Iterable[str]) -> str:
    """How bars look that come from the paper, a forecast, a replay, a measurement."""
    names = source_names(real)
    return '<ul class="legend">' + "".join(
        f'<li><i class="{source}"></i>{names[source]}</li>' for source in sources) + "</ul>"


def line_legend(real: str, sources: Iterable[str]) -> str:
    """How lines look that come from a forecast, a replay and a measurement."""
    looks = {"forecast": ("dotted", "forecast"), "replay": ("dashed", "replay"),
             "measured": ("drawn", real)}
    return '<ul class="legend">' + "".join(
        f'<li><i class="{kind}"></i>{name}</li>'
        for kind, name in (looks[source] for source in sources if source in looks)) + "</ul>"


def category_legend() -> str:
    return legend(CATEGORIES.values())
