# SPDX-License-Identifier: Apache-2.0
"""The table of one model and mode, in ms and MB."""

from __future__ import annotations

from collections.abc import Sequence

from results import Row, base_of, ratio


def number_text(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def milliseconds(seconds: float) -> str:
    return number_text(1e3 * seconds)


def megabytes(count: int | None) -> str:
    return "–" if count is None else f"{count / 1e6:.0f}"


def cells(row: Row, rows: Sequence[Row], memory: bool) -> list[str]:
    low, median, high = map(milliseconds, row.quartiles)
    times = ratio(row, rows)
    return [row.job.optimizer.title, median, f"{low}–{high}", milliseconds(row.mean),
            milliseconds(max(row.seconds)), milliseconds(row.wall), "–" if times is None else f"{times:.2f}",
            *([megabytes(row.peak("peak")), megabytes(row.peak("reserved"))] if memory else [])]


def table(rows: Sequence[Row], caption: str, memory: bool) -> str:
    """What failed has its error instead of figures."""
    base = base_of(rows)
    head = ["optimizer", "median", "quartiles", "mean", "slowest", "wall",
            f"× {base.job.optimizer.title}" if base else "×", *(["peak MB", "reserved MB"] if memory else [])]
    found = [cells(row, rows, memory) if row.turns else [row.job.optimizer.title] for row in rows]
    widths = [max(len(line[place]) for line in [head, *found] if place < len(line)) for place in range(len(head))]

    def line(texts: Sequence[str]) -> str:
        return "  ".join([texts[0].ljust(widths[0]),
                          *(text.rjust(width) for text, width in zip(texts[1:], widths[1:]))])
    return "\n".join([caption, line(head), "  ".join("─" * width for width in widths), *(
        line(texts) if row.turns else f"{line(texts)}  FAILED: {row.error}" for row, texts in zip(rows, found))])
