# SPDX-License-Identifier: Apache-2.0
"""describe, plan, simulate, compare, report."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from nets import SmallNet
from torch import nn

import spdkfac

PROGRAM = Path(os.environ.get("SPDKFAC_BUILD_DIR", "build/dev")) / "bin" / "spdkfac"
CLUSTER = "paper-64x2080ti"


def program(*arguments: str) -> str:
    return subprocess.run([PROGRAM, *arguments], check=True, capture_output=True, text=True,
                          timeout=60).stdout


def test_versions_agree() -> None:
    assert program("--version").split()[1] == spdkfac.__version__


def test_simulate_says_what_the_program_says() -> None:
    ours = json.loads(program("simulate", "--model", "resnet50", "--cluster", CLUSTER, "--world",
                              "16", "--algorithm", "auto", "--json"))
    prediction = spdkfac.simulate("resnet50", CLUSTER, world=16, algorithm="auto")
    assert [prediction.to_json()] == ours
    assert "FactorComm" in str(prediction)


def test_plan_is_the_one_of_the_program() -> None:
    ours = json.loads(program("plan", "--model", "densenet201", "--cluster", CLUSTER, "--json",
                              "--fusion", "optimal", "--factor-interval", "2"))
    plan = spdkfac.plan("densenet201", CLUSTER, fusion="optimal", factor_interval=2)
    assert plan.to_json() == ours
    model, cluster = spdkfac.model("densenet201"), spdkfac.cluster(CLUSTER)
    assert plan.digest in repr(plan) and "densenet201" in plan.text(model, cluster)


def test_describe_gives_the_table_of_the_data() -> None:
    torchvision = pytest.importorskip("torchvision")
    module = torchvision.models.resnet50()
    module.eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    table = spdkfac.describe(module, (3, 224, 224), name="resnet50", batch=32)
    assert table == spdkfac.model("resnet50")
    assert not module.training
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_describe_takes_a_batch_and_plans_follow() -> None:
    table = spdkfac.describe(SmallNet(), torch.randn(5, 2, 6, 6))
    assert table.batch == 5 and table.to_json()["input"] == [2, 6, 6]
    assert [layer.name for layer in table.layers] == ["first", "second", "third", "out"]
    assert table.parameters == sum(p.numel() for p in SmallNet().parameters())
    plan = spdkfac.plan(table, spdkfac.cluster("ethernet-10g-16"), world=4)
    assert spdkfac.simulate(table, "ethernet-10g-16", algorithm=plan).world == 4


def test_describe_knows_groups_and_factors_that_are_split() -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 1), nn.Conv2d(8, 8, 3, groups=8), nn.Flatten(),
                          nn.Linear(8 * 16, 3))
    table = spdkfac.describe(model, (4, 6, 6), max_dimension=100)
    assert [layer.name for layer in table.layers] == ["0", "1", "3"]
    _, depthwise, last = table.layers
    assert (depthwise.groups, depthwise.d_a, depthwise.d_g) == (8, 10, 1)
    assert (last.groups, last.d_a, last.blocks_a, last.blocks_g) == (1, 129, 129, 1)
    assert "129 diagonal" in str(table)
    assert spdkfac.Model.from_json(table.to_json()) == table
    halves = spdkfac.describe(model, (4, 6, 6), max_dimension=100, large_factors="blocks")
    assert halves.layers[2].blocks_a == 2
    with pytest.raises(spdkfac.ConfigError, match="max_dimension=0"):
        spdkfac.describe(model, (4, 6, 6), max_dimension=0)
    assert table.parameters == sum(p.numel() for p in model.parameters())


def test_values_survive_json_and_files(tmp_path: Path) -> None:
    prediction = spdkfac.simulate("resnet50", CLUSTER, world=4)
    assert prediction.plan is not None
    for value in (spdkfac.model("resnet50"), spdkfac.cluster(CLUSTER), prediction.plan, prediction):
        assert type(value).from_json(value.to_json()) == value
        assert type(value).from_json(json.dumps(value.to_json())) == value
        value.save(tmp_path / "value.json")
        assert type(value).load(tmp_path / "value.json") == value
    assert spdkfac.Prediction.from_json(prediction.to_json()).plan is None
    prediction.write_trace(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())


def test_values_show_themselves_in_a_notebook() -> None:
    comparison = spdkfac.compare("resnet50", CLUSTER, world=4, algorithms=["sgd", "spd-kfac"])
    values = [spdkfac.model("resnet50"), spdkfac.cluster(CLUSTER), comparison[0], comparison,
              spdkfac.plan("resnet50", CLUSTER, world=4)]
    for value in values:
        html = value._repr_html_()
        assert html.startswith("<table>") and html.endswith("</table>")
        assert html.count("<tr>") == html.count("</tr>") > 1


def test_compare_covers_all_algorithms() -> None:
    comparison = spdkfac.compare("resnet50", CLUSTER, world=8)
    assert {one.algorithm for one in comparison} > {"sgd", "d-kfac", "spd-kfac", "auto"}
    kfac = spdkfac.Comparison(one for one in comparison if one.algorithm != "sgd")
    auto = next(one for one in comparison if one.algorithm == "auto")
    assert kfac.best().iteration == auto.iteration
    rarely = comparison.at(10, 100)
    assert [one.algorithm for one in comparison] == 2 * [one.algorithm for one in rarely]
    spd, d_kfac = (next(one for one in rarely if one.algorithm == name) for name in ("spd-kfac", "d-kfac"))
    assert spd.iteration == pytest.approx(spdkfac.simulate("resnet50", CLUSTER, world=8, factor_interval=10,
                                                           inverse_interval=100).iteration)
    assert spd.inverse_interval == 100 and spd.iteration < d_kfac.iteration
    assert "1/1: every step is full" in str(comparison) and "10/100: averages" in str(comparison)
    assert "d-kfac" in str(comparison) and comparison.to_csv().count("\n") == len(comparison) + 1
    assert spdkfac.Comparison.from_json(comparison.to_json()).to_json() == comparison.to_json()
    assert set(spdkfac.algorithms()) >= {"spd-kfac", "auto"}


def test_other_methods_are_for_forecasts_only() -> None:
    others = set(spdkfac.algorithms(all_methods=True)) - set(spdkfac.algorithms())
    assert others == {"kaisa-mem", "kaisa-hybrid", "kaisa-comm", "dp-kfac", "shampoo", "soap", "muon"}
    comparison = spdkfac.compare("resnet50", CLUSTER, factor_interval=1, all_methods=True)
    assert others < {one.algorithm for one in comparison} and comparison.at(1, 1).to_json() == comparison.to_json()
    plan = spdkfac.plan("resnet50", CLUSTER, algorithm="owner-blocks", factor_reduce="local")
    assert spdkfac.Plan.from_json(plan.to_json()) == plan
    assert all(kind.startswith("reduce gradient") for kind, _ in plan.messages)
    model = SmallNet()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    refused = "which is for plans and forecasts only; train with an algorithm of this library"
    for wrong in ({"algorithm": "muon"}, {"algorithm": "kaisa-mem"}, {"variant": {"exchange": "gather"}},
                  {"plan": plan}):
        with pytest.raises(spdkfac.ConfigError, match=refused):
            spdkfac.SPDKFACOptimizer(sgd, model, **wrong)  # type: ignore[arg-type]


def test_report_draws_predictions_and_records(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    comparison = spdkfac.compare("resnet50", CLUSTER, world=4, algorithms=["d-kfac", "spd-kfac"])
    report = spdkfac.report(comparison, title="Two algorithms")
    assert "Two algorithms" in report.html and report.to_json()[0]["experiment"] == "iteration"
    report.save(tmp_path / "page.html")
    every_step, rarely = report.to_json()
    assert every_step["note"] == "" and "every 10 and inverses every 100 steps" in rarely["note"]
    (tmp_path / "record.json").write_text(json.dumps(rarely))
    again = spdkfac.report(tmp_path / "record.json")
    assert again.to_json() == [rarely]
    assert report._repr_html_().startswith("<iframe")


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(spdkfac.ConfigError, match='there is no "resnet5"; choose one of'):
        spdkfac.model("resnet5")
    with pytest.raises(spdkfac.ConfigError, match="cannot be read"):
        spdkfac.cluster(tmp_path / "none.json")
    with pytest.raises(spdkfac.ConfigError, match="unknown field"):
        spdkfac.Model.from_json({**spdkfac.model("resnet50").to_json(), "colour": 1})
    with pytest.raises(spdkfac.ConfigError, match="nonsense"):
        spdkfac.simulate("resnet50", CLUSTER, algorithm="nonsense")
    with pytest.raises(spdkfac.ConfigError, match="nothing to draw"):
        spdkfac.report()
    with pytest.raises(spdkfac.ConfigError, match="experiment"):
        spdkfac.report({"format": "spdkfac.record/1"})


HOSTILE = ["<td><script>alert(1)</script></td>", "<td>", "</td><img src=x onerror=alert(1)>",
           "a&b<b>\"'"]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stand_in_tables_as_text(name: str) -> None:
    data = spdkfac.model("resnet50").to_json()
    data["name"] = name
    data["layers"] = data["layers"][:1]
    data["layers"][0]["name"] = name
    data["parameters"] = sum(data["layers"][0]["gradients"])
    page = spdkfac.Model.from_json(data)._repr_html_()
    tags = TagsAndText()
    tags.feed(page)
    assert set(tags.tags) <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "div"}
    assert tags.texts.count(name) == 1
    assert any(text.startswith(f"{name}: 1 layers") for text in tags.texts)


class TagsAndText(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("forecast", [spdkfac.simulate, spdkfac.plan, spdkfac.compare])
@pytest.mark.parametrize("wrong", [{"factor_interval": 0}, {"inverse_interval": 0}, {"factor_interval": -1}, {"world": 0},
                                   {"world": -1}, {"world": 10**9}], ids=str)
def test_a_wrong_number_is_an_error(forecast: Callable[..., object], wrong: dict[str, int]) -> None:
    with pytest.raises(spdkfac.ConfigError, match="0|-1"):
        forecast("resnet50", "paper-64x2080ti", **wrong)


@pytest.mark.parametrize("interval", ["auto", "adaptive"])
def test_a_wrong_interval_that_grows_is_an_error(interval: str) -> None:
    for wrong in ({"factor_interval": 0}, {"inverse_interval": -3}):
        with pytest.raises(spdkfac.ConfigError, match="interval"):
            spdkfac.simulate("resnet50", "paper-64x2080ti", interval=interval, **wrong)


def test_a_cluster_has_at_least_one_rank() -> None:
    with pytest.raises(spdkfac.ConfigError, match="cannot be scaled to 0 ranks; give 1 to 16384"):
        spdkfac.cluster("paper-64x2080ti").for_world(0)
