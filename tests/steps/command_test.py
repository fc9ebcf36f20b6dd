# SPDX-License-Identifier: Apache-2.0
"""From flags to table and file, on networks whose steps take milliseconds."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import command
import measuring
import models
import optimizers
import table
from measuring import Job, Memory, Place, Turn
from models import MODELS, model_named
from optimizers import Intervals, Optimizer
from results import Row, entry

ROOT = Path(__file__).resolve().parents[2]
CPU = Place(torch.device("cpu"))


def run(*arguments: str) -> int:
    return command.main(["--device", "cpu", "--rounds", "2", "--steps", "3", *arguments])


def rows_of(path: Path) -> list[dict[str, Any]]:
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["format"] == "spdkfac.steps/1" and found["made"]["torch"] == torch.__version__
    assert found["made"]["device"].startswith("cpu")
    rows: list[dict[str, Any]] = found["rows"]
    return rows


def test_rows_and_ratios(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("spdkfac")
    out = tmp_path / "steps.json"
    assert run("--models", "small-cnn", "--optimizers", "sgd,adamw,kfac", "--intervals", "1/1,2/4", "--json",
               str(out)) == 0
    said = capfd.readouterr().out
    rows = rows_of(out)
    assert [row["optimizer"] for row in rows] == ["sgd", "adamw", "kfac 1/1", "kfac 2/4"]
    assert "small-cnn, batch 8, eager" in said and "× sgd" in said and "peak" not in said
    for row in rows:
        assert any(line.startswith(row["optimizer"] + " ") for line in said.splitlines())
        seconds = [each for turn in row["turns"] for each in turn["seconds"]]
        assert row["mean"] == pytest.approx(statistics.fmean(seconds))
        assert row["ratio"] == pytest.approx(row["mean"] / rows[0]["mean"])
        assert row["low"] <= row["median"] <= row["high"] <= row["slowest"] == max(seconds)
        assert row["wall"] == pytest.approx(row["mean"], rel=1e-3), "steps follow each other"
        assert row["error"] is None and len(row["turns"]) == 2
    assert [len(row["turns"][0]["seconds"]) for row in rows] == [3, 3, 3, 4], "2/4: a whole interval"
    assert [row["warm_up"] for row in rows] == [5, 5, 1 + 5, 4 + 5]
    # Of 9 + 4 steps 0, 2, …, 12 renew the two factors of three layers, and 0, 4, 8 and 12 their inverses.
    counters = rows[3]["turns"][0]["counters"]
    assert (counters["steps"], counters["factor_updates"], counters["inverse_updates"]) == (13, 7 * 6, 4 * 6)


def test_a_variant_that_is_refused_leaves_the_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("spdkfac")
    out = tmp_path / "steps.json"
    assert run("--models", "small-transformer", "--optimizers", "base,kfac", "--intervals", "2/2", "--out", str(out),
               "--variant", 'bad=kfac:{"damping": -1}') == command.FAILED
    said = capfd.readouterr()
    base, kfac, bad = rows_of(out)
    assert base["optimizer"] == "adamw" and kfac["optimizer"] == "kfac 2/2" and kfac["ratio"] > 0
    assert "damping" in bad["error"] and "mean" not in bad and "ratio" not in bad
    assert f"FAILED: {bad['error']}" in said.out and "\n" not in bad["error"]
    assert said.err.count("bad 2/2: round 1 of 2") == 1 and "bad 2/2: round 2" not in said.err


def test_compiled_steps_are_compiled_whatever_else_is_measured(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("spdkfac")
    runs = []

    def counted(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        def forward(*arguments: Any) -> Any:
            runs.append(1)
            return graph.forward(*arguments)
        return forward
    place = Place(torch.device("cpu"), backend=counted)  # type: ignore[arg-type]
    chosen = optimizers.chosen("kfac,sgd", [], "1/1,2/2")
    options = command.parser().parse_args(["--steps", "4"])
    rows = command.measured(command.jobs_of(MODELS["small-cnn"], "compiled", chosen, options), place, 1, False)
    assert [row.error for row in rows] == ["", "", ""]
    # kfac 1/1 has new factors in each step, which run as written; 2/2 in every other one of 7 + 4 steps, the first
    # among them; SGD in none of 5 + 4.
    assert len(runs) == 0 + 5 + 9


def test_packages_that_are_missing_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                                capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    monkeypatch.setitem(sys.modules, "kfac", None)
    out = tmp_path / "steps.json"
    assert run("--models", "inception-v4,small-cnn", "--optimizers", "sgd,kfac-pytorch", "--json", str(out)) == 0
    said = capfd.readouterr()
    assert "inception-v4 is left out: the Python package timm is not installed" in said.err
    assert "kfac-pytorch is left out: the Python package kfac is not installed" in said.err
    assert [(row["model"], row["optimizer"]) for row in rows_of(out)] == [("small-cnn", "sgd")]
    assert run("--models", "inception-v4") == command.USAGE_MISTAKE
    assert "--models: nothing is left to measure (inception-v4" in capfd.readouterr().err


@pytest.mark.parametrize(("arguments", "message"), [
    (["--models", "coffee"], "--models: unknown model (coffee); give one of resnet50, "),
    (["--optimizers", "lbfgs"], "--optimizers: unknown optimizer (lbfgs); give one of base, sgd, "),
    (["--modes", "fast"], "--modes: unknown mode (fast); give one of eager, compiled"),
    (["--intervals", "10"], "--intervals: is no pair of numbers (10); write 10/100"),
    (["--intervals", "3/10"], "--intervals: the second is no multiple of the first (3/10)"),
    (["--intervals", "0/10"], "--intervals: the second is no multiple of the first (0/10)"),
    (["--batch", "0"], "--batch: is too small (0); give at least 1"),
    (["--warm-up", "-1"], "--warm-up: is too small (-1); give at least 1"),
    (["--precision", "tf32"], "--precision: is of a GPU (tf32); pass fp32 or bf16"),
    (["--json", "/none/steps.json"], "/none/steps.json: its folder is not there (/none); make it first"),
    (["--variant", "x"], "--variant: must read name=kind:{…} (x)"),
    (["--variant", "x=kfac:{"], "--variant: the options of x are no JSON"),
    (["--variant", "x=kfac:[1]"], "--variant: the options of x must be an object ([1])"),
    (["--variant", 'x=kfac:{"inner": "lion"}'], "--variant: inner of x is unknown (lion); give sgd or adamw"),
    (["--variant", 'x=kfac:{"interval": "auto"}'], "--variant: interval of x is no option here (auto)"),
])
def test_mistakes_are_one_line(arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == command.USAGE_MISTAKE
    said = capfd.readouterr()
    assert said.out == "" and said.err.startswith("steps: ") and said.err.count("\n") == 1
    assert message in said.err


def test_runs_as_a_folder_in_bf16_and_says_what_is_not_measured() -> None:
    done = subprocess.run([sys.executable, ROOT / "benchmarks/steps", "--device", "cpu", "--models",
                           "small-cnn,small-transformer", "--optimizers", "base", "--steps", "2", "--rounds", "1",
                           "--precision", "bf16", "--channels-last", "--memory", "--threads", "1"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "memory is not measured on a CPU" in done.stderr and "MB" not in done.stdout
    assert done.stdout.startswith("cpu, 1 thread, torch ") and ", bf16, channels last; " in done.stdout


def test_a_loss_that_is_not_finite_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(optimizers.RATES, "sgd", 1e30)
    job = Job(model_named("small-cnn"), 2, "eager", Optimizer("sgd", "sgd"), 5, 5)
    row, = command.measured([job], CPU, 1, False)
    assert row.error.startswith("ArithmeticError: the loss is nan after 10 steps") and not row.turns


def test_the_table_has_memory_where_it_was_measured() -> None:
    def row(optimizer: Optimizer, seconds: list[float]) -> Row:
        job = Job(model_named("resnet50"), 32, "eager", optimizer, 2, 5)
        return Row(job, [Turn(seconds, sum(seconds), Memory(0, 3_000_000, 4_600_000), {})])
    rows = [row(Optimizer("sgd", "sgd"), [0.010, 0.030]),
            row(Optimizer("kfac", "kfac", intervals=Intervals(10, 100)), [0.100, 0.150])]
    lines = table.table(rows, "caption", memory=True).splitlines()
    assert lines[0] == "caption"
    assert lines[1].split() == ["optimizer", "median", "quartiles", "mean", "slowest", "wall", "×", "sgd", "peak",
                                "MB", "reserved", "MB"]
    assert lines[3].split() == ["sgd", "20", "15–25", "20", "30", "20", "1.00", "3", "5"]
    assert lines[4].split() == ["kfac", "10/100", "125", "112–138", "125", "150", "125", "6.25", "3", "5"]
    assert entry(rows[1], rows)["ratio"] == pytest.approx(0.125 / 0.020)
    alone = rows[1:]
    assert "–" in table.table(alone, "", memory=False) and entry(alone[0], alone)["ratio"] is None


def test_turns_are_whole_intervals_and_the_warm_up_has_two_refreshes() -> None:
    kfac = Optimizer("kfac", "kfac", intervals=Intervals(10, 100))
    assert [measuring.turn_steps(kfac, at_least) for at_least in (1, 20, 100, 101)] == [100, 100, 100, 200]
    assert measuring.warm_up_steps(kfac) == 105 and measuring.turn_steps(Optimizer("sgd", "sgd"), 20) == 20


@pytest.mark.parametrize("name", MODELS)
def test_models_are_built_on_the_device(name: str) -> None:
    """Here on one that keeps no values; a tensor of another device would be refused."""
    model = model_named(name)
    if model.package:
        pytest.importorskip(model.package)
    with torch.device("meta"):
        built = model.build()
        inputs, _ = model.inputs(2, torch.device("meta"))
    assert {each.device.type for each in [*built.parameters(), *built.buffers()]} == {"meta"}
    if model.loss is models.cross_entropy:
        assert built(inputs).shape[-1] in (1000, 256)
