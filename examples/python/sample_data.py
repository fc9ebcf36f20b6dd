# SPDX-License-Identifier: Apache-2.0
"""What examples of curvature share: images and a short training.

The images are those of Debian's dataset-fashion-mnist if it is installed, else ten noisy patterns.
"""
import gzip
from pathlib import Path

import torch
from torch import nn

FOLDER = Path("/usr/share/datasets/fashion-mnist")


def load(name: str, header: int) -> torch.Tensor:
    with gzip.open(FOLDER / f"{name}-ubyte.gz") as file:
        return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)


def images(count: int, test: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The first images [count, 1, 28, 28] of the training or the test data, and their classes."""
    if FOLDER.exists():
        part = "t10k" if test else "train"
        pixels = load(f"{part}-images-idx3", 16).view(-1, 1, 28, 28)[:count]
        return pixels.float() / 127.5 - 1, load(f"{part}-labels-idx1", 8)[:count].long()
    patterns = torch.randn(10, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(2 if test else 1)
    labels = torch.randint(10, (count,), generator=generator)
    return patterns[labels] + 2 * torch.randn(count, 1, 28, 28, generator=generator), labels


def train(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, steps: int = 300) -> None:
    """Batches of 100 with AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    for _ in range(steps):
        chosen = torch.randint(len(labels), (100,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs[chosen]), labels[chosen]).backward()
        optimizer.step()
