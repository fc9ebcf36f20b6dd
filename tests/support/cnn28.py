# SPDX-License-Identifier: Apache-2.0
"""The program's model cnn28, as a module of torch for Python."""

import torch
from torch import nn


class Cnn28(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = nn.Linear(3136, 128)
        self.fc2 = nn.Linear(128, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv in (self.conv1, self.conv2):
            x = nn.functional.max_pool2d(torch.relu(conv(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))
