# SPDX-License-Identifier: Apache-2.0
"""Losses as likelihoods: what a curvature backpropagates from a model's outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional as F

from .errors import ConfigError


LossFunction = Callable[[Any, Any], torch.Tensor]
Reduction = Literal["mean", "sum"]


class Loss:
    """Any function of a batch's outputs and targets; serves for the empirical Fisher alone.

    A loss is a sum of terms, or their mean. `total` is the sum of a batch's terms, `terms` their number. Of an
    unknown loss each example is a term.
    """

    def __init__(self, function: LossFunction, reduction: Reduction) -> None:
        if reduction not in ("mean", "sum"):
            raise ConfigError(f"curvature: the loss has reduction={reduction}; pass a loss with reduction mean or sum")
        self.function, self.reduction = function, reduction

    def total(self, outputs: Any, targets: Any, examples: int) -> torch.Tensor:
        value = self.function(outputs, targets)
        return value * examples if self.reduction == "mean" else value

    def terms(self, outputs: Any, targets: Any, examples: int) -> float | torch.Tensor:
        return float(examples)

    def require_likelihood(self, fisher: str) -> None:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        raise ConfigError(f"curvature: fisher={fisher} needs a loss whose likelihood is known, not {name}; pass "
                          "CrossEntropyLoss, MSELoss or BCEWithLogitsLoss of torch.nn, without weights, or "
                          "fisher=\"empirical\"")

    def drawn(self, outputs: torch.Tensor, targets: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """The gradient of the total by the outputs, for targets drawn from the model's own distribution."""
        raise NotImplementedError

    def columns(self, outputs: torch.Tensor, targets: torch.Tensor, examples: int) -> Iterator[torch.Tensor]:
        """Vectors of all examples whose outer products add up to the Hessian of each one's terms."""
        raise NotImplementedError


class KnownLoss(Loss):
    """A loss of torch.nn, with its reduction taken off."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module, getattr(module, "reduction"))
        self.module = module

    def require_likelihood(self, fisher: str) -> None:
        if getattr(self.module, "weight", None) is not None or getattr(self.module, "pos_weight", None) is not None:
            super().require_likelihood(fisher)


def spread(outputs: torch.Tensor, values: torch.Tensor, examples: int) -> Iterator[torch.Tensor]:
    """A vector for each output of an example, which has its value there and zeros elsewhere."""
    values = values.reshape(examples, -1)
    for index in range(values.size(1)):
        vector = torch.zeros_like(values)
        vector[:, index] = values[:, index]
        yield vector.view_as(outputs)


class SquaredError(KnownLoss):
    """Σ(f − y)²: targets are normal around the outputs, with variance ½."""

    def total(self, outputs: Any, targets: Any, examples: int) -> torch.Tensor:
        return F.mse_loss(outputs, targets, reduction="sum")

    def terms(self, outputs: Any, targets: Any, examples: int) -> float | torch.Tensor:
        return float(outputs.numel())

    def drawn(self, outputs: torch.Tensor, targets: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        noise = torch.randn(outputs.shape, generator=generator, dtype=outputs.dtype, device=outputs.device)
        return math.sqrt(2) * noise

    def columns(self, outputs: torch.Tensor, targets: torch.Tensor, examples: int) -> Iterator[torch.Tensor]:
        return spread(outputs, torch.full_like(outputs, math.sqrt(2)), examples)


class Binary(KnownLoss):
    """Each output is the logit of a target that is 0 or 1."""

    def total(self, outputs: Any, targets: Any, examples: int) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(
            outputs, targets, weight=getattr(self.module, "weight"), pos_weight=getattr(self.module, "pos_weight"),
            reduction="sum")

    def terms(self, outputs: Any, targets: Any, examples: int) -> float | torch.Tensor:
        return float(outputs.numel())

    def drawn(self, outputs: torch.Tensor, targets: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        p = outputs.sigmoid()
        return p - torch.bernoulli(p, generator=generator)

    def columns(self, outputs: torch.Tensor, targets: torch.Tensor, examples: int) -> Iterator[torch.Tensor]:
        p = outputs.sigmoid()
        return spread(outputs, (p * (1 - p)).sqrt(), examples)


class CrossEntropy(KnownLoss):
    """Outputs [batch, classes, …] are logits of a class; targets with `ignore_index` are no terms."""

    def total(self, outputs: Any, targets: Any, examples: int) -> torch.Tensor:
        own = self.module
        return F.cross_entropy(outputs, targets, weight=getattr(own, "weight"), reduction="sum",
                               ignore_index=getattr(own, "ignore_index"),
                               label_smoothing=getattr(own, "label_smoothing"))

    def terms(self, outputs: Any, targets: Any, examples: int) -> float | torch.Tensor:
        if targets.is_floating_point():
            return float(outputs.numel() / outputs.size(1))
        kept: torch.Tensor = targets != getattr(self.module, "ignore_index")
        weight: torch.Tensor | None = getattr(self.module, "weight")
        return kept.sum() if weight is None else weight[targets[kept]].sum()

    def _counted(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """1 for terms, 0 for those that are ignored; [batch, 1, …]."""
        if targets.is_floating_point():
            return torch.ones_like(outputs[:, :1])
        ignored: int = getattr(self.module, "ignore_index")
        return targets.ne(ignored).unsqueeze(1).to(outputs.dtype)

    def drawn(self, outputs: torch.Tensor, targets: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        p = outputs.softmax(dim=1)
        rows = p.movedim(1, -1)
        labels = torch.multinomial(rows.reshape(-1, rows.size(-1)), 1, generator=generator)
        chosen = F.one_hot(labels.view(rows.shape[:-1]), rows.size(-1)).movedim(-1, 1)
        return (p - chosen) * self._counted(outputs, targets)

    def columns(self, outputs: torch.Tensor, targets: torch.Tensor, examples: int) -> Iterator[torch.Tensor]:
        p = outputs.softmax(dim=1)
        counted = self._counted(outputs, targets)
        # A root of diag(p) − p·pᵀ has the columns √p_c·(e_c − p).
        places = p[:, :1].numel() // examples  # of an example
        at = torch.zeros(examples, places, dtype=p.dtype, device=p.device)
        for place in range(places):
            at.zero_()[:, place] = 1
            here = at.view_as(counted) * counted
            for label in range(p.size(1)):
                column = -p
                column[:, label] += 1
                yield column * p[:, label : label + 1].sqrt() * here


FUNCTIONALS: dict[Any, type[nn.Module]] = {
    F.cross_entropy: nn.CrossEntropyLoss, F.mse_loss: nn.MSELoss,
    F.binary_cross_entropy_with_logits: nn.BCEWithLogitsLoss,
}
KNOWN: dict[type[nn.Module], type[KnownLoss]] = {
    nn.CrossEntropyLoss: CrossEntropy, nn.MSELoss: SquaredError, nn.BCEWithLogitsLoss: Binary,
}


def loss_of(loss: LossFunction, reduction: Reduction) -> Loss:
    """A loss of torch.nn, its function in torch.nn.functional, or any other of outputs and targets."""
    module = FUNCTIONALS[loss]() if loss in FUNCTIONALS else loss
    for kind, known in KNOWN.items():
        if isinstance(module, kind) and type(module).forward is kind.forward:
            return known(module)
    return Loss(loss, reduction)
