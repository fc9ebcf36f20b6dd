# SPDX-License-Identifier: Apache-2.0
"""From flags to table, record and picture, on a task that takes milliseconds."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

import command
import demo
import extras
import record
from files import Sources
from page import records
from results import Line, Result
from summary import Row
from timing import Clock
from training import Place, Point
from tuned import Contestant, Race
from optimizers import OPTIMIZERS

QUICK = ["--trials", "2", "--seeds", "2", "--evaluations", "10", "--device", "cpu"]


def run(*arguments: str) -> int:
    return command.main([*QUICK, *arguments])


def test_two_optimizers_from_end_to_end(tiny: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "record.json"
    assert run("--tasks", tiny, "--optimizers", "sgd,adamw", "--out", str(out)) == 0
    said = capfd.readouterr()
    assert "tiny: test squared error of " in said.out and "Written: " in said.out
    found = records.read(out)
    assert found.experiment == "target" and found.made["device"].startswith("cpu")
    entry, = found.body["target"]
    assert entry["set_by"] in ("sgd", "adamw") and entry["budget"] == 30
    assert [row["label"] for row in entry["optimizers"]] == ["sgd", "adamw"]
    best = next(row for row in entry["optimizers"] if row["label"] == entry["set_by"])
    assert best["reached"] == 2 and best["seconds"]["median"] > 0
    assert min(row["steps_ratio"] or math.inf for row in entry["optimizers"]) == 1
    assert len(entry["lines"]) == 4 and all(line["points"] for line in entry["lines"])
    assert len(said.err.splitlines()) >= 8  # a line for each run


def test_a_clock_adds_turns_and_parts_of_them() -> None:
    clock = Clock((2.0, 1.0))  # 20 steps took 2 s, the next 20 took 1 s
    assert [clock.at(step) for step in (0, 5, 20, 30, 40)] == [0, 0.5, 2, 2.5, 3]
    assert clock.mean == 3 / 40


def test_kfac_and_the_time_of_a_step_alone(tiny: str, tmp_path: Path) -> None:
    pytest.importorskip("spdkfac")
    out = tmp_path / "record.json"
    variant = 'mine=kfac:{"inverse_interval": 3, "search": {"running_average": [0.5, 0.9]}}'
    assert run("--tasks", tiny, "--optimizers", "adamw", "--variant", variant, "--share", "1",
               "--out", str(out)) == 0
    found = records.read(out)
    assert "seconds are those of the same steps measured alone" in found.note
    for row in found.body["target"][0]["optimizers"]:
        assert row["step_seconds"] > 0
    for line in found.body["target"][0]["lines"]:
        seconds = [point["seconds"] for point in line["points"]]
        assert seconds == sorted(seconds) and seconds[0] > 0


def test_kept_runs_are_not_run_again(tiny: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["--tasks", tiny, "--optimizers", "sgd", "--kept", str(tmp_path / "kept")]
    assert run(*arguments) == 0
    first = capfd.readouterr()
    assert run(*arguments) == 0
    second = capfd.readouterr()
    assert "(kept)" not in first.err
    assert all(line.endswith("(kept)") for line in second.err.splitlines())
    assert first.out == second.out
    next((tmp_path / "kept").iterdir()).write_text("{}")
    assert run(*arguments) == command.USAGE_MISTAKE
    assert "is no finished run ('points'); remove it" in capfd.readouterr().err


@pytest.mark.parametrize(("arguments", "message"), [
    (["--tasks", "coffee"], "--tasks: unknown task (coffee); give one of "),
    (["--optimizers", "lbfgs"], "--optimizers: unknown optimizer (lbfgs)"),
    (["--optimizers", "kfac"], "add sgd or adamw, or pass --target"),
    (["--trials", "0"], "--trials: is too small (0); give at least 1"),
    (["--steps", "0"], "--steps: is too small (0); give at least 1"),
    (["--out", "/none/record.json"], "/none/record.json: its folder is not there (/none); make it first"),
    (["--variant", "x"], "--variant: must read name=kind:{…} (x)"),
])
def test_mistakes_are_one_line(arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == command.USAGE_MISTAKE
    said = capfd.readouterr()
    assert said.out == "" and said.err.startswith("target: ") and said.err.count("\n") == 1
    assert message in said.err


def test_optimizers_that_are_not_installed_are_left_out_and_said_so(
        tiny: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(extras, "find", lambda kind: None)
    assert run("--tasks", tiny, "--optimizers", "sgd,soap,shampoo") == 0
    said = capfd.readouterr()
    assert "soap is left out: the Python package soap or pytorch_optimizer is not installed" in said.err
    assert "shampoo is left out" in said.err and "soap" not in said.out


def test_the_demonstration(tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                           capfd: pytest.CaptureFixture[str]) -> None:
    race = Race(tiny, 1e-3, (Contestant(OPTIMIZERS["sgd"], {"lr": 0.01}, 20),
                             Contestant(OPTIMIZERS["adamw"], {"lr": 0.3}, 200)))
    monkeypatch.setattr(demo, "RACES", (race,))
    monkeypatch.chdir(tmp_path)
    assert command.main(["--demo", "--device", "cpu"]) == 0
    said = capfd.readouterr().out.splitlines()
    assert "not reached" in next(line for line in said if "sgd" in line)
    assert "1.00" in next(line for line in said if "adamw" in line)
    assert records.read(tmp_path / "out" / "training.json").body["target"][0]["value"] == 1e-3


def test_a_picture_has_a_panel_for_each_task(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    import picture
    picture.write(tmp_path / "picture.png", [result_of("a"), result_of("b")])
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def result_of(task: str) -> Result:
    lines = [Line("adamw", 1, "lr 0.1", [Point(1, 0.1, 2.0), Point(2, 0.2, 1.0)]),
             Line("kfac", 1, "lr 0.2", [Point(1, 0.3, math.inf)])]
    rows = [Row(task, "adamw", True, [2], [0.2], "lr 0.1"),
            Row(task, "kfac", False, [math.inf], [math.inf], "")]
    return Result(task, "test loss", 1.0, "adamw", 2, rows, lines, {"adamw": 4, "kfac": 4}, {})


def test_what_is_infinite_is_null_in_a_record() -> None:
    made = record.record_of([result_of("a")], {}, Place(torch.device("cpu"), Sources()))
    found = records.parse(json.dumps(made, allow_nan=False), "record")
    kfac = found.body["target"][0]["optimizers"][1]
    assert kfac["steps"] == {"low": None, "median": None, "high": None}
    assert kfac["reached"] == 0 and kfac["seconds_ratio"] is None
    assert found.body["target"][0]["lines"][1]["points"][0]["metric"] is None
