# SPDX-License-Identifier: Apache-2.0
"""Processes under torchrun, with gloo; on a GPU they share it, and one has nccl."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from nets import (
    batch,
    difference,
    flat,
    joined,
    kfac_over_sgd,
    kinds_batch,
    kinds_loss,
    loss_of,
    many_kinds,
    small_net,
    train,
)

from spdkfac.processes import others_send_too

WORKER = Path(__file__).with_name("worker.py")
STEPS = 4
SECONDS = 300
ALGORITHMS = ["spd-kfac", "d-kfac", "mpd-kfac", "naive", "optimal-fusion", "owner-reduce",
              "owner-precondition", "owner-blocks", "auto"]
KINDS_ALGORITHMS = ["spd-kfac", "mpd-kfac", "owner-reduce", "owner-precondition"]
WRAPPED = ["ddp", "hidden ddp", "late", "compiled", "ddp of compiled", "hidden ddp of compiled", "compiled ddp",
           *(f"{wrap} with {what}" for wrap in ("ddp", "late") for what in ("static graph", "unused", "bucket views"))]
Results = dict[str, dict[str, object]]


def torchrun(processes: int, cache: Path, *arguments: str | Path) -> None:
    """`cache`: empty at first, so that the first case measures costs and the others find them."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0",
                   "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "XDG_CACHE_HOME": str(cache)}
    subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone",
                    f"--nproc-per-node={processes}", *map(str, arguments)], env=environment,
                   stdin=subprocess.DEVNULL, timeout=SECONDS, check=True)


def run(folder: Path, processes: int, cases: list[str], backend: str = "gloo") -> Results:
    """One start of the processes for all cases: loading torch takes longer than they do."""
    out = folder / f"{processes}.pt"
    torchrun(processes, folder / "cache", WORKER, *cases, "--out", out, "--backend", backend)
    results: Results = torch.load(out, map_location="cpu", weights_only=True)
    return results


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Results:
    cases = [f"own:{name}" for name in ALGORITHMS]
    cases += [f"ddp:{name}" for name in ("spd-kfac", "d-kfac", "owner-blocks", "optimal-fusion")]
    cases += [f"kinds:{name}" for name in KINDS_ALGORITHMS]
    cases += [f"{kept}:{name}" for kept in ("diagonal", "blocks") for name in KINDS_ALGORITHMS]
    cases += ["ddp-own:spd-kfac", "own:sgd", "ddp:sgd", "rarely:spd-kfac",
              "intervals", "intervals:cheapest", "accumulated:spd-kfac",
              "clip:own", "clip:ddp", "cluster", "measure", "plan", "scaled:own", "scaled:ddp",
              "overflow:own", "overflow:ddp", "resumed", "seeds", "error:interval", "error:world",
              "error:clip", "error:replace", "error:drop",
              "error:options", "error:steps", "late-own", "late-damping", "late-loaded", "late-changed"]
    cases += [f"wrapped:{wrap}" for wrap in WRAPPED] + [f"no_sync:{wrap}" for wrap in ("ddp", "late")]
    return run(tmp_path_factory.mktemp("two"), 2, cases)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Results:
    cases = ["own:spd-kfac", "own:auto", "own:owner-blocks", "ddp:spd-kfac"]
    return run(tmp_path_factory.mktemp("four"), 4, cases)


def alone(parts: int, clip: bool = False, **options: object) -> torch.Tensor:
    """One process with the batches of all processes joined."""
    model = small_net()
    optimizer = kfac_over_sgd(model, **options)
    for step in range(STEPS):
        data = joined(batch(step, part) for part in range(parts))
        if not clip:
            train(model, optimizer, [data])
            continue
        optimizer.zero_grad()
        loss_of(model, data).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()
    return flat(model)


def check(result: dict[str, object], expected: torch.Tensor) -> None:
    assert result["same"]
    assert isinstance(result["parameters"], torch.Tensor)
    assert difference(result["parameters"], expected) < 1e-9  # double precision


def test_one_process_under_torchrun_is_one_process(tmp_path: Path) -> None:
    result = run(tmp_path, 1, ["own:spd-kfac"])["own:spd-kfac"]
    assert result["sent"] == 0
    check(result, alone(1))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_two_processes_equal_one_with_the_joined_batch(two: Results, algorithm: str) -> None:
    check(two[f"own:{algorithm}"], alone(2))


def kinds_alone(**options: object) -> torch.Tensor:
    """Layers of all kinds on the batches of two processes joined."""
    model = many_kinds()
    optimizer = kfac_over_sgd(model, split={"c_attn": 3}, norms=True, **options)
    for step in range(STEPS):
        optimizer.zero_grad()
        kinds_loss(model, torch.cat([kinds_batch(step, part) for part in range(2)])).backward()
        optimizer.step()
    return flat(model)


@pytest.mark.parametrize("algorithm", KINDS_ALGORITHMS)
def test_layers_of_all_kinds_equal_those_of_one_process(two: Results, algorithm: str) -> None:
    check(two[f"kinds:{algorithm}"], kinds_alone())


@pytest.mark.parametrize("kept", ["diagonal", "blocks"])
@pytest.mark.parametrize("algorithm", KINDS_ALGORITHMS)
def test_split_factors_equal_those_of_one_process(two: Results, algorithm: str, kept: str) -> None:
    check(two[f"{kept}:{algorithm}"], kinds_alone(max_dimension=4, large_factors=kept))


@pytest.mark.parametrize("case", ["own:spd-kfac", "own:auto", "own:owner-blocks", "ddp:spd-kfac"])
def test_four_processes_equal_one_with_the_joined_batch(four: Results, case: str) -> None:
    check(four[case], alone(4))


