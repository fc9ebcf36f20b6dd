# SPDX-License-Identifier: Apache-2.0
"""Settings that the referee found, for the demonstration: nothing is tuned there."""

from __future__ import annotations

from dataclasses import dataclass

from optimizers import OPTIMIZERS, Optimizer
from spread import Setting


@dataclass(frozen=True)
class Contestant:
    optimizer: Optimizer
    setting: Setting
    steps: int  # of its schedule


@dataclass(frozen=True)
class Race:
    task: str
    target: float
    contestants: tuple[Contestant, ...]


RACES = (
    Race("autoencoder-small", 3.0, (
        Contestant(OPTIMIZERS["sgd"], {"lr": 0.0067}, 600),
        Contestant(OPTIMIZERS["adamw"], {"lr": 0.0071}, 600),
        Contestant(OPTIMIZERS["kfac"], {"lr": 0.022, "damping": 0.082}, 75))),
    Race("cnn", 11.5, (
        Contestant(OPTIMIZERS["sgd"], {"lr": 0.024, "weight_decay": 5e-4}, 200),
        Contestant(OPTIMIZERS["adamw"], {"lr": 0.0067, "weight_decay": 0.0}, 200),
        Contestant(OPTIMIZERS["kfac"], {"lr": 0.0067, "weight_decay": 0.0, "damping": 0.035, "factor_interval": 5,
                                        "inverse_interval": 10}, 110))),
)
