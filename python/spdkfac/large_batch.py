# SPDX-License-Identifier: Apache-2.0
"""What training with large batches adds to a step (Osawa et al., arXiv 2002.06015)."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable

import torch

from .errors import ConfigError
from .layers import CoveredLayer, CoveredLayers
from .rates import number_of


class CoupledMomentum:
    """Keeps SGD's momentum in proportion to its learning rate: m·η/η_max, with the largest rate so far.

    Both numbers are entries of the parameter groups, so a state that is saved has them.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        if not any(_momentum(group) for group in optimizer.param_groups):
            raise ConfigError("kfac: couple_momentum needs SGD with momentum; pass "
                              "torch.optim.SGD(…, momentum=0.9)")
        self.apply()

    def apply(self) -> None:
        for group in self._optimizer.param_groups:
            full = group.get("full_momentum", _momentum(group))
            if not full:
                continue
            rate = number_of(group["lr"])
            peak = max(group.get("peak_lr", rate), rate)
            group["full_momentum"], group["peak_lr"] = full, peak
            group["momentum"] = full * (rate / peak) if peak > 0 else full


def _momentum(group: dict[str, object]) -> float:
    """Of a group of SGD; 0 for other optimizers."""
    return float(group["momentum"]) if "dampening" in group else 0.0  # type: ignore[arg-type]


class BoundedWeights:
    """Scales weights whose norm exceeds √(2·outputs) back to it. Nothing waits for the device."""

    def __init__(self, layers: Iterable[CoveredLayer]) -> None:
        outputs: dict[int, int] = defaultdict(int)
        weights: dict[int, torch.Tensor] = {}
        for layer in layers:
            weights[id(layer.weight)] = layer.weight
            outputs[id(layer.weight)] += layer.count
        self._weights = list(weights.values())
        self._bounds = [math.sqrt(2 * outputs[key]) for key in weights]

    @torch.no_grad()
    def apply(self) -> None:
        if not self._weights:
            return
        scales = torch._foreach_reciprocal(torch._foreach_norm(self._weights))
        torch._foreach_mul_(scales, self._bounds)
        torch._foreach_clamp_max_(scales, 1.0)
        torch._foreach_mul_(self._weights, scales)


def rescaled_layers(layers: CoveredLayers, choice: bool | Iterable[str]) -> list[CoveredLayer]:
    """The layers that `rescale_weights` means: by patterns, or convolutions without a bias.

    Only a layer that a normalisation follows keeps its function when its weight is scaled. Such
    convolutions have no bias as a rule.
    """
    if isinstance(choice, bool):
        return [layer for layer in layers.tracked
                if choice and layer.kind != "norm" and layer.weight.dim() > 2 and layer.bias is None]
    if isinstance(choice, str):
        raise ConfigError(f"kfac: rescale_weights={choice!r} is one string; pass a list of patterns")
    found: list[CoveredLayer] = []
    for pattern in choice:
        try:
            matched = [layer for layer in layers.tracked if re.search(pattern, layer.name)]
        except (re.error, TypeError) as error:
            raise ConfigError(f"kfac: rescale_weights={pattern!r} is no regular expression ({error}); pass patterns "
                              "of layer names") from None
        if not matched:
            raise ConfigError(f"kfac: rescale_weights={pattern!r} matches no covered layer; they are "
                              f"{', '.join(layers.names)}")
        found += [layer for layer in matched if layer not in found]
    return found
