# SPDX-License-Identifier: Apache-2.0
"""A task that takes milliseconds: least squares, badly scaled, so that the optimizer matters."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

import data
import tasks
from files import Sources

SCALES = torch.tensor([1.0, 0.3, 0.1, 0.03])


def load(sources: Sources, device: torch.device) -> data.Images:
    inputs = torch.randn(256, 4, generator=torch.Generator().manual_seed(1)) * SCALES
    wanted = inputs @ torch.tensor([[1.0], [-2.0], [3.0], [-4.0]])
    return data.Images((inputs[:192], wanted[:192]), (inputs[192:], wanted[192:]))


def model() -> nn.Linear:
    return nn.Linear(4, 1)


TINY = tasks.Task("tiny", load, model, tasks.squared_error, "test squared error",
                  partial(tasks.mean_of, tasks.squared_error), 32, 30, 30,
                  tasks.Rates(sgd=(0.01, 0.3), adam=(0.01, 0.3), kfac=(0.03, 0.3)), decays=False,
                  damping=(1e-3, 1e-2), kl_clip=1.0)
