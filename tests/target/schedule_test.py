# SPDX-License-Identifier: Apache-2.0
"""Schedules and the points of evaluation."""

from __future__ import annotations

import pytest

import schedule
from mistake import Mistake
from training import evaluation_steps


@pytest.mark.parametrize("name", ["cosine", "linear"])
@pytest.mark.parametrize("steps", [1, 2, 7, 100])
def test_a_schedule_rises_to_one_and_falls_towards_zero(name: str, steps: int) -> None:
    shares = [schedule.share(name, step, steps) for step in range(steps)]
    top = shares.index(max(shares))
    assert shares[top] == 1
    assert shares[:top] == sorted(shares[:top])
    assert shares[top:] == sorted(shares[top:], reverse=True)
    assert all(0 < share <= 1 for share in shares)


def test_the_warm_up_takes_a_twentieth() -> None:
    shares = [schedule.share("linear", step, 100) for step in range(100)]
    assert shares[:5] == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert shares[99] == pytest.approx(1 / 96)  # 96 steps from 1 to 0, which would be the next one


def test_half_of_a_cosine_is_a_half() -> None:
    # 21 steps warm up for one: the middle of the 20 that are left, and of the one after them, is step 10.5.
    around = [schedule.share("cosine", step, 21) for step in (10, 11)]
    assert sum(around) / 2 == pytest.approx(0.5, abs=0.08)


def test_an_unknown_schedule_is_named() -> None:
    with pytest.raises(Mistake, match=r"schedule: is unknown \(square\); give one of cosine, linear"):
        schedule.share("square", 0, 10)


def test_evaluations_are_equally_spaced_and_end_with_the_run() -> None:
    assert evaluation_steps(100, 4) == [25, 50, 75, 100]
    assert evaluation_steps(3, 40) == [1, 2, 3]
    assert evaluation_steps(10, 3) == [3, 7, 10]
