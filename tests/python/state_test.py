# SPDX-License-Identifier: Apache-2.0
"""SPDKFACOptimizer.state_dict(): at any moment, as data, through torch's checkpoints."""

from __future__ import annotations

import copy
import io
import math
import os
import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from damaged_states import DamagedStates, leaves, same_states, wrapped
from nets import (batch, difference, flat, kfac_over_sgd, loss_of, same_bits, small_net, steps,
                  train)
from torch import nn
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_optimizer_state_dict,
                                                     get_state_dict, set_optimizer_state_dict)

import spdkfac

DAMAGED_STATES = 150
WORKER = Path(__file__).with_name("state_worker.py")
SECONDS = 300
REFUSED_SECONDS = 10  # far less than the timeout of 60


class Sometimes(nn.Module):
    """A layer that is called always, one when asked for, one never; one has two groups."""

    def __init__(self) -> None:
        super().__init__()
        self.always = nn.Linear(3, 3)
        self.sometimes = nn.Linear(3, 3)
        self.never = nn.Conv2d(4, 6, 3, groups=2)

    def forward(self, value: torch.Tensor, both: bool) -> torch.Tensor:
        value = torch.tanh(self.always(value))
        return self.sometimes(value) if both else value


def sometimes(seed: int) -> Sometimes:
    torch.manual_seed(seed)
    return Sometimes().double()


def sometimes_step(model: Sometimes, optimizer: torch.optim.Optimizer, step: int, both: bool) -> None:
    torch.manual_seed(100 + step)
    optimizer.zero_grad()
    model(torch.randn(5, 3, dtype=torch.float64), both).square().mean().backward()
    optimizer.step()


# --- at any moment ---


@pytest.mark.parametrize("moment", ["new", "forward", "backward", "discarded", "overflow"])
def test_a_state_before_the_first_step_is_that_of_a_new_optimizer(moment: str) -> None:
    model = small_net()
    scaler = torch.amp.GradScaler(torch.get_default_device().type, init_scale=2.0)
    optimizer = kfac_over_sgd(model, scaler=scaler)
    if moment != "new":
        loss = loss_of(model, batch(0))
        if moment == "overflow":
            scaler.scale(loss * math.inf).backward()
            scaler.step(optimizer)
            scaler.update()
        elif moment != "forward":
            loss.backward()
        if moment == "discarded":
            optimizer.discard()
    state = optimizer.state_dict()
    assert all(value == 0 for name, value in leaves(state).items() if name.endswith("averaged"))
    other, expected = small_net(), small_net()
    again = kfac_over_sgd(other)
    again.load_state_dict(state)
    train(other, again, steps(2))
    train(expected, kfac_over_sgd(expected), steps(2))
    assert same_bits(other, expected)


