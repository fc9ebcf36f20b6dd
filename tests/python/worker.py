# SPDX-License-Identifier: Apache-2.0
"""Trains small networks on the processes of torchrun, for processes_test.py.

Usage: torchrun … worker.py CASE… --out FILE [--backend NAME]; the first process writes the
parameters of each case.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
import torch.distributed as dist
from devices import DEVICE, use_device
from nets import (
    SmallNet,
    batch,
    flat,
    kfac_over_sgd,
    kinds_batch,
    kinds_loss,
    loss_of,
    many_kinds,
    small_net,
)
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import spdkfac

STEPS = 4
DDP_OPTIONS: dict[str, dict[str, bool]] = {
    "static graph": {"static_graph": True}, "unused": {"find_unused_parameters": True},
    "bucket views": {"gradient_as_bucket_view": True}}
Result = dict[str, object]


def finish(model: nn.Module, optimizer: spdkfac.SPDKFACOptimizer) -> Result:
    """What the first process reports; all must have the same parameters."""
    mine = flat(model).to(DEVICE)  # nccl takes nothing else
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    return {"parameters": mine.cpu(), "same": all(torch.equal(each, mine) for each in every),
            "plan": optimizer.plan.digest if optimizer.plan else "",
            "messages": len(optimizer.plan.messages) if optimizer.plan else 0,
            "sent": optimizer.sent_bytes, "counters": optimizer.counters}


def wrapped(wrap: str, **options: object) -> tuple[SmallNet, torch.nn.Module, spdkfac.SPDKFACOptimizer]:
    """The module, what is called, and the optimizer, which may know the module alone."""
    module = small_net()
    ddp = DDP_OPTIONS.get(wrap.partition(" with ")[2], {})
    if wrap.startswith("late"):  # as frameworks do
        later = options.pop("later", None)
        optimizer = kfac_over_sgd(module, **options)
        if later is not None:
            optimizer.damping = later
        return module, DistributedDataParallel(module, **ddp), optimizer  # type: ignore[arg-type]
    model: torch.nn.Module = module
    if wrap in ("compiled", "ddp of compiled", "hidden ddp of compiled"):
        model = torch.compile(model, backend="aot_eager")  # type: ignore[assignment]
    if "ddp" in wrap:
        model = DistributedDataParallel(model, **ddp)  # type: ignore[arg-type]
    if wrap == "compiled ddp":
        model = torch.compile(model, backend="aot_eager")  # type: ignore[assignment]
    return module, model, kfac_over_sgd(module if "hidden" in wrap else model, **options)


def trained(*, wrap: str = "", passes: int = 1, between: str = "", no_sync: bool = False,
            **options: object) -> Result:
    """A few steps; each process has examples of its own. `no_sync`: only the last pass of a step averages gradients."""
    rank = dist.get_rank()
    module, model, optimizer = wrapped(wrap, **options)
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in range(passes):
            alone = no_sync and part < passes - 1 and isinstance(model, DistributedDataParallel)
            with model.no_sync() if alone else nullcontext():
                loss = loss_of(model, batch(step, passes * rank + part))
                (loss / passes).backward()
        if between == "clip":
            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 0.01)
        elif between == "clip without":
            torch.nn.utils.clip_grad_norm_(module.parameters(), 0.01)
        elif between == "replace":
            for parameter in module.parameters():
                parameter.grad = parameter.grad * 0.5  # type: ignore[operator]
        elif between == "drop":
            module.out.weight.grad = None
        optimizer.step()
    return finish(module, optimizer)


def trained_kinds(algorithm: str, **options: object) -> Result:
    """Layers of all kinds, two of them in parts."""
    model = many_kinds()
    optimizer = kfac_over_sgd(model, algorithm=algorithm, split={"c_attn": 3}, norms=True, **options)
    for step in range(STEPS):
        optimizer.zero_grad()
        kinds_loss(model, kinds_batch(step, dist.get_rank())).backward()
        optimizer.step()
    return finish(model, optimizer)


def wrapped_after_loading(damping: float | None = None) -> Result:
    """A state is loaded, perhaps with a damping that was set, then DistributedDataParallel is made by someone else."""
    rank = dist.get_rank()
    module, model, optimizer = wrapped("ddp", algorithm="owner-reduce")
    if damping is not None:
        optimizer.damping = damping
    for step in range(STEPS):
        if step == 2:
            again, saved = small_net(), copy.deepcopy(optimizer.state_dict())
            again.load_state_dict(module.state_dict())
            module, optimizer = again, kfac_over_sgd(again, algorithm="owner-reduce")
            optimizer.load_state_dict(saved)
            model = DistributedDataParallel(module)
        optimizer.zero_grad()
        loss_of(model, batch(step, rank)).backward()
        optimizer.step()
    return finish(module, optimizer)


def late_damping() -> Result:
    """Set before DistributedDataParallel is made; an optimizer that was made likewise takes the state."""
    found = trained(wrap="late", later=0.3)
    module, model, optimizer = wrapped("late", later=0.3)
    optimizer.zero_grad()
    loss_of(model, batch(0, dist.get_rank())).backward()
    optimizer.step()
    again = kfac_over_sgd(small_net())
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    return {**found, "damping": again.damping}


def seeds_differ() -> Result:
    """Parameters are those of the first process, as with DistributedDataParallel."""
    torch.manual_seed(dist.get_rank())
    model = SmallNet().double()
    optimizer = kfac_over_sgd(model)
    loss_of(model, batch(0, dist.get_rank())).backward()
    optimizer.step()
    return finish(model, optimizer)


def scaled(*, ddp: bool, overflow: bool = False) -> Result:
    """With a GradScaler; a first batch may overflow in one process."""
    module = small_net()
    model = DistributedDataParallel(module) if ddp else module
    scaler = torch.amp.GradScaler(DEVICE, init_scale=256.0)
    optimizer = kfac_over_sgd(model, scaler=scaler)
    for step in range(-1 if overflow else 0, STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, batch(max(step, 0), dist.get_rank()))
        if step < 0 and dist.get_rank() == 0:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        optimizer.synchronize()
        scaler.step(optimizer)
        scaler.update()
    return finish(module, optimizer)


def resumed() -> Result:
    """States go on in all processes."""
    models = [small_net(), small_net()]
    first = kfac_over_sgd(models[0], algorithm="owner-reduce", inverse_interval=2)
    rank = dist.get_rank()
    for step in range(STEPS):
        if step == 3:
            models[1].load_state_dict(models[0].state_dict())
            again = kfac_over_sgd(models[1], algorithm="owner-reduce", inverse_interval=2)
            again.load_state_dict(copy.deepcopy(first.state_dict()))
            again.zero_grad()
            loss_of(models[1], batch(step, rank)).backward()
            again.step()
        first.zero_grad()
        loss_of(models[0], batch(step, rank)).backward()
        first.step()
    difference = float((flat(models[0]) - flat(models[1])).abs().max())
    return {**finish(models[0], first), "difference": difference}


def loaded_apart() -> Result:
    """Processes that load states of different steps."""
    model = small_net()
    optimizer = kfac_over_sgd(model)
    states = []
    for step in range(2):
        optimizer.zero_grad()
        loss_of(model, batch(step, dist.get_rank())).backward()
        optimizer.step()
        states.append(copy.deepcopy(optimizer.state_dict()))
    again = kfac_over_sgd(small_net())
    again.load_state_dict(states[dist.get_rank()])
    return {}


def planned_with_intervals(algorithm: str, **variant: str) -> Result:
    """The plan for rare refreshes, and what planning alone makes of the same table."""
    cluster = spdkfac.cluster("ethernet-10g-16").for_world(dist.get_world_size())
    intervals = {"factor_interval": 10, "inverse_interval": 100}
    model = small_net()
    optimizer = kfac_over_sgd(model, algorithm=algorithm, cluster=cluster, variant=variant,
                              **intervals)
    loss_of(model, batch(0, dist.get_rank())).backward()
    optimizer.step()
    assert optimizer.plan is not None and optimizer.model_table is not None
    expected = spdkfac.plan(optimizer.model_table, cluster, algorithm=algorithm, **variant, **intervals)
    return {"options": optimizer.plan.to_json()["options"], "plan": optimizer.plan.digest,
            "expected": expected.digest}


def error_of(call: Callable[[], object]) -> Result:
    try:
        call()
    except spdkfac.ConfigError as error:
        return {"error": str(error)}
    return {"error": "none"}


def case(name: str) -> Result:
    kind, _, what = name.partition(":")
    world = dist.get_world_size()
    if kind == "own":
        return trained(algorithm=what)
    if kind == "ddp":
        return trained(wrap="ddp", algorithm=what)
    if kind == "ddp-own":
        return trained(wrap="ddp", algorithm=what, gradients="own")
    if kind == "wrapped":
        return trained(wrap=what, factor_interval=2, inverse_interval=2, profile_steps=1)
    if kind == "late-own":
        return trained(wrap="late", gradients="own")
    if kind == "rarely":
        return trained(algorithm=what, factor_interval=2, inverse_interval=2)
    if kind == "kinds":
        return trained_kinds(what)
    if kind in ("diagonal", "blocks"):
        return trained_kinds(what, max_dimension=4, large_factors=kind)
    if kind == "accumulated":
        return trained(passes=2, algorithm=what)
    if kind == "no_sync":
        return trained(passes=2, no_sync=True, wrap=what)
    if kind == "clip":
        return trained(between="clip", wrap="ddp" if what == "ddp" else "")
    if kind == "intervals":
        if what == "cheapest":
            return planned_with_intervals("mpd-kfac", exchange="cheapest")
        return planned_with_intervals("auto")
    if kind == "cluster":
        return trained(cluster=spdkfac.cluster("ethernet-10g-16").for_world(world))
    if kind == "measure":
        return trained(cluster="measure", algorithm="auto")
    if kind == "plan":
        model = spdkfac.describe(small_net(), (2, 6, 6))
        cluster = spdkfac.cluster("ethernet-10g-16").for_world(world)
        plan = spdkfac.plan(model, cluster, algorithm="d-kfac")
        return {**trained(plan=plan), "expected": plan.digest}
    if kind == "scaled":
        return scaled(ddp=what == "ddp")
    if kind == "overflow":
        return scaled(ddp=what == "ddp", overflow=True)
    if kind == "error":
        return error_of({
            "clip": lambda: trained(between="clip without"),
            "replace": lambda: trained(between="replace"),
            "drop": lambda: trained(between="drop"),
            "interval": lambda: trained(factor_interval=2, inverse_interval=3),
            "options": lambda: trained(damping=0.01 * (1 + dist.get_rank()), kl_clip=0.002),
            "steps": loaded_apart,
            "world": lambda: trained(cluster="paper-64x2080ti"),
        }[what])
    return {"late-loaded": wrapped_after_loading, "late-changed": lambda: wrapped_after_loading(0.3),
            "late-damping": late_damping, "resumed": resumed, "seeds": seeds_differ}[kind]()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--backend", default="gloo")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    use_device()
    dist.init_process_group(options.backend)
    results = {name: case(name) for name in options.cases}
    if dist.get_rank() == 0:
        torch.save(results, options.out)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
