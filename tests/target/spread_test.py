# SPDX-License-Identifier: Apache-2.0
"""Samples of search spaces."""

from __future__ import annotations

from collections import Counter

import pytest

from spread import Choices, LogRange, sample

SPACE = {"lr": LogRange(1e-4, 1.0), "weight_decay": Choices((0.0, 0.1)), "damping": LogRange(1e-2, 1e2)}


def test_each_part_of_a_range_gives_one_trial() -> None:
    # Eight parts of four decades are half decades; their middles are 10^-3.75, 10^-3.25 and so on.
    settings = sample(SPACE, 8, seed=0)
    assert sorted(setting["lr"] for setting in settings) == pytest.approx(
        [10 ** (-3.75 + 0.5 * part) for part in range(8)], rel=0.05)
    assert len({setting["damping"] for setting in settings}) == 8


def test_choices_are_tried_equally_often() -> None:
    counts = Counter(setting["weight_decay"] for setting in sample(SPACE, 8, seed=0))
    assert counts == {0.0: 4, 0.1: 4}


def test_rates_and_dampings_do_not_rise_together() -> None:
    settings = sorted(sample(SPACE, 8, seed=0), key=lambda setting: setting["lr"])
    dampings = [setting["damping"] for setting in settings]
    assert dampings not in (sorted(dampings), sorted(dampings, reverse=True))


def test_a_seed_gives_always_the_same_sample() -> None:
    assert sample(SPACE, 8, seed=3) == sample(SPACE, 8, seed=3)
    assert sample(SPACE, 8, seed=3) != sample(SPACE, 8, seed=4)


def test_a_small_space_gives_each_point_once() -> None:
    assert sample({"a": Choices((1, 2))}, 8, seed=0) in ([{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 1}])
    assert sample({}, 8, seed=0) == [{}]
