# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on Fashion-MNIST with K-FAC: fashion_mnist.py [--steps N]"""
import argparse
import gzip

import torch
from torch import nn

import spdkfac


def load(kind: str, header: int) -> torch.Tensor:
    with gzip.open(f"/usr/share/datasets/fashion-mnist/{kind}-ubyte.gz") as file:
        return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=400)
steps = parser.parse_args().steps
torch.manual_seed(1)
images, test_images = (load(f"{part}-images-idx3", 16).view(-1, 1, 28, 28).float() / 127.5 - 1
                       for part in ("train", "t10k"))
labels, test_labels = (load(f"{part}-labels-idx1", 8).long() for part in ("train", "t10k"))
model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                      nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                      nn.Flatten(), nn.Linear(32 * 49, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
optimizer = spdkfac.SPDKFACOptimizer(optimizer, model)  # the one line
for step in range(1, steps + 1):
    chosen = torch.randint(len(images), (128,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
with torch.no_grad():
    right = (model(test_images).argmax(1) == test_labels).float().mean()
print(f"accuracy {100 * right:.2f} %")
