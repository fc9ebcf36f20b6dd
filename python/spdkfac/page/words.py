# SPDX-License-Identifier: Apache-2.0
"""Numbers, units and lists as people write them."""

from __future__ import annotations

from typing import Iterable


NBSP = "\u00a0"  # between a number and its unit: no line ends there


def significant(value: float, digits: int = 3) -> str:
    """A number with so many digits that count, never in the form 1e+03."""
    if value == 0:
        return "0"
    text = f"{value:#.{digits}g}"
    if "e+" in text:
        text = f"{float(text):.0f}"
    return text.rstrip(".")


def time_unit(seconds: float) -> tuple[str, float]:
    """A unit that suits a time, and its length in seconds."""
    for unit, length in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= length:
            return unit, length
    return ("ms", 1e-3) if seconds == 0 else ("µs", 1e-6)


def duration(seconds: float) -> str:
    unit, length = time_unit(seconds)
    return f"{significant(seconds / length)}{NBSP}{unit}"


def duration_range(low: float, high: float) -> str:
    """An interval in one unit, with digits enough to tell its ends apart."""
    unit, length = time_unit(high)
    low, high = low / length, high / length
    for digits in (3, 4, 5):
        first, last = significant(low, digits), significant(high, digits)
        if first != last or low == high:
            break
    return f"{first}–{last}{NBSP}{unit}"


def percent(share: float) -> str:
    value = 100 * share
    if 99 < value < 100:  # nearly all is not all
        return f"{min(value, 99.9):.1f}{NBSP}%"
    digits = 1 if 0 < abs(value) < 1 else 0
    return f"{value:.{digits}f}{NBSP}%"


def change(share: float) -> str:
    """A difference with its sign."""
    return f"{100 * share:+.0f}{NBSP}%".replace("-", "\u2212")


def times(factor: float) -> str:
    return f"{factor:.2f}{NBSP}×"


def size_unit(size: float) -> tuple[str, float]:
    for unit, length in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= length:
            return unit, length
    return "bytes", 1.0


def byte_count(size: float) -> str:
    unit, length = size_unit(size)
    return f"{significant(size / length)}{NBSP}{unit}"


def count(value: float) -> str:
    """A large number with spaces between thousands (thin ones that do not break)."""
    return f"{value:,.0f}".replace(",", "\u202f")


def plural(number: int, noun: str) -> str:
    return f"{count(number)} {noun}" + ("" if number == 1 else "s")


def and_list(parts: Iterable[str]) -> str:
    parts = list(parts)
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def short(name: str, longest: int = 26) -> str:
    """A name for an axis: its full form is in the hover and the table."""
    return name if len(name) <= longest else name[:longest - 1] + "…"


def place(model: str, world: int) -> str:
    return f"{model}, {plural(world, 'rank')}"