def test_layers_that_are_called_late_or_never_have_a_place() -> None:
    whole = sometimes(1)
    optimizer = kfac_over_sgd(whole)
    for step in range(2):
        sometimes_step(whole, optimizer, step, both=False)
    whole(torch.randn(5, 3, dtype=torch.float64), True)  # a pass that never enters a loss
    state = copy.deepcopy(optimizer.state_dict())
    entries = state["state"]
    assert [int(entries[i]["kfac_averaged"]) for i in (0, 2, 4)] == [1, 0, 0]
    assert entries[4]["kfac_a_average"].shape == (2, 19 * 20 // 2)  # 2 groups of 2·9 inputs and bias
    assert entries[4]["kfac_g_average"].shape == (2, 3 * 4 // 2)
    optimizer.discard()
    resumed = sometimes(5)
    again = kfac_over_sgd(resumed)
    sometimes_step(resumed, again, 9, both=True)
    resumed.load_state_dict(whole.state_dict())
    again.load_state_dict(state)
    for step in range(2, 5):
        sometimes_step(whole, optimizer, step, both=step > 2)
        sometimes_step(resumed, again, step, both=step > 2)
    assert same_bits(whole, resumed)


# --- as data ---


def test_it_holds_nothing_but_tensors_and_numbers() -> None:
    model = small_net()
    optimizer = kfac_over_sgd(model)
    train(model, optimizer, steps(2))
    state = optimizer.state_dict()
    assert set(state) == {"state", "param_groups"}
    for name, leaf in leaves(state["state"]).items():
        assert isinstance(leaf, torch.Tensor), name
    kfac = [leaf for name, leaf in leaves(state["state"]).items() if "kfac_" in name]
    # Tensors of numbers: no bytes that anything could execute, except the text of the options.
    assert {leaf.dtype for leaf in kfac} == {torch.float64, torch.int64, torch.uint8}
    assert all(leaf.device.type == "cpu" for leaf in kfac)
    saved = io.BytesIO()
    torch.save(state, saved)
    saved.seek(0)
    assert same_states(torch.load(saved, weights_only=True), state)


def test_weights_outside_the_groups_keep_their_state() -> None:
    # The third layer is preconditioned, and counts in kl_clip, but somebody else updates it.
    models = [small_net(), small_net()]
    optimizers = []
    for model in models:
        given = [p for name, p in model.named_parameters() if not name.startswith("third")]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizers.append(spdkfac.SPDKFACOptimizer(torch.optim.SGD(given, lr=0.05), model))

    def run(which: int, first: int, count: int) -> None:
        for data in steps(count, first=first):
            models[which].zero_grad()  # the optimizer's would leave the third layer's
            loss_of(models[which], data).backward()
            optimizers[which].step()

    run(0, 0, 3)
    models[1].load_state_dict(models[0].state_dict())
    optimizers[1].load_state_dict(optimizers[0].state_dict())
    for which in (0, 1):
        run(which, 3, 2)
    assert same_bits(*models)


# --- through torch.distributed.checkpoint ---


@pytest.mark.parametrize("name", ["momentum", "plain", "adam"])
@pytest.mark.parametrize("flatten", [False, True])
def test_distributed_checkpoints_go_on_bit_for_bit(name: str, flatten: bool,
                                                   tmp_path: Path) -> None:
    options = StateDictOptions(flatten_optimizer_state_dict=flatten)
    whole = small_net()
    optimizer = wrapped(name, whole)
    train(whole, optimizer, steps(3))
    optimizer.zero_grad()
    before = copy.deepcopy(optimizer.state_dict())
    model_state, optimizer_state = get_state_dict(whole, optimizer, options=options)
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=tmp_path,
             no_dist=True)
    assert same_states(optimizer.state_dict(), before)  # looking changes nothing

    resumed = small_net()
    again = wrapped(name, resumed)
    target = {"model": resumed.state_dict(),
              "optimizer": get_optimizer_state_dict(resumed, again, options=options)}
    assert again.counters["steps"] == 0
    dcp.load(target, checkpoint_id=tmp_path, no_dist=True)
    resumed.load_state_dict(target["model"])
    set_optimizer_state_dict(resumed, again, target["optimizer"], options=options)
    assert again.counters["steps"] == 3
    train(whole, optimizer, steps(3, first=3))
    train(resumed, again, steps(3, first=3))
    assert same_bits(whole, resumed)


def test_the_first_step_of_a_distributed_checkpoint_does_no_harm() -> None:
    models = [small_net(), small_net()]
    optimizers = [kfac_over_sgd(model) for model in models]
    get_optimizer_state_dict(models[1], optimizers[1])
    for model, optimizer in zip(models, optimizers, strict=True):
        train(model, optimizer, steps(3))
    assert same_bits(*models)
    assert optimizers[0].counters == optimizers[1].counters


def test_a_model_that_hides_its_layers_is_still_noticed_after_it() -> None:
    model = small_net()
    optimizer = kfac_over_sgd(model)
    get_optimizer_state_dict(model, optimizer)
    loss_of(model.eval(), batch(0)).backward()
    with pytest.raises(spdkfac.ConfigError):
        optimizer.step()


def processes(count: int, action: str, folder: Path) -> dict[str, Any]:
    out = folder / f"{action}-{count}.pt"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "0",
                   "GLOO_SOCKET_IFNAME": "lo"}
    subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone",
                    f"--nproc-per-node={count}", WORKER, action, folder, "--out", out],
                   env=environment, stdin=subprocess.DEVNULL, timeout=SECONDS, check=True)
    result: dict[str, Any] = torch.load(out, weights_only=True)
    return result


