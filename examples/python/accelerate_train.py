# SPDX-License-Identifier: Apache-2.0
"""Hugging Face Accelerate: on one device, or on many with `accelerate launch` or torchrun.

  torchrun --nproc-per-node=2 accelerate_train.py [--steps N]     # or python, for one process

prepare() may wrap the model in DistributedDataParallel after the optimizer is made: it is noticed in the first pass.
"""

from __future__ import annotations

import argparse
import gc

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import spdkfac


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--checkpoint", help="a folder for the state at the end")
    options = parser.parse_args()
    torch.manual_seed(1)
    inputs = torch.randn(512, 16)
    data = TensorDataset(inputs, (inputs[:, :4].square().sum(1) > 4).long())
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), gradient_accumulation_steps=2)
    model = model.to(accelerator.device)  # before the optimizer is made
    optimizer = spdkfac.SPDKFACOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-2), model)
    optimizer.scaler = accelerator.scaler  # with mixed_precision="fp16"; otherwise there is none
    loader = DataLoader(data, batch_size=32, shuffle=True, drop_last=True)
    model, prepared, loader = accelerator.prepare(model, optimizer, loader)

    losses: list[float] = []
    while len(losses) < options.steps:
        for batch, labels in loader:
            with accelerator.accumulate(model):
                prepared.zero_grad()
                loss = nn.functional.cross_entropy(model(batch), labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                prepared.step()
            losses.append(accelerator.gather(loss.detach()).mean().item())
    if options.checkpoint:
        accelerator.save_state(options.checkpoint)  # on all processes
        accelerator.wait_for_everyone()
        accelerator.load_state(options.checkpoint)
    accelerator.print(f"loss {sum(losses[:8]) / 8:.3f} -> {sum(losses[-8:]) / 8:.3f}")


if __name__ == "__main__":
    main()
    gc.collect()  # the model goes first: gloo may hang or abort as the process ends (pytorch #190489)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
