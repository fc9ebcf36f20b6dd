# SPDX-License-Identifier: Apache-2.0
"""Saves or loads distributed checkpoints in the processes of torchrun, for state_test.py.

Usage: torchrun … state_worker.py save|load|refuse FOLDER --out FILE
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from nets import SmallNet, batch, flat, kfac_over_sgd, loss_of, small_net
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import spdkfac

ALGORITHM = "owner-precondition"  # each factor is kept by one process


def step(model: SmallNet, optimizer: spdkfac.SPDKFACOptimizer, number: int, own: bool) -> None:
    """With examples of each process, or with the same in all of them."""
    optimizer.zero_grad()
    loss_of(model, batch(number, dist.get_rank() if own else 0)).backward()
    optimizer.step()


def save(folder: Path) -> dict[str, object]:
    model = small_net()
    optimizer = kfac_over_sgd(model, algorithm=ALGORITHM, profile_steps=0)
    for number in range(3):
        step(model, optimizer, number, own=True)
    optimizer.zero_grad()
    state = optimizer.state_dict()
    plain = {"model": model.state_dict(), "optimizer": state}
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder / "dcp")
    if dist.get_rank() == 0:
        torch.save(plain, folder / "plain.pt")
    sizes = [sum(value.numel() for entry in state["state"].values() for key, value in entry.items()
                 if key.startswith("kfac_"))]
    every: list[list[int]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(every, sizes)
    # The same model and examples on all ranks: one process can do the same.
    for number in range(3, 5):
        step(model, optimizer, number, own=False)
    return {"parameters": flat(model), "elements": [each[0] for each in every]}


def load(folder: Path) -> dict[str, object]:
    result: dict[str, object] = {}
    for kind in ("dcp", "plain", "dcp into a used one"):
        model = small_net()
        optimizer = kfac_over_sgd(model, algorithm=ALGORITHM, profile_steps=0)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.5)
        if kind.endswith("used one"):
            for number in range(50, 52):
                step(model, optimizer, number, own=True)
            optimizer.zero_grad()
        if kind == "plain":
            state = torch.load(folder / "plain.pt", weights_only=True)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        else:
            model_state, optimizer_state = get_state_dict(model, optimizer)
            target = {"model": model_state, "optimizer": optimizer_state}
            dcp.load(target, checkpoint_id=folder / "dcp")
            set_state_dict(model, optimizer, model_state_dict=target["model"],
                           optim_state_dict=target["optimizer"])
        assert optimizer.counters["steps"] == 3
        for number in range(3, 5):
            step(model, optimizer, number, own=False)
        result[kind] = flat(model)
    return result


def refuse(folder: Path) -> dict[str, object]:
    """The second process alone gets a state that is wrong in one of its parts."""
    del folder
    model = small_net()
    optimizer = kfac_over_sgd(model, algorithm=ALGORITHM, profile_steps=0)
    step(model, optimizer, 0, own=True)
    good = copy.deepcopy(optimizer.state_dict())
    step(model, optimizer, 1, own=True)

    class Refused:
        def __deepcopy__(self, memo: object) -> None:
            raise ValueError("torch itself cannot copy it")

    def wrong(part: str) -> dict[str, Any]:
        state = copy.deepcopy(good)
        if part == "the whole":
            del state["state"]
        elif part == "the wrapped optimizer's":
            state["param_groups"][0]["params"].pop()
        elif part == "torch's":
            state["param_groups"][0]["more"] = Refused()
        elif part == "K-FAC's":
            del state["state"][1]["kfac_counters"]
        else:  # that this process keeps
            next(entry[key] for entry in state["state"].values() for key in sorted(entry)
                 if key.endswith("_average")).fill_(torch.nan)
        return state

    result: dict[str, object] = {}
    for part in ("the whole", "the wrapped optimizer's", "torch's", "K-FAC's", "a tensor"):
        before = [copy.deepcopy(optimizer.optimizer.state_dict()), optimizer.counters]
        state = wrong(part) if dist.get_rank() == 1 else copy.deepcopy(good)
        dist.barrier()
        started = time.monotonic()
        error = "none"
        try:
            optimizer.load_state_dict(state)
        except spdkfac.ConfigError as caught:
            error = str(caught)
        after = [optimizer.optimizer.state_dict(), optimizer.counters]
        mine = (time.monotonic() - started, error, str(before) != str(after))
        every: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(every, mine)
        result[part] = (max(one[0] for one in every), [one[1] for one in every],
                        [one[2] for one in every])
    step(model, optimizer, 2, own=True)  # all can go on
    return result


ACTIONS = {"save": save, "load": load, "refuse": refuse}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=list(ACTIONS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    result = ACTIONS[options.action](options.folder)
    if dist.get_rank() == 0:
        torch.save(result, options.out)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