@pytest.mark.skipif(torch.get_default_device().type != "cpu", reason="the processes use the CPU")
def test_processes_save_their_parts_and_any_number_of_them_loads(tmp_path: Path) -> None:
    saved = processes(2, "save", tmp_path)
    # The first process has everything, the other what it keeps: each factor once, of two.
    first, second = saved["elements"]
    assert 0.1 * first < second < 0.9 * first
    for count in (2, 3):
        for kind, parameters in processes(count, "load", tmp_path).items():
            assert difference(parameters, saved["parameters"]) < 1e-9, (count, kind)
            if count == 2:
                assert torch.equal(parameters, saved["parameters"]), kind
    alone = small_net()
    optimizer = kfac_over_sgd(alone)
    state = torch.load(tmp_path / "plain.pt", weights_only=True)
    alone.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    train(alone, optimizer, steps(2, first=3))
    assert difference(flat(alone), saved["parameters"]) < 1e-9


@pytest.mark.skipif(torch.get_default_device().type != "cpu", reason="the processes use the CPU")
def test_what_one_process_refuses_is_an_error_on_all_of_them_at_once(tmp_path: Path) -> None:
    for case, (seconds, errors, changed) in processes(2, "refuse", tmp_path).items():
        first, second = errors
        assert seconds < REFUSED_SECONDS, case
        assert not any(changed), case
        # One knows why, the other who.
        assert second.startswith("kfac") and "rank 1" not in second, (case, second)
        assert first.startswith("kfac state: rank 1 of 2 failed"), (case, first)


# --- what is refused ---


class Curved(torch.optim.Optimizer):
    """Somebody's own: what it keeps depends on the parameter, has another shape, and is no tensor at times."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr, "sides": [0, 1], "exponent": -0.25})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for parameter in (one for group in self.param_groups for one in group["params"]):
            state = self.state[parameter]
            flat = parameter.grad.reshape(parameter.shape[0], -1)
            state["products"] = [flat @ flat.t() + sum(state.get("products", [0.0]))]
            if parameter.dim() > 1:
                state["name"] = "matrix"
            parameter.sub_(self.param_groups[0]["lr"] * parameter.grad / (1 + state["products"][0].norm()))


@pytest.mark.parametrize("name", ["Adafactor", "Muon", "NAdam", "ASGD", "Rprop", "Curved"])
def test_states_of_any_optimizer_go_on_bit_for_bit(name: str) -> None:
    """Some have negative exponents, None among their defaults, or fields that depend on the parameter."""
    kind = Curved if name == "Curved" else getattr(torch.optim, name)
    bias = name != "Muon"
    models = [nn.Sequential(nn.Linear(10, 8, bias=bias), nn.Tanh(), nn.Linear(8, 4, bias=bias)) for _ in range(2)]
    optimizers = [spdkfac.SPDKFACOptimizer(kind(model.parameters(), lr=0.01), model) for model in models]
    inputs = torch.randn(6, 10)

    def step(which: int) -> None:
        optimizers[which].zero_grad()
        models[which](inputs).square().mean().backward()
        optimizers[which].step()
    step(0)
    models[1].load_state_dict(models[0].state_dict())
    optimizers[1].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
    for which in (0, 1):
        step(which)
    assert same_bits(*models)


def test_a_number_is_no_switch() -> None:
    model = small_net()
    optimizer = spdkfac.SPDKFACOptimizer(torch.optim.Adam(model.parameters(), lr=0.01), model)
    state = optimizer.state_dict()
    state["param_groups"][0]["capturable"] = 1e300
    with pytest.raises(spdkfac.ConfigError, match="capturable of a parameter group is 1e\\+300"):
        optimizer.load_state_dict(state)


def test_states_of_plain_optimizers_and_earlier_versions_are_refused() -> None:
    model = small_net()
    optimizer = kfac_over_sgd(model)
    train(model, optimizer, steps(1))
    plain = optimizer.optimizer.state_dict()
    with pytest.raises(spdkfac.ConfigError, match="has nothing of K-FAC; load a state of a plain"):
        optimizer.load_state_dict(plain)
    with pytest.raises(spdkfac.ConfigError, match="of an earlier version"):
        optimizer.load_state_dict({**plain, "kfac": torch.zeros(100, dtype=torch.uint8)})
    with pytest.raises(spdkfac.ConfigError, match="other options"):
        kfac_over_sgd(model, damping=0.5).load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_a_damaged_state_is_an_error_and_changes_nothing(name: str) -> None:
    states, dice = DamagedStates(name), random.Random(5)
    refused = sum(states.refuses(dice) for _ in range(DAMAGED_STATES))
    assert DAMAGED_STATES / 3 < refused < DAMAGED_STATES
    states.optimizer.load_state_dict(states.good)
    assert same_states(states.optimizer.state_dict(), states.good)
