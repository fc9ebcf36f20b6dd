# SPDX-License-Identifier: Apache-2.0
"""Where people use it: Accelerate, transformers' Trainer, Lightning, Ray, checkpoints; and what is refused."""

from __future__ import annotations

import copy
import importlib.util
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from devices import DEVICE
from nets import batch, difference, flat, kfac_over_sgd, loss_of, small_net, steps, train
from torch import nn

import spdkfac
from spdkfac.wrapping import FirstPass, reject_replaced, reject_sharded

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "python"
on_cpu = pytest.mark.skipif(DEVICE != "cpu", reason="examples compute on the CPU here")


def run(folder: Path, example: str, *arguments: str | Path, processes: int = 1, needs: str = "") -> str:
    if needs and importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed (pip install {needs})")
    path = EXAMPLES / example
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": "",
                   "HF_HUB_OFFLINE": "1", "XDG_CACHE_HOME": str(folder / "cache")}
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    done = subprocess.run([sys.executable, *launch, str(path), *map(str, arguments)], cwd=folder, env=environment,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def learned(output: str) -> None:
    found = re.search(r"loss ([0-9.]+) -> ([0-9.]+)", output)
    assert found and float(found[2]) < 0.95 * float(found[1]), output


@on_cpu
def test_accelerate(tmp_path: Path) -> None:
    learned(run(tmp_path, "accelerate_train.py", "--checkpoint", "state", processes=2, needs="accelerate"))


@on_cpu
def test_trainer_of_transformers(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed, which Trainer needs")
    learned(run(tmp_path, "trainer_train.py", "--steps", "30", processes=2, needs="transformers"))
    assert (tmp_path / "checkpoints/checkpoint-15/optimizer.pt").exists()
    # Another number of processes continues.
    learned(run(tmp_path, "trainer_train.py", "--steps", "40", needs="transformers"))


@on_cpu
def test_lightning(tmp_path: Path) -> None:
    learned(run(tmp_path, "lightning_train.py", "--devices", "2", needs="lightning"))
    saved = next(tmp_path.glob("checkpoints/*.ckpt"))
    again = run(tmp_path, "lightning_train.py", "--steps", "90", "--resume", saved, needs="lightning")
    found = re.search(r"loss ([0-9.]+) -> ([0-9.]+)", again)
    assert found and float(found[1]) < 0.6, "it continues: two classes begin with a loss of 0.69"


@on_cpu
def test_ray_train(tmp_path: Path) -> None:
    learned(run(tmp_path, "ray_train.py", "--folder", tmp_path / "results", needs="ray"))


@on_cpu
@pytest.mark.parametrize("example", ["distributed_checkpoint.py", "fully_shard_train.py"])
def test_checkpoints_continue_on_another_number_of_ranks(tmp_path: Path, example: str) -> None:
    first = run(tmp_path, example, "state", processes=2)
    assert "step 0 loss" in first and "step 19 loss" in first
    second = run(tmp_path, example, "state", processes=3)
    assert "step 20 loss" in second
    losses = [float(each) for each in re.findall(r"loss ([0-9.]+)", first + second)]
    assert losses[2] < losses[0]


# --- what frameworks do with an optimizer ---


def test_a_scaler_may_come_later() -> None:
    expected = small_net()
    train(expected, kfac_over_sgd(expected), steps(3))
    model = small_net()
    optimizer = kfac_over_sgd(model)
    assert optimizer.scaler is None and not optimizer._step_supports_amp_scaling
    scaler = torch.amp.GradScaler(DEVICE, init_scale=64.0)
    optimizer.scaler = scaler
    assert optimizer.scaler is scaler and optimizer._step_supports_amp_scaling
    for data in steps(2):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, data)).backward()
        scaler.step(optimizer)
        scaler.update()
    optimizer.scaler = None  # and go
    train(model, optimizer, steps(1, 2))
    assert difference(flat(model), flat(expected)) < 1e-12


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copies_are_refused_with_a_reason(way: Any) -> None:
    model = small_net()
    optimizer = kfac_over_sgd(model)
    with pytest.raises(spdkfac.ConfigError, match=r"cannot be copied or pickled.*load state_dict\(\)"):
        way(optimizer)
    way(model)  # which is not touched by it
    train(model, optimizer, steps(1))


