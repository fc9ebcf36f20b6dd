# SPDX-License-Identifier: Apache-2.0
"""Tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


class Markup(str):
    """HTML that stands in a row as it is; every other text is escaped."""


def table(caption: str, titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table; numbers stand right, floats have three digits behind the point."""
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return (f'<table><caption style="caption-side:top;text-align:left">{escape(caption)}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")


def bar(share: float) -> Markup:
    """A cell with a bar for a share from 0 to 1."""
    width = round(160 * max(0.0, min(1.0, share)))
    return Markup('<td><div style="background:#4c78a8;height:0.8em;'
                  f'width:{width}px"></div></td>')


def _cell(value: object) -> str:
    if isinstance(value, Markup):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f'<td style="text-align:left">{escape(str(value))}</td>'
    text = f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
    return f'<td style="text-align:right">{text}</td>'
