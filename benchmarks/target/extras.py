# SPDX-License-Identifier: Apache-2.0
"""Optimizers of other packages, where they are installed."""

from __future__ import annotations

import importlib
from typing import Any

import torch

# Where a class may be found: the authors' own packages first.
CLASSES = {"shampoo": (("distributed_shampoo", "DistributedShampoo"),),
           "soap": (("soap", "SOAP"), ("pytorch_optimizer", "SOAP"))}


def find(kind: str) -> Any:
    """The class, or None where no package has it."""
    for module, name in CLASSES[kind]:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    return None


def packages(kind: str) -> str:
    return " or ".join(module for module, _ in CLASSES[kind])


def make(kind: str, groups: list[dict[str, Any]], rate: float,
         options: dict[str, Any]) -> torch.optim.Optimizer:
    """Options are the package's own; those below are what its authors advise."""
    maker = find(kind)
    if kind == "soap":
        made: torch.optim.Optimizer = maker(groups, lr=rate, **{"precondition_frequency": 10, **options})
        return made
    package = importlib.import_module("distributed_shampoo")
    advised = {"betas": (0.9, 0.999), "epsilon": 1e-12, "precondition_frequency": 10,
               "max_preconditioner_dim": 2048, "weight_decay_type": package.WeightDecayType.DECOUPLED,
               "grafting_config": package.AdamPreconditionerConfig(beta2=0.999, epsilon=1e-8)}
    made = maker(groups, lr=rate, **{**advised, **options})
    return made