@pytest.mark.parametrize("case", ["ddp:spd-kfac", "ddp:d-kfac", "ddp:owner-blocks",
                                  "ddp:optimal-fusion", "ddp-own:spd-kfac", "cluster", "measure"])
def test_who_averages_gradients_and_which_plan_make_no_difference(two: Results, case: str) -> None:
    check(two[case], alone(2))


@pytest.mark.parametrize("wrap", WRAPPED)
def test_however_the_model_is_wrapped(two: Results, wrap: str) -> None:
    result = two[f"wrapped:{wrap}"]
    check(result, alone(2, factor_interval=2, inverse_interval=2))
    # Gradients travel once: with DistributedDataParallel, whoever made it, or with the factors.
    other = two["wrapped:compiled" if wrap == "ddp" else "wrapped:ddp"]["sent"]
    assert (result["sent"] == other) == (wrap not in ("ddp", "compiled"))


def test_ddp_that_is_made_later(two: Results) -> None:
    check(two["late-own"], alone(2))
    check(two["late-damping"], alone(2, damping=0.3))
    assert two["late-damping"]["damping"] == 0.3
    check(two["late-loaded"], alone(2))
    check(two["late-changed"], alone(2, damping=0.3))


def test_with_ddp_only_factors_travel(two: Results) -> None:
    own, ddp = two["own:spd-kfac"]["sent"], two["ddp:spd-kfac"]["sent"]
    gradients = STEPS * 8 * sum(p.numel() for p in small_net().parameters())
    # Every process sends (P-1)/P twice of a sum, and its buffers are in double precision.
    assert isinstance(own, float) and isinstance(ddp, float)
    assert own - ddp == pytest.approx(gradients)


def test_gradients_of_first_order_training_are_means(two: Results) -> None:
    check(two["own:sgd"], alone(2, algorithm="sgd"))
    check(two["ddp:sgd"], alone(2, algorithm="sgd"))


def test_rare_refreshes(two: Results) -> None:
    check(two["rarely:spd-kfac"], alone(2, factor_interval=2, inverse_interval=2))


@pytest.mark.parametrize("case", ["intervals", "intervals:cheapest"])
def test_plans_are_for_the_intervals_of_the_run(two: Results, case: str) -> None:
    result = two[case]
    options = result["options"]
    assert isinstance(options, dict)
    assert (options["factor_interval"], options["inverse_interval"]) == (10, 100)
    assert result["plan"] == result["expected"]


@pytest.mark.parametrize("case", ["accumulated:spd-kfac", "no_sync:ddp", "no_sync:late"])
def test_accumulation(two: Results, case: str) -> None:
    check(two[case], alone(4))


def test_clipping_after_synchronize(two: Results) -> None:
    for case in ("clip:own", "clip:ddp"):
        check(two[case], alone(2, clip=True))


def test_a_given_plan_is_followed(two: Results) -> None:
    check(two["plan"], alone(2))
    assert two["plan"]["plan"] == two["plan"]["expected"]


def test_loss_scaling_changes_nothing(two: Results) -> None:
    for case in ("scaled:own", "scaled:ddp", "overflow:own", "overflow:ddp"):
        check(two[case], alone(2))
    assert two["overflow:own"]["counters"]["steps"] == STEPS  # type: ignore[index]


def test_state_goes_on(two: Results, device: torch.device) -> None:
    apart = two["resumed"]["difference"]
    assert two["resumed"]["same"] and isinstance(apart, float)
    # On a GPU torch may add in another order, here in double precision.
    assert apart <= (0 if device.type == "cpu" else 1e-9)


def test_parameters_are_those_of_the_first_process(two: Results) -> None:
    assert two["seeds"]["same"]


@pytest.mark.parametrize(("case", "message"), [
    ("clip", "call synchronize() first"),
    ("replace", "call synchronize() first"),
    ("drop", "call synchronize() first"),
    ("options", "kfac: the ranks disagree (rank 1 of 2 differs from rank 0; rank 0 has damping=0.01)"),
    ("steps", "kfac state: the ranks disagree (rank 1 of 2 differs from rank 0; rank 0 has "
              "loaded steps=1)"),
    ("interval", "inverse_interval=3 is not a multiple of factor_interval=2"),
    ("world", "is for 64 ranks, this run has 2; pass its for_world(2)"),
])
def test_mistakes_are_named(two: Results, case: str, message: str) -> None:
    assert message in str(two[f"error:{case}"]["error"])


@pytest.mark.gpu
def test_one_process_with_nccl_is_one_process(tmp_path: Path, device: torch.device) -> None:
    if device.type != "cuda":
        pytest.skip("NCCL needs SPDKFAC_TEST_DEVICE=cuda")
    # NCCL refuses two processes on one GPU.
    for result in run(tmp_path, 1, ["own:spd-kfac", "ddp:spd-kfac", "scaled:ddp"], "nccl").values():
        assert result["sent"] == 0
        check(result, alone(1))


@pytest.mark.parametrize(("backend", "averages", "synchronised", "expected"), [
    ("gloo", True, True, False), ("nccl", True, False, True), ("nccl", False, False, False),
    ("nccl", False, True, True), ("cpu:gloo,cuda:nccl", True, False, True)])
def test_messages_wait_where_nccl_serves_others_too(backend: str, averages: bool, synchronised: bool,
                                                    expected: bool) -> None:
    norm = torch.nn.SyncBatchNorm(4) if synchronised else torch.nn.BatchNorm2d(4)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), norm)
    assert others_send_too(model, backend, averages_gradients=averages) == expected
