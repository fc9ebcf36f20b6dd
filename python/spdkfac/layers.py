# SPDX-License-Identifier: Apache-2.0
"""Which layers of a model K-FAC covers."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ._core import ConfigError

SHOWN = 8  # layers that an error names

# Name, weight, bias, the module whose `training` says whether a call counts, whether it sees only some
# of the examples, and the modules around it, whose buffers may be tables that it is called with.
LayerTuple = tuple[str, torch.Tensor, torch.Tensor | None, nn.Module, bool, list[nn.Module]]


@dataclass(frozen=True)
class CoveredLayers:
    """What K-FAC sees of a model."""

    tracked: list[LayerTuple]
    uncovered: dict[str, list[str]]  # by type: names of layers that keep their own gradient

    @property
    def names(self) -> list[str]:
        return [layer[0] for layer in self.tracked]

    def parameters(self) -> list[torch.Tensor]:
        return [one for layer in self.tracked for one in layer[1:3] if isinstance(one, torch.Tensor)]

    def uncovered_text(self) -> str:
        return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in self.uncovered.items())


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside DistributedDataParallel; compiled models are a ConfigError."""
    if isinstance(model, DistributedDataParallel):
        model = model.module
    reject_compiled(model)
    return model


def reject_compiled(model: nn.Module) -> None:
    """K-FAC sees the calls of layers, and compiled code does not make them."""
    dynamo = sys.modules.get("torch._dynamo")  # nothing is compiled before it is loaded
    if dynamo is None:
        return
    for name, module in model.named_modules():
        forward = vars(module).get("forward")  # set in this object alone
        if (getattr(module, "_compiled_call_impl", None) is not None
                or isinstance(module, dynamo.OptimizedModule)
                or hasattr(forward, "_torchdynamo_orig_callable")):
            raise _compiled(name or "the model")


def reject_hidden(layers: CoveredLayers, unseen: Iterable[int], computed: set[int]) -> None:
    """Layers that have a gradient, though no call of them was seen, must not be compiled ones.

    Compiled code may belong to any function, so ask the weights: dynamo marks those that it compiles
    code for. Code for inference makes no gradients; zeros are left from before the step. `computed`
    collects layers that are not seen for another reason: their operator gets a computed weight.
    """
    hidden = []
    for index in unseen:
        weight = layers.tracked[index][1]
        if not hasattr(weight, "_dynamo_static_input_type"):
            computed.add(index)
        elif index not in computed and _has_gradient(weight):
            hidden.append(layers.names[index])
    if hidden:
        raise _compiled(", ".join(hidden[:SHOWN])
                        + (f" and {len(hidden) - SHOWN} more" if len(hidden) > SHOWN else ""),
                        len(hidden))


def _has_gradient(weight: torch.Tensor) -> bool:
    return weight.grad is not None and bool(weight.grad.any())


def _compiled(what: str, count: int = 1) -> ConfigError:
    return ConfigError(f"kfac: {what} {'is' if count == 1 else 'are'} compiled by torch.compile, which "
                       "hides the calls of layers; train the uncompiled model, and compile it for "
                       "inference only")


def covered_layers(model: nn.Module, *, skip_layers: Iterable[str] = (),
                   partial_layers: Iterable[str] = (), grouped: bool = True) -> CoveredLayers:
    """The Conv2d and Linear layers that can be covered, in the order of the model's modules.

    Left out are layers whose weight is frozen or is computed (parametrizations), those that
    `skip_layers` matches (regular expressions, searched in names), with `grouped=False` grouped
    convolutions, and weights that are shared with other kinds of layers. A weight shared by several
    Linear or Conv2d layers is one layer that is called several times. Layers that `partial_layers`
    matches see only some of the examples.
    """
    model = unwrapped(model)
    if isinstance(model, torch.jit.ScriptModule):
        raise ConfigError("kfac: the model is TorchScript, which hides its layers; train the module that it "
                          "was made of, and script or trace it for inference")
    patterns = [re.compile(pattern) for pattern in skip_layers]
    partial = [re.compile(pattern) for pattern in partial_layers]
    users = _users(model)
    tracked: list[LayerTuple] = []
    uncovered: dict[str, list[str]] = defaultdict(list)
    seen: set[int] = set()
    for name, module in model.named_modules():
        own = [p for p in module.parameters(recurse=False) if p.requires_grad]
        if not own:
            continue
        weight = dict(module.named_parameters(recurse=False)).get("weight")
        if (isinstance(module, (nn.Conv2d, nn.Linear)) and weight is not None
                and weight.requires_grad and not weight.is_complex() and (grouped or _groups(module) == 1)
                and not any(pattern.search(name) for pattern in patterns)
                and all(isinstance(user, (nn.Conv2d, nn.Linear)) for user in users[id(weight)])):
            if isinstance(weight, nn.UninitializedParameter):
                raise ConfigError(f"kfac: layer {name} has no shape yet; run a forward pass first")
            if id(weight) not in seen:
                seen.add(id(weight))
                tracked.append((name, weight, _bias(users[id(weight)]), module,
                                any(pattern.search(name) for pattern in partial),
                                _around(name, model)))
        else:
            uncovered[_kind(module)].append(name or "(the model itself)")
    return CoveredLayers(tracked, dict(uncovered))


def _around(name: str, model: nn.Module) -> list[nn.Module]:
    """The modules that hold the one of this name, and itself."""
    parts = name.split(".") if name else []
    return [model.get_submodule(".".join(parts[:count])) for count in range(len(parts) + 1)]


def _users(model: nn.Module) -> dict[int, list[nn.Module]]:
    """The modules that hold each parameter."""
    users: dict[int, list[nn.Module]] = defaultdict(list)
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                users[id(parameter)].append(module)
    return users


def _bias(sharing: list[nn.Module]) -> torch.Tensor | None:
    """The trainable bias that all layers of one weight have."""
    biases = {id(module._parameters.get("bias")) for module in sharing}
    bias = sharing[0]._parameters.get("bias")
    return bias if len(biases) == 1 and bias is not None and bias.requires_grad else None


def _groups(module: nn.Module) -> int:
    return module.groups if isinstance(module, nn.Conv2d) else 1


def _kind(module: nn.Module) -> str:
    kind = type(module).__name__
    groups = _groups(module)
    return f"{kind} of several groups" if groups > 1 else kind
