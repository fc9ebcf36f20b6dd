# SPDX-License-Identifier: Apache-2.0
"""Trains models of fully_shard on the processes of torchrun, for sharding_test.py.

Usage: torchrun … sharding_worker.py CASE… --out FILE; the first process writes the parameters.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
import torch.distributed as dist
from nets import batch, flat, kfac_over_sgd, kinds_batch, kinds_loss, loss_of, many_kinds, small_net
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import spdkfac

STEPS = 4
Result = dict[str, object]


def sharded(model: nn.Module, shape: tuple[int, ...] = (), **options: Any) -> nn.Module:
    """Each layer apart, then the rest."""
    names = ("replicas", "shards")[-len(shape):] if shape else None
    mesh = dist.init_device_mesh("cpu", shape or (dist.get_world_size(),), mesh_dim_names=names)
    for layer in model.children():
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)  # type: ignore[no-any-return, return-value]


def finish(model: nn.Module, optimizer: spdkfac.SPDKFACOptimizer) -> Result:
    """What the first process reports; all gather the same."""
    local = sum(p.to_local().numel() for p in model.parameters())
    whole = sum(p.numel() for p in model.parameters())
    return {"parameters": flat(model), "counters": optimizer.counters, "share": local / whole,
            "gradients": {type(p.grad).__name__ for p in model.parameters()},
            "memory": optimizer.memory, "left": sum(w.grad is not None for w, _ in optimizer._shards._whole.values())}


def trained(shape: tuple[int, ...] = (), between: str = "", **options: Any) -> Result:
    model = sharded(small_net(), shape)
    optimizer = kfac_over_sgd(model, **options)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step, dist.get_rank()))
        if between == "infinite" and step == 2 and dist.get_rank() == 1:
            loss = loss * float("inf")
        loss.backward()
        if between == "clip":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()
    return finish(model, optimizer)


def accumulated(synchronous: bool) -> Result:
    """Two passes for each step; gradients of the first may wait on each process."""
    model: Any = sharded(small_net())
    optimizer = kfac_over_sgd(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in range(2):
            model.set_requires_gradient_sync(synchronous or part == 1)
            (loss_of(model, batch(step, 2 * dist.get_rank() + part)) / 2).backward()
        optimizer.step()
    return finish(model, optimizer)


def trained_kinds(algorithm: str) -> Result:
    model = sharded(many_kinds())
    optimizer = kfac_over_sgd(model, algorithm=algorithm, split={"c_attn": 3}, norms=True)
    for step in range(STEPS):
        optimizer.zero_grad()
        kinds_loss(model, kinds_batch(step, dist.get_rank())).backward()
        optimizer.step()
    return finish(model, optimizer)


def over_adamw(algorithm: str) -> Result:
    """With the preset's graft; made when a pass has left some parameters whole."""
    model = sharded(small_net())
    adamw = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(batch(0, 0)[0])
    optimizer = spdkfac.SPDKFACOptimizer(adamw, model, algorithm=algorithm)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, batch(step, dist.get_rank())).backward()
        optimizer.step()
    return finish(model, optimizer)


def saved(folder: Path) -> Result:
    """Two steps, and a checkpoint."""
    model = sharded(small_net())
    optimizer = kfac_over_sgd(model)
    for step in range(2):
        optimizer.zero_grad()
        loss_of(model, batch(step, dist.get_rank())).backward()
        optimizer.step()
    parts = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    save(parts, checkpoint_id=folder)
    return finish(model, optimizer)


def layer_alone() -> None:
    model = small_net()
    fully_shard(model.third, mesh=dist.init_device_mesh("cpu", (dist.get_world_size(),)))
    kfac_over_sgd(model)


def later() -> None:
    model = small_net()
    optimizer = kfac_over_sgd(model)
    sharded(model)
    loss_of(model, batch(0)).backward()
    optimizer.step()


def made_late() -> None:
    model = sharded(small_net())
    model(batch(0)[0])
    kfac_over_sgd(model)


def tensor_parallel() -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    kfac_over_sgd(parallelize_module(small_net(), mesh, {"third": ColwiseParallel()}))


def refused(call: Callable[[], object]) -> Result:
    try:
        call()
    except spdkfac.ConfigError as error:
        return {"error": str(error)}
    return {"error": "none"}


def small_mesh() -> None:
    model = small_net()
    mesh = dist.init_device_mesh("cpu", (2, 1), mesh_dim_names=("a", "b"))["b"]
    kfac_over_sgd(fully_shard(model, mesh=mesh))  # type: ignore[arg-type]


REFUSED: dict[str, Callable[[], object]] = {
    "layer": layer_alone, "later": later, "made late": made_late, "mesh": small_mesh,
    "tensor parallel": tensor_parallel,
    "own": lambda: trained(gradients="own"),
    "lm_damping": lambda: trained(lm_damping=True, graft="none"),
    "rescale_weights": lambda: trained(rescale_weights=True),
    "scaler": lambda: trained(scaler=torch.amp.GradScaler("cpu")),
    "mixed": lambda: kfac_over_sgd(sharded(small_net(), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))),
    "meta": lambda: kfac_over_sgd(sharded(small_net().to("meta"))),
}


def case(name: str, folder: Path) -> Result:
    kind, _, what = name.partition(":")
    return {
        "algorithm": lambda: trained(algorithm=what),
        "between": lambda: trained(between=what),
        "rarely": lambda: trained(factor_interval=2, inverse_interval=2),
        "accumulated": lambda: accumulated(what == "synchronous"),
        "kinds": lambda: trained_kinds(what),
        "adamw": lambda: over_adamw(what),
        "saved": lambda: saved(folder / "saved"),
        "hybrid": lambda: trained(shape=(2, dist.get_world_size() // 2)),
        "refused": lambda: refused(REFUSED[what]),
    }[kind]()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    results = {name: case(name, options.out.parent) for name in options.cases}
    if dist.get_rank() == 0:
        torch.save(results, options.out)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