def test_hooks_of_states_are_called() -> None:
    model = small_net()
    optimizer = kfac_over_sgd(model)
    train(model, optimizer, steps(1))
    calls: list[str] = []
    optimizer.register_state_dict_pre_hook(lambda _: calls.append("save"))
    optimizer.register_state_dict_post_hook(lambda _, state: {**state, "mine": 1})
    optimizer.register_load_state_dict_pre_hook(lambda _, state: state.pop("mine") and None)  # in place
    optimizer.register_load_state_dict_post_hook(lambda _: calls.append("loaded"))
    optimizer.register_step_post_hook(lambda *_: calls.append("stepped"))
    state = optimizer.state_dict()
    assert state["mine"] == 1
    optimizer.load_state_dict(state)
    assert state["mine"] == 1, "the state of the caller stays"
    train(model, optimizer, steps(1, 1))
    assert calls == ["save", "loaded", "stepped"]


def test_states_move_before_the_first_step() -> None:
    """As Accelerate does when it prepares an optimizer."""
    expected, model = small_net(), small_net()
    train(expected, kfac_over_sgd(expected), steps(2))
    optimizer = kfac_over_sgd(model)
    optimizer.load_state_dict(optimizer.state_dict())
    train(model, optimizer, steps(2))
    assert torch.equal(flat(model), flat(expected))


# --- first passes, and what shards parameters ---


class Listener:
    def __init__(self) -> None:
        self.heard: list[object] = []

    def begin(self, ddp: object) -> None:
        self.heard.append(ddp)


def test_a_first_pass_is_heard_once_in_training() -> None:
    model, listener = small_net(), Listener()
    hook = FirstPass(model, listener.begin)
    images, _ = batch(0)
    with torch.no_grad():
        model(images)
    model.eval()(images)
    other = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    other.train()(images)
    assert listener.heard == []
    model.train()(images)
    model(images)
    assert listener.heard == [None] and not model._forward_pre_hooks
    FirstPass(model, listener.begin)
    del listener, hook
    model(images)  # nobody is left to hear it


class Engine(nn.Module):
    """Stands for one of DeepSpeed."""


Engine.__module__ = "deepspeed.runtime.engine"


def test_sharded_models_are_refused_with_what_is_possible() -> None:
    engine = Engine()
    engine.module = small_net()
    with pytest.raises(spdkfac.ConfigError, match="DeepSpeed engine.*fully_shard or DistributedDataParallel"):
        kfac_over_sgd(engine)
    model = small_net()
    model.third.weight.ds_id = 1  # type: ignore[attr-defined]
    with pytest.raises(spdkfac.ConfigError, match="ZeRO stage 3.*DistributedDataParallel"):
        reject_sharded(model)


@on_cpu
@pytest.mark.parametrize("way", ["FSDP", "FSDP later", "fully_shard later"])
def test_fsdp_is_refused(tmp_path: Path, way: str) -> None:
    """fully_shard before the optimizer is made works (sharding_test.py)."""
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = small_net()
        covered = [model.first.weight, model.third.weight]
        mesh = torch.distributed.init_device_mesh("cpu", (1,))
        if way.startswith("fully_shard"):
            fully_shard(model, mesh=mesh)
            whole: nn.Module = model
        else:
            whole = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
        with pytest.raises(spdkfac.ConfigError, match=r"FullyShardedDataParallel makes one flat|replaced.*by fully_shard"):
            if "later" in way:
                reject_replaced(model, covered)
            else:
                kfac_over_sgd(whole)
    finally:
        torch.distributed.destroy_process_group()
