# SPDX-License-Identifier: Apache-2.0
"""Everybody with the baseline's setting, with runs that are worked out instead of trained."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import command
from equal import equals, setting_of, table
from mistake import Mistake
from search import Protocol
from worked_out import ADAMW, KFAC, Referee
from tiny import TINY
from training import Plan

PROTOCOL = Protocol(budget=160, trials=4, seeds=3)


def final(plan: Plan) -> float:
    """AdamW ends at 2, 3 and 4 with its best rate; K-FAC one below."""
    return plan.seed + 1 + abs(plan.setting["lr"] - 0.3) - (plan.optimizer is KFAC)


def test_others_take_over_the_setting_that_the_baseline_was_tuned_to() -> None:
    referee = Referee(final)
    found = equals(TINY, ADAMW, [KFAC], PROTOCOL, referee)
    tuned = [plan for plan in referee.plans if plan.seed == 0]
    assert len(tuned) == 4 and all(plan.optimizer is ADAMW for plan in tuned)
    best = max(plan.setting["lr"] for plan in tuned)  # the nearest to 0.3, the highest rate
    counted = [plan for plan in referee.plans if plan.seed > 0]
    assert [plan.optimizer.name for plan in counted] == ["adamw"] * 3 + ["kfac"] * 3
    assert all(plan.setting == {"lr": best} and plan.steps == 160 for plan in counted)
    assert found.target == pytest.approx(3 + 0.3 - best)


def test_a_setting_that_is_given_is_not_searched() -> None:
    referee = Referee(final)
    found = equals(TINY, ADAMW, [KFAC], PROTOCOL, referee, {"lr": 0.3})
    assert all(plan.seed > 0 for plan in referee.plans)
    # K-FAC ends at 1, 2 and 3; course() falls by 1 in each quarter, so its median run meets 3 after three.
    lines = table([found]).splitlines()
    assert lines[2].split()[:4] == ["tiny", "adamw", "3", "(2.5–3.5)"]
    assert lines[3].split() == ["tiny", "kfac", "2", "(1.5–2.5)", "0.67", "120", "0.75", "lr", "0.3,", "160",
                                "steps"]


@pytest.mark.parametrize("text", ["0.1", "lr=fast", "weight_decay=0", "damping=1,lr=1"])
def test_a_setting_that_cannot_be_read_is_a_mistake(text: str) -> None:
    with pytest.raises(Mistake, match="--setting: "):
        setting_of(text)


@pytest.mark.parametrize(("arguments", "message"), [
    (["--setting", "lr=1"], "--setting: is for --same alone"),
    (["--same", "kfac", "--optimizers", "adamw"], "--same: is not among the optimizers (kfac)"),
    (["--same", "adamw", "--target", "1"], "--same: prints a table alone"),
])
def test_flags_that_do_not_fit_are_mistakes(arguments: Sequence[str], message: str,
                                            capfd: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--device", "cpu", *arguments]) == command.USAGE_MISTAKE
    assert message in capfd.readouterr().err


def test_the_table_from_the_command_line(tiny: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--tasks", tiny, "--optimizers", "adamw,sgd", "--same", "adamw", "--trials", "2",
                         "--seeds", "2", "--evaluations", "5", "--device", "cpu"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[2:]] == ["adamw", "sgd"]
    assert lines[2].split()[-4:-1] == lines[3].split()[-4:-1]  # the same rate
