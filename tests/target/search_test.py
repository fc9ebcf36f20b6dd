# SPDX-License-Identifier: Apache-2.0
"""The protocol, with runs that are worked out instead of trained."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import pytest

from mistake import Mistake
from search import Protocol, choose_target, search
from tiny import TINY
from training import Plan, Point, Run
from worked_out import ADAMW, KFAC, SGD, Referee

PROTOCOL = Protocol(budget=160, trials=4, seeds=3)


def by_need(need: dict[str, int]) -> Callable[[Plan], float]:
    """Best at the largest rate; below 1 only with at least so many steps, worse with fewer."""
    def final(plan: Plan) -> float:
        missing = max(0, need[plan.optimizer.name] - plan.steps)
        return 1 + missing / 160 + 0.5 * math.log(0.3 / plan.setting["lr"])
    return final


def test_the_target_is_the_best_median_of_final_values() -> None:
    def runs(*finals: float) -> list[Run]:
        plan = Plan(TINY, SGD, {"lr": 0.1}, 10, 1)
        return [Run(plan, (Point(5, 0.5, 0.01), Point(10, 1.0, final))) for final in finals]
    # The 0.01 on the way counts for nobody.
    assert choose_target({"sgd": runs(3, 1, 2), "adamw": runs(1.9, 1.5, 9)}) == (1.9, "adamw")
    assert choose_target({"sgd": runs(1, 2)}) == (2, "sgd")  # so that both reach it
    with pytest.raises(Mistake, match="no first-order run learns anything"):
        choose_target({"sgd": runs(math.inf)})


def test_the_shortest_schedule_that_reaches_the_target_counts_for_everybody() -> None:
    # With less than its whole budget AdamW misses its own target; K-FAC needs 40 steps: a quarter.
    outcome = search(TINY, [SGD, ADAMW, KFAC], PROTOCOL,
                     Referee(by_need({"sgd": 500, "adamw": 150, "kfac": 40})))
    assert outcome.setter == "adamw"
    steps = {entry.optimizer.name: entry.runs[0].plan.steps for entry in outcome.entries}
    assert steps["kfac"] == 40  # 160 / 2^(8/4)
    assert steps["adamw"] == 160  # the next length is 135
    sgd = outcome.entries[0]
    assert all(run.reached(outcome.target) is None for run in sgd.runs)


def test_first_order_optimizers_shorten_their_schedules_too() -> None:
    outcome = search(TINY, [ADAMW], Protocol(budget=160, trials=8, seeds=1),
                     Referee(by_need({"adamw": 60})))
    assert outcome.entries[0].runs[0].plan.steps == 67  # 160 / 2^(5/4); 57 are too few


def test_nobody_gets_more_trials_than_another() -> None:
    referee = Referee(by_need({"sgd": 100, "adamw": 150, "kfac": 40}))
    search(TINY, [SGD, ADAMW, KFAC], PROTOCOL, referee)
    settings = Counter(plan.optimizer.name for plan in referee.plans if plan.seed == 0)
    lengths = Counter(plan.optimizer.name for plan in referee.plans if plan.steps < 160 and plan.seed == 1)
    assert settings == {"sgd": 4, "adamw": 4, "kfac": 4}
    assert max(lengths.values()) <= 4
    assert {plan.seed for plan in referee.plans} == {0, 1, 2, 3}


def test_most_seeds_must_reach_the_target_with_a_length() -> None:
    sure = by_need({"adamw": 160, "kfac": 110})

    def final(plan: Plan) -> float:  # seeds 0 and 2 are lucky, seed 3 is not
        return sure(plan) + {0: -0.5, 2: -0.5, 3: 9.0}.get(plan.seed, 0.0) * (plan.optimizer is KFAC)
    outcome = search(TINY, [ADAMW, KFAC], Protocol(budget=160, trials=8, seeds=3), Referee(final))
    kfac = outcome.entries[1].runs
    assert [run.plan.seed for run in kfac] == [1, 2, 3]
    assert [run.reached(outcome.target) is not None for run in kfac] == [True, True, False]
    assert kfac[0].plan.steps == 113  # 160 / 2^(2/4): with 95, seed 2 alone gets there


def test_an_unlucky_tuning_run_does_not_keep_its_optimizer_from_shortening() -> None:
    sure = by_need({"adamw": 60})
    outcome = search(TINY, [ADAMW], Protocol(budget=160, trials=8, seeds=3),
                     Referee(lambda plan: sure(plan) + (plan.seed == 0)))
    assert outcome.entries[0].runs[0].plan.steps == 67


def test_no_more_seeds_are_run_than_decide() -> None:
    referee = Referee(by_need({"adamw": 160}))
    search(TINY, [ADAMW], Protocol(budget=160, trials=2, seeds=5), referee)
    # At a quarter of the budget the first three of five seeds fail, with each of two settings.
    shorter = [plan for plan in referee.plans if plan.steps < 160]
    assert [plan.seed for plan in shorter] == [1, 2, 3, 1, 2, 3]


def test_a_target_that_is_given_needs_no_first_order_optimizer() -> None:
    protocol = Protocol(budget=160, trials=2, seeds=1, target=1.5)
    outcome = search(TINY, [KFAC], protocol, Referee(by_need({"kfac": 10})))
    assert (outcome.target, outcome.setter) == (1.5, None)
    assert outcome.entries[0].runs[0].reached(1.5) is not None
