# SPDX-License-Identifier: Apache-2.0
"""Badges of README.md: what the project's own files say, without a service that could be away."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape

from svg import ROOT, number

PAPER = "arXiv 2107.06533"
GREY, BLUE = "#4b5563", "#0b63a5"
LETTER = 6.5  # mean width of one, at 11 pixels, in a wide font


def facts() -> dict[str, tuple[str, str]]:
    """Name of the file: what, and its value."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    torch = (ROOT / "cmake/Torch.cmake").read_text(encoding="utf-8")
    return {"paper": ("paper", PAPER),
            "licence": ("licence", one(r'^license = "([^"]+)"', project)),
            "python": ("Python", one(r'^requires-python = ">=([0-9.]+)"', project) + " or newer"),
            "torch": ("torch", one(r"^set\(SPDKFAC_TESTED_TORCH ([0-9. ]+)\)", torch).replace(" ", ", ")),
            "devices": ("C++20", "CPU, CUDA")}


def one(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.M)
    if found is None:
        raise SystemExit(f"tools/docs: no line matches {pattern}; change badges.py with that file")
    return found[1]


def draw(what: str, value: str) -> str:
    left, right = (LETTER * len(words) + 14 for words in (what, value))
    whole = number(left + right)
    texts = "".join(f'<text x="{number(x)}" y="14">{escape(words)}</text>'
                    for x, words in ((left / 2, what), (left + right / 2, value)))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="20" role="img" '
            f'aria-label="{escape(what)}: {escape(value)}">\n<title>{escape(what)}: {escape(value)}</title>\n'
            f'<clipPath id="round"><rect width="{whole}" height="20" rx="4"/></clipPath>\n'
            f'<g clip-path="url(#round)"><rect width="{whole}" height="20" fill="{GREY}"/>'
            f'<rect x="{number(left)}" width="{number(right)}" height="20" fill="{BLUE}"/></g>\n'
            f'<g fill="#fff" font-family="Verdana,\'DejaVu Sans\',sans-serif" font-size="11" text-anchor="middle">'
            f"{texts}</g>\n</svg>\n")
