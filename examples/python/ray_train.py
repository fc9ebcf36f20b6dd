# SPDX-License-Identifier: Apache-2.0
"""Ray Train: a TorchTrainer starts the processes: python ray_train.py [--workers N] [--steps N]."""

from __future__ import annotations

import argparse
from typing import Any

import ray.train
import ray.train.torch
import torch
from torch import nn

import spdkfac


def train(options: dict[str, Any]) -> None:
    """Runs in each process, in a process group that Ray has made."""
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    model = ray.train.torch.prepare_model(layers)  # on its device, in a DistributedDataParallel
    optimizer = spdkfac.SPDKFACOptimizer(torch.optim.AdamW(model.parameters(), lr=3e-3), model)
    device = ray.train.torch.get_device()
    rank = ray.train.get_context().get_world_rank()
    losses: list[float] = []
    for step in range(options["steps"]):
        torch.manual_seed(1000 * step + rank)
        inputs = torch.randn(32, 16, device=device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), (inputs[:, :4].square().sum(1) > 4).long())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    # A checkpoint needs optimizer.state_dict() on all processes; torch.distributed.checkpoint calls it so.
    first, last = sum(losses[:8]) / 8, sum(losses[-8:]) / 8
    ray.train.report({"loss": last})
    if rank == 0:
        print(f"loss {first:.3f} -> {last:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--folder", help="where Ray keeps results (default: ~/ray_results)")
    options = parser.parse_args()
    trainer: Any = ray.train.torch.TorchTrainer(
        train, train_loop_config={"steps": options.steps},
        scaling_config=ray.train.ScalingConfig(num_workers=options.workers, use_gpu=torch.cuda.is_available()),
        run_config=ray.train.RunConfig(storage_path=options.folder))
    trainer.fit()


if __name__ == "__main__":
    main()
