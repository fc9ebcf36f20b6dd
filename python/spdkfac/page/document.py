# SPDX-License-Identifier: Apache-2.0
"""The page itself: one HTML file with its style, its script and plotly inside."""

from __future__ import annotations

from collections import Counter
from html import escape
from pathlib import Path

from plotly.offline import get_plotlyjs

from . import sections
from . import summary
from .charts import Charts
from .markup import script_json
from .records import Record
from .section import Section
from .words import and_list, plural

ASSETS = Path(__file__).resolve().parent / "assets"

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#summary">Skip to the summary</a>
<nav aria-label="Sections">
<div class="brand">{title}</div>
<ul>{links}</ul>
<button id="theme" type="button" title="Light, dark, or the system setting">Theme: auto</button>
</nav>
<main>
<header class="top"><h1>{title}</h1><p>{about}</p></header>
{body}
<footer>Made by spdkfac from {files}.</footer>
</main>
<noscript><p class="noscript">The charts need JavaScript; the tables do not.</p></noscript>
<script type="application/json" id="charts">{charts}</script>
{plotly}<script>{script}</script>
</body>
</html>
"""


def asset(*names: str) -> str:
    return "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in names)


def about(records: list[Record]) -> str:
    """How many records there are, of which kind, and from when."""
    if not records:
        return "No records."
    modes = Counter(record.mode for record in records)
    kinds = and_list(f"{number} {mode}" for mode, number in modes.items())
    days = sorted(record.made["time"][:10] for record in records if record.made["time"])
    when = ""
    if days:
        when = f", made {days[0]}" if days[0] == days[-1] else f", made {days[0]} to {days[-1]}"
    return f"{plural(len(records), 'record')}: {kinds}{when}."


def framed(section: Section) -> str:
    return (f'<section id="{section.id}"><h2>{escape(section.title)}</h2>{section.html}</section>')


def make(records: list[Record], title: str) -> str:
    """The whole page."""
    charts = Charts()
    found = sections.make(records, charts)
    found.insert(0, summary.make(records, found))
    links = "".join(f'<li><a href="#{section.id}">{escape(section.title)}</a></li>'
                    for section in found)
    plotly = f"<script>{get_plotlyjs()}</script>\n" if charts.specs else ""
    return PAGE.format(
        title=escape(title), style=asset("page.css"), links=links, about=escape(about(records)),
        body="\n".join(framed(section) for section in found),
        files=escape(plural(len(records), "record")), charts=script_json(charts.specs),
        plotly=plotly, script=asset("timeline.js", "page.js"))
