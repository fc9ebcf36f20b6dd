# SPDX-License-Identifier: Apache-2.0
"""Networks of the tasks: autoencoders and convolutional classifiers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional


def autoencoder(widths: Sequence[int]) -> nn.Sequential:
    """ReLU between Linear layers; the code, the narrowest layer, and the output are linear."""
    narrowest = list(widths).index(min(widths))
    layers: list[nn.Module] = []
    for place, (inputs, outputs) in enumerate(zip(widths, widths[1:]), 1):
        layers.append(nn.Linear(inputs, outputs))
        if place not in (narrowest, len(widths) - 1):
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


def small_cnn(classes: int = 10) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 49, 64), nn.ReLU(), nn.Linear(64, classes))


class Block(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                          nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(x)))))
        return functional.relu(inner + self.shortcut(x))


def resnet(channels: int, widths: Sequence[int], blocks: int, classes: int = 10) -> nn.Sequential:
    """A ResNet for small images: 3x3 stem, stages of `blocks` blocks that halve the image but the first."""
    layers: list[nn.Module] = [nn.Conv2d(channels, widths[0], 3, 1, 1, bias=False),
                               nn.BatchNorm2d(widths[0]), nn.ReLU()]
    inputs = widths[0]
    for stage, width in enumerate(widths):
        for block in range(blocks):
            layers.append(Block(inputs, width, 2 if stage > 0 and block == 0 else 1))
            inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def resnet20() -> nn.Sequential:
    return resnet(1, (16, 32, 64), 3)


def resnet18() -> nn.Sequential:
    return resnet(3, (64, 128, 256, 512), 2)
