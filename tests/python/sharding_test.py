# SPDX-License-Identifier: Apache-2.0
"""fully_shard (FSDP2) with gloo: the same parameters as one process with the batches of all joined."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from devices import DEVICE
from nets import batch, difference, flat, joined, kfac_over_sgd, loss_of, small_net, train
from processes_test import Results, alone, kinds_alone, torchrun
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load

import spdkfac

WORKER = Path(__file__).with_name("sharding_worker.py")
STEPS = 4
ALGORITHMS = ["spd-kfac", "d-kfac", "owner-reduce", "owner-precondition", "owner-blocks"]
REFUSED = {
    "layer": r"parameter scale is not sharded.*fully_shard on the model itself",
    "later": r"were replaced after the optimizer was made|is a DTensor",
    "made late": r"SGD was made when a forward pass had left parameters whole.*right after fully_shard",
    "tensor parallel": r"tensor parallelism.*fully_shard",
    "mesh": r"averages gradients over 1 processes, and K-FAC has 2; pass process_group",
    "own": r"gradients=\"own\" with fully_shard",
    "lm_damping": r"lm_damping does not work with fully_shard yet",
    "rescale_weights": r"rescale_weights does not work with fully_shard yet",
    "scaler": r"scaler does not work with fully_shard yet",
    "mixed": r"MixedPrecisionPolicy.*torch.autocast",
    "meta": r"on the meta device",
}
pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="gloo shards on the CPU here")


def run(folder: Path, processes: int, cases: list[str]) -> Results:
    torchrun(processes, folder / "cache", WORKER, *cases, "--out", folder / "results.pt")
    results: Results = torch.load(folder / "results.pt", weights_only=False)
    return results


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def two(folder: Path) -> Results:
    return run(folder, 2, [f"algorithm:{name}" for name in ALGORITHMS] + [
        "between:clip", "between:infinite", "rarely", "accumulated:synchronous", "accumulated:waiting",
        "kinds:spd-kfac", "kinds:owner-precondition", "adamw:spd-kfac", "adamw:owner-precondition", "saved",
        *(f"refused:{name}" for name in REFUSED)])


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run(tmp_path_factory.mktemp("four"), 4, ["algorithm:spd-kfac", "hybrid"])


def check(result: dict[str, object], expected: torch.Tensor) -> None:
    assert isinstance(result["parameters"], torch.Tensor)
    assert difference(result["parameters"], expected) < 1e-9  # double precision
    assert result["gradients"] == {"DTensor"} and result["left"] == 0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_two_processes_equal_one_with_the_joined_batch(two: Results, algorithm: str) -> None:
    result = two[f"algorithm:{algorithm}"]
    check(result, alone(2))
    assert result["share"] == 0.5, "each keeps half of the parameters"


@pytest.mark.parametrize("way", ["algorithm:spd-kfac", "hybrid"])
def test_parts_may_differ_in_size_and_be_kept_twice(four: Results, way: str) -> None:
    """6 and 4 outputs of layers over 4 processes; over 2 processes, twice."""
    check(four[way], alone(4))


def test_options_change_what_they_change_without_shards(two: Results) -> None:
    check(two["rarely"], alone(2, factor_interval=2, inverse_interval=2))
    check(two["between:clip"], alone(2, clip=True))


@pytest.mark.parametrize("way", ["synchronous", "waiting"])
def test_passes_accumulate(two: Results, way: str) -> None:
    check(two[f"accumulated:{way}"], alone(4))


@pytest.mark.parametrize("algorithm", ["spd-kfac", "owner-precondition"])
def test_layers_of_all_kinds(two: Results, algorithm: str) -> None:
    check(two[f"kinds:{algorithm}"], kinds_alone())


@pytest.mark.parametrize("algorithm", ["spd-kfac", "owner-precondition"])
def test_over_adamw(two: Results, algorithm: str) -> None:
    model = small_net()
    with pytest.warns(UserWarning, match="K-FAC covers"):
        optimizer = spdkfac.SPDKFACOptimizer(torch.optim.AdamW(model.parameters(), lr=0.01), model)
    train(model, optimizer, [joined(batch(step, part) for part in range(2)) for step in range(STEPS)])
    check(two[f"adamw:{algorithm}"], flat(model))


def test_a_batch_that_is_not_finite_changes_nothing_on_any_process(two: Results) -> None:
    model = small_net()
    optimizer = kfac_over_sgd(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, joined(batch(step, part) for part in range(2)))
        (loss * float("inf") if step == 2 else loss).backward()
        optimizer.step()
    result = two["between:infinite"]
    check(result, flat(model))
    assert optimizer.counters["nonfinite_gradients"] > 0
    assert isinstance(result["counters"], dict)
    assert result["counters"]["nonfinite_gradients"] == optimizer.counters["nonfinite_gradients"]


def test_owners_alone_keep_inverses(two: Results) -> None:
    """Factors, inverses and Adam's moments of a layer are on one process."""
    everywhere, owners = (two[f"adamw:{name}"]["memory"] for name in ("spd-kfac", "owner-precondition"))
    assert isinstance(everywhere, dict) and isinstance(owners, dict)
    assert owners["inverses"] < 0.9 * everywhere["inverses"]


def test_a_checkpoint_continues_in_one_process_without_shards(two: Results, folder: Path) -> None:
    assert "saved" in two
    model = small_net()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    optimizer = kfac_over_sgd(model)
    parts = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    load(parts, checkpoint_id=folder / "saved", no_dist=True)
    set_state_dict(model, optimizer, model_state_dict=parts["model"], optim_state_dict=parts["optimizer"])
    assert optimizer.counters["steps"] == 2
    train(model, optimizer, [joined(batch(step, part) for part in range(2)) for step in range(2, STEPS)])
    assert difference(flat(model), alone(2)) < 1e-9


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_work_says_so(two: Results, what: str) -> None:
    error = two[f"refused:{what}"]["error"]
    assert isinstance(error, str) and re.search(REFUSED[what], error), error
