# SPDX-License-Identifier: Apache-2.0
"""A small sample of a search space that is spread well.

It is a Latin hypercube: with n trials a logarithmic range is cut into n equal parts, the middle of each is
one trial, and each of a list of choices is tried equally often. Of many random hypercubes it is the one whose
nearest two trials are farthest apart.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

CANDIDATES = 256


@dataclass(frozen=True)
class LogRange:
    low: float
    high: float

    def at(self, place: float) -> float:
        """0 to 1 is low to high; two digits are enough."""
        return float(f"{self.low * (self.high / self.low) ** place:.1e}")


@dataclass(frozen=True)
class Choices:
    values: tuple[Any, ...]

    def at(self, place: float) -> Any:
        return self.values[min(int(place * len(self.values)), len(self.values) - 1)]


Dimension = Union[LogRange, Choices]
Space = Mapping[str, Dimension]
Setting = dict[str, Any]


def sample(space: Space, trials: int, seed: int) -> list[Setting]:
    """So many settings; fewer where the space has no more."""
    if not space:
        return [{}]
    chance = random.Random(seed)
    best = max((_hypercube(space, trials, chance) for _ in range(CANDIDATES)), key=_smallest_distance)
    settings: list[Setting] = []
    for point in best:
        setting = {name: dimension.at(place) for (name, dimension), place in zip(space.items(), point)}
        if setting not in settings:
            settings.append(setting)
    return settings


def _hypercube(space: Space, trials: int, chance: random.Random) -> list[tuple[float, ...]]:
    columns = []
    for _ in space:
        column = [(part + 0.5) / trials for part in range(trials)]
        chance.shuffle(column)
        columns.append(column)
    return list(zip(*columns))


def _smallest_distance(points: Sequence[tuple[float, ...]]) -> float:
    return min((math.dist(one, other) for place, one in enumerate(points) for other in points[:place]),
               default=math.inf)
