# SPDX-License-Identifier: Apache-2.0
"""Lightning in bf16-mixed with clipped gradients: python lightning_train.py [--devices N] [--steps N]."""

from __future__ import annotations

import argparse
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import spdkfac


class Classifier(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
        self.losses: list[float] = []

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        # `self` is inside the DistributedDataParallel of several devices, which is noticed in the first pass.
        return spdkfac.SPDKFACOptimizer(torch.optim.AdamW(self.parameters(), lr=3e-3), self)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--resume", help="a checkpoint")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*num_workers.*")
    torch.manual_seed(1)
    inputs = torch.randn(512, 16)
    data = TensorDataset(inputs, (inputs[:, :4].square().sum(1) > 4).long())
    model = Classifier()
    trainer = lightning.Trainer(
        accelerator="auto" if torch.cuda.is_available() else "cpu", devices=options.devices,
        strategy="ddp" if options.devices > 1 else "auto", precision="bf16-mixed", gradient_clip_val=1.0,
        max_steps=options.steps, logger=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, DataLoader(data, batch_size=32, shuffle=True, drop_last=True), ckpt_path=options.resume)
    if trainer.is_global_zero:
        print(f"loss {sum(model.losses[:8]) / 8:.3f} -> {sum(model.losses[-8:]) / 8:.3f}")


if __name__ == "__main__":
    main()
