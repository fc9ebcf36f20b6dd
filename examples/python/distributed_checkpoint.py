# SPDX-License-Identifier: Apache-2.0
"""torchrun, DistributedDataParallel and torch.distributed.checkpoint, which also loads on another number of ranks.

  torchrun --nproc-per-node=2 distributed_checkpoint.py FOLDER [--steps N]     # again: continues
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
from torch.nn.parallel import DistributedDataParallel

import spdkfac


def train(options: argparse.Namespace) -> None:
    device = torch.device("cuda", dist.get_node_local_rank()) if torch.cuda.is_available() else torch.device("cpu")
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    model = DistributedDataParallel(layers.to(device))
    optimizer = spdkfac.SPDKFACOptimizer(torch.optim.AdamW(model.parameters(), lr=3e-3), model)
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
    parts = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    save(parts, checkpoint_id=options.folder)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=20)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    train(parser.parse_args())
    # The model is gone by now. A DistributedDataParallel that outlives its gloo group may hang on exit.
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
