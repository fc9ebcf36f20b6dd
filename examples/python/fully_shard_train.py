# SPDX-License-Identifier: Apache-2.0
"""fully_shard (FSDP2), with torch.distributed.checkpoint: each process keeps a part of the parameters.

  torchrun --nproc-per-node=2 fully_shard_train.py FOLDER [--steps N]     # again: continues
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import spdkfac


def train(options: argparse.Namespace) -> None:
    device = torch.device("cuda", dist.get_node_local_rank()) if torch.cuda.is_available() else torch.device("cpu")
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    # After fully_shard. With this algorithm one process keeps the factors and inverses of a layer.
    optimizer = spdkfac.SPDKFACOptimizer(torch.optim.AdamW(model.parameters(), lr=3e-3), model,
                                         algorithm="owner-precondition")
    if options.folder.exists():
        parts: dict[str, Any] = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
        load(parts, checkpoint_id=options.folder)
        set_state_dict(model, optimizer, model_state_dict=parts["model"], optim_state_dict=parts["optimizer"])
    first = optimizer.counters["steps"]
    for step in range(first, first + options.steps):
        torch.manual_seed(1000 * step + dist.get_rank())
        inputs = torch.randn(32, 16, device=device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), (inputs[:, :4].square().sum(1) > 4).long())
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step in (first, first + options.steps - 1):
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    save(dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True)), checkpoint_id=options.folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=20)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    train(parser.parse_args())
    dist.destroy_process_group()
