# SPDX-License-Identifier: Apache-2.0
"""Events of a timeline as columns, and their reduction where there are too many to draw.

Neighbours in a lane that are shorter than a pixel would be at the deepest zoom become one event, in
the category that most of its time goes to. The page merges again for the part that it shows.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

import numpy as np

from .palette import CATEGORIES
from .record_fields import LANES
from .words import plural

SCREEN_PIXELS = 1500
DEEPEST_ZOOM = 4096
CATEGORY_INDEX = {name: number for number, name in enumerate(CATEGORIES)}
LANE_INDEX = {name: number for number, name in enumerate(LANES)}


@dataclass
class Events:
    """Columns of equal length, ordered by row and start. A row is a lane of a rank."""

    rows: np.ndarray
    categories: np.ndarray
    names: list[str]  # empty for merged events
    starts: np.ndarray
    durations: np.ndarray
    counts: np.ndarray  # how many events each stands for

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def end(self) -> float:
        return float((self.starts + self.durations).max()) if len(self) else 0.0


def name_of(event: list) -> str:
    return event[3] if len(event) == 6 else f"{event[3]}, {plural(event[6], 'element')}"


def columns(events: list[list]) -> Events:
    """The events of a record, sorted by row and start."""
    rows = np.fromiter((event[0] * len(LANES) + LANE_INDEX[event[1]] for event in events), np.int64,
                       len(events))
    starts = np.fromiter((event[4] for event in events), np.float64, len(events))
    order = np.lexsort((starts, rows))
    categories = np.fromiter((CATEGORY_INDEX[event[2]] for event in events), np.uint8, len(events))
    durations = np.fromiter((event[5] for event in events), np.float64, len(events))
    return Events(rows[order], categories[order], [name_of(events[place]) for place in order],
                  starts[order], durations[order], np.ones(len(events), np.int64))


def merge(events: Events, pixel: float) -> Events:
    """Makes one event of all that are shorter than a pixel and begin in the same one of a row."""
    if len(events) == 0 or pixel <= 0:
        return events
    small = events.durations < pixel
    cells = np.floor(events.starts / pixel).astype(np.int64)
    # A new group begins with a long event, behind one, and where row or cell change.
    begins = np.ones(len(events), bool)
    begins[1:] = ((events.rows[1:] != events.rows[:-1]) | (cells[1:] != cells[:-1])
                  | ~small[1:] | ~small[:-1])
    first = np.flatnonzero(begins)
    group = np.cumsum(begins) - 1
    ends = np.maximum.reduceat(events.starts + events.durations, first)
    time_of = np.zeros((len(first), len(CATEGORIES)))
    np.add.at(time_of, (group, events.categories), events.durations)
    counts = np.add.reduceat(events.counts, first)
    categories = np.where(counts == 1, events.categories[first], time_of.argmax(axis=1))
    names = [events.names[place] if number == 1 else ""
             for place, number in zip(first.tolist(), counts.tolist())]
    return Events(events.rows[first], categories.astype(np.uint8), names, events.starts[first],
                  ends - events.starts[first], counts)


def reduce(events: Events, most: int) -> tuple[Events, float]:
    """At most so many events, and the length below which neighbours were merged (0: none)."""
    if len(events) <= most:
        return events, 0.0
    pixel = events.end / (SCREEN_PIXELS * DEEPEST_ZOOM)
    while True:
        merged = merge(events, pixel)
        if len(merged) <= most or pixel > events.end:
            return merged, pixel
        pixel *= 2


def fair_share(sizes: list[int], most: int) -> int:
    """How many events each may keep so that all together keep at most so many."""
    left = sorted(sizes)
    while left and left[0] * len(left) <= most:
        most -= left.pop(0)
    return most // len(left) if left else max(sizes, default=0)


def packed(values: np.ndarray, kind: str) -> str:
    """A column for the page: base64 of little-endian numbers."""
    return base64.b64encode(values.astype(kind).tobytes()).decode("ascii")


def spec(events: Events) -> dict:
    """The events for the page's script."""
    table: dict[str, int] = {}
    names = np.fromiter((table.setdefault(name, len(table)) for name in events.names), np.uint32,
                        len(events))
    return {"rows": packed(events.rows, "<u4"), "categories": packed(events.categories, "<u1"),
            "names": packed(names, "<u4"), "starts": packed(events.starts, "<f8"),
            "durations": packed(events.durations, "<f4"), "counts": packed(events.counts, "<u4"),
            "table": list(table)}
