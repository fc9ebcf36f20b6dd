# SPDX-License-Identifier: Apache-2.0
"""Small checks of JSON values that know the name of the field they look at."""

from __future__ import annotations

import json
from typing import Callable

Check = Callable[[object, str], None]

LONGEST_VALUE = 60
LARGEST = 1e18  # of any number: sums and ratios of such stay numbers


class Problem(Exception):
    """A wrong field: its name, what is wrong, and what to do."""

    def __init__(self, field: str, what: str, value: object, advice: str) -> None:
        super().__init__(f"{field}: {what} ({shown(value)}); {advice}")


class Missing:
    """Stands for the value of a field that is not there."""


def shown(value: object) -> str:
    """A value as it stands in a message: JSON, on one line, cut when long."""
    if isinstance(value, Missing):
        return "missing"
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = str(value)
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + "…"


def text(value: object, field: str) -> None:
    if not isinstance(value, str):
        raise Problem(field, "must be a text", value, "write it in quotes")


def boolean(value: object, field: str) -> None:
    if not isinstance(value, bool):
        raise Problem(field, "must be true or false", value, "write true or false")


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and (
        -LARGEST <= value <= LARGEST)  # false for NaN


def number(minimum: float | None, advice: str) -> Check:
    """A number of a sensible size, at least `minimum` where that is given."""
    wanted = "must be a number" + ("" if minimum is None else f" of at least {minimum:g}")

    def check(value: object, field: str) -> None:
        if type(value) in (int, float) and abs(value) > LARGEST:
            raise Problem(field, f"is over {LARGEST:g}", value, advice)
        if not is_number(value) or (minimum is not None and value < minimum):
            raise Problem(field, wanted, value, advice)
    return check


def whole(minimum: int, advice: str, maximum: int = 1 << 64) -> Check:
    def check(value: object, field: str) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise Problem(field, f"must be a whole number of at least {minimum}", value, advice)
        if value > maximum:
            raise Problem(field, f"must be at most {maximum}", value, advice)
    return check


def one_of(*choices: str) -> Check:
    advice = f"write {', '.join(choices[:-1])} or {choices[-1]}"

    def check(value: object, field: str) -> None:
        if value not in choices:
            raise Problem(field, "is unknown", value, advice)
    return check


def or_null(inner: Check) -> Check:
    def check(value: object, field: str) -> None:
        if value is not None:
            inner(value, field)
    return check


def list_of(inner: Check, minimum: int = 0) -> Check:
    def check(value: object, field: str) -> None:
        if not isinstance(value, list):
            raise Problem(field, "must be a list", value, "write […]")
        if len(value) < minimum:
            raise Problem(field, f"must have at least {minimum} entries", value, "add them")
        for place, entry in enumerate(value):
            inner(entry, f"{field}[{place}]")
    return check


def tuple_of(*inners: Check) -> Check:
    def check(value: object, field: str) -> None:
        if not isinstance(value, list) or len(value) != len(inners):
            raise Problem(field, f"must be a list of {len(inners)} values", value, "write […]")
        for place, (entry, inner) in enumerate(zip(value, inners)):
            inner(entry, f"{field}[{place}]")
    return check


def any_object(value: object, field: str) -> None:
    if not isinstance(value, dict):
        raise Problem(field, "must be an object", value, "write {…}")


def values_of(inner: Check) -> Check:
    """An object whose values are alike, whatever their names."""
    def check(value: object, field: str) -> None:
        any_object(value, field)
        for name, entry in value.items():
            inner(entry, f"{field}.{name}")
    return check


def fields(required: dict[str, Check], optional: dict[str, Check] | None = None) -> Check:
    """An object with these fields. Others are let through: newer records have more."""
    def check(value: object, field: str) -> None:
        any_object(value, field or "record")
        prefix = f"{field}." if field else ""
        for name, inner in required.items():
            if name not in value:
                raise Problem(prefix + name, "is needed", Missing(), "write the record again")
            inner(value[name], prefix + name)
        for name, inner in (optional or {}).items():
            if name in value:
                inner(value[name], prefix + name)
    return check
