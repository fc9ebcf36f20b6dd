# SPDX-License-Identifier: Apache-2.0
"""Medians, quartiles, ratios and the table."""

from __future__ import annotations

import math

import pytest

from summary import Row, Spread, median, ratio, spread_of, spread_text, table

NEVER = math.inf


def row(optimizer: str, first_order: bool, steps: list[float], task: str = "tiny") -> Row:
    return Row(task, optimizer, first_order, steps, [step / 10 for step in steps], "lr 0.1, 100 steps")


ROWS = [row("sgd", True, [NEVER, 90, NEVER]), row("adamw", True, [40, 60, 50]),
        row("kfac", False, [20, 10, 15])]


def test_quartiles_lie_between_values_in_proportion() -> None:
    assert spread_of([1, 2, 3, 4, 5]) == Spread(2, 3, 4)
    assert spread_of([4, 1]) == Spread(1.75, 2.5, 3.25)
    assert spread_of([7]) == Spread(7, 7, 7)


def test_runs_that_do_not_get_there_are_infinite() -> None:
    assert median([1, NEVER, 2]) == 2
    assert median([1, NEVER]) == NEVER
    assert spread_of([1, 2, NEVER]) == Spread(1.5, 2, NEVER)
    assert spread_of([NEVER, NEVER]) == Spread(NEVER, NEVER, NEVER)


def test_a_median_that_is_not_reached_says_so() -> None:
    assert spread_text([1, NEVER, NEVER]) == "not reached"
    assert spread_text([10, 20, NEVER]) == "20 (15–∞)"
    assert spread_text([12]) == "12"


def test_ratios_are_to_the_best_first_order_optimizer_of_the_task() -> None:
    rows = ROWS + [row("adamw", True, [5], task="other")]
    assert ratio(ROWS[2], rows, "steps") == pytest.approx(0.3)  # 15 / 50
    assert ratio(ROWS[1], rows, "seconds") == 1
    assert ratio(ROWS[0], rows, "steps") is None
    assert ratio(ROWS[2], [ROWS[0], ROWS[2]], "steps") is None  # nothing of first order got there


def test_the_columns_of_the_table_are_aligned() -> None:
    lines = table(ROWS).splitlines()
    assert len(lines) == 5
    assert lines[0].split() == "task optimizer reached steps seconds steps × seconds × settings".split()
    assert {line.index("lr 0.1") for line in lines[2:]} == {lines[0].index("settings")}
    assert "not reached" in lines[2] and "1 of 3" in lines[2]
    assert "15 (12.5–17.5)" in lines[4] and "0.30" in lines[4]
