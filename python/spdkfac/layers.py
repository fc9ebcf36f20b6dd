# SPDX-License-Identifier: Apache-2.0
"""Which layers of a model K-FAC covers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from .errors import ConfigError
from .kinds import HeldLayer, Range, layers_in
from .wrapping import plain_name, unwrapped

SHOWN = 8  # layers that an error names


@dataclass(frozen=True, eq=False)
class CoveredLayer(HeldLayer):
    """A layer of K-FAC, with its name in the model. Its bias is None also where it is not trained."""

    module: nn.Module = field(default_factory=nn.Identity)  # its `training` says whether a call counts
    around: list[nn.Module] = field(default_factory=list)  # their buffers may be tables it is called with
    partial: bool = False  # sees only some of the examples
    # What this process keeps of parameters that are whole only within passes (spdkfac.sharding).
    weight_shard: torch.Tensor | None = None
    bias_shard: torch.Tensor | None = None

    @property
    def parameters(self) -> list[torch.Tensor]:
        """Those that are trained, as the optimizer has them."""
        own = [self.weight if self.weight_shard is None else self.weight_shard] if self.weight.requires_grad else []
        if self.bias is not None:
            own.append(self.bias if self.bias_shard is None else self.bias_shard)
        return own

    @property
    def shard(self) -> torch.Tensor | None:
        """Of the parameter whose gradient tells whether the layer has one."""
        return self.weight_shard if self.weight.requires_grad else self.bias_shard


@dataclass(frozen=True)
class CoveredLayers:
    """What K-FAC sees of a model."""

    tracked: list[CoveredLayer]
    uncovered: dict[str, list[str]]  # by type: names of layers that keep their own gradient
    trained: int = 0  # elements of all parameters that are trained

    @property
    def names(self) -> list[str]:
        return [layer.name for layer in self.tracked]

    @property
    def coverage(self) -> float:
        """The share of all trained elements that K-FAC preconditions."""
        return sum(one.numel() for one in self.parameters()) / max(1, self.trained)

    def stepped_by(self, optimizer: torch.optim.Optimizer) -> CoveredLayers:
        """Without the layers and biases that the optimizer does not update: nobody clears their gradients."""
        groups = {id(one) for group in optimizer.param_groups for one in group["params"]}
        tracked: list[CoveredLayer] = []
        for layer in self.tracked:
            first, *others = layer.parameters
            if id(first) in groups:
                missing = any(id(one) not in groups for one in others)
                tracked.append(replace(layer, bias=None, bias_outputs=None, bias_shard=None) if missing else layer)
        left = CoveredLayers(tracked, self.uncovered)
        unstepped = sum(one.numel() for one in self.parameters()) - sum(one.numel() for one in left.parameters())
        return replace(left, trained=self.trained - unstepped)

    def parameters(self) -> list[torch.Tensor]:
        """Those of covered layers, each once."""
        return list({id(one): one for layer in self.tracked for one in layer.parameters}.values())

    def uncovered_text(self) -> str:
        return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in self.uncovered.items())


def reject_hidden(layers: CoveredLayers, unseen: Iterable[int], computed: set[int]) -> None:
    """Layers that have a gradient, though no call of them was seen, must not be compiled ones.

    Where a step needs calls, torch.compile is off (spdkfac.compiled), unless the user interferes.

    Compiled code may belong to any function, so ask the weights: dynamo marks those that it compiles
    code for. Code for inference makes no gradients; zeros are left from before the step. `computed`
    collects layers that are not seen for another reason: their operator gets a computed weight.
    """
    hidden = []
    for index in unseen:
        weight = layers.tracked[index].weight
        if not hasattr(weight, "_dynamo_static_input_type"):
            computed.add(index)
        elif index not in computed and _has_gradient(layers.tracked[index].parameters[0]):
            hidden.append(layers.names[index])
    if hidden:
        raise _compiled(", ".join(hidden[:SHOWN])
                        + (f" and {len(hidden) - SHOWN} more" if len(hidden) > SHOWN else ""),
                        len(hidden))


def _has_gradient(weight: torch.Tensor) -> bool:
    return weight.grad is not None and bool(weight.grad.any())


def _compiled(what: str, count: int = 1) -> ConfigError:
    return ConfigError(f"kfac: {what} {'was' if count == 1 else 'were'} called by compiled code in a step that needs "
                       "the calls of layers; call what torch.compile returns in each step, not one compiled "
                       "function around several steps, and set no stance (torch.compiler.set_stance)")


def covered_layers(model: nn.Module, *, skip_layers: Iterable[str] = (),
                   partial_layers: Iterable[str] = (),
                   split: Mapping[str, int] | None = None, norms: bool = False) -> CoveredLayers:
    """The layers of a model that K-FAC covers (spdkfac.kinds), in the order of its modules.

    Left out are layers without a trained parameter, those whose weight is computed
    (parametrizations), those that `skip_layers` matches (regular expressions, searched in names), and
    weights that layers of several kinds share. A weight shared by several layers of one kind is one
    layer that is called several times. Layers that `partial_layers` matches see only some of the
    examples. `split`: a name or pattern and the number of equal parts of the outputs that become
    layers of their own. `norms`: whether norms are layers; if not, they are not listed as uncovered.
    """
    model = unwrapped(model)
    if isinstance(model, torch.jit.ScriptModule):
        raise ConfigError("kfac: the model is TorchScript, which hides its layers; train the module that it "
                          "was made of, and script or trace it for inference")
    skipped = patterns_of("skip_layers", skip_layers, model)
    partial = patterns_of("partial_layers", partial_layers, model)
    users = _users(model)
    tracked: list[CoveredLayer] = []
    seen: set[int] = set()  # weights
    biases: set[tuple[int, Range | None]] = set()
    for prefix, module in model.named_modules():
        fresh = [held for held in layers_in(module)
                 if id(held.weight) not in seen and (norms or held.kind != "norm")]
        for held in fresh:
            name = ".".join(part for part in (plain_name(prefix), held.name) if part)
            if any(one.search(name) for one in skipped):
                continue
            layer = _covered(name, held, users[id(held.weight)])
            if layer is None:
                continue
            if (bias := (id(layer.bias), layer.bias_outputs)) in biases:
                layer = replace(layer, bias=None, bias_outputs=None)  # another layer has it
            elif layer.bias is not None:
                biases.add(bias)
            seen.add(id(held.weight))
            tracked.append(replace(layer, around=_around(prefix, model), module=module,
                                   partial=any(one.search(name) for one in partial)))
    return CoveredLayers(split_layers(tracked, split or {}), _uncovered(model, tracked, norms),
                         sum(p.numel() for p in model.parameters() if p.requires_grad))


def patterns_of(option: str, patterns: Iterable[str], model: nn.Module) -> list[re.Pattern[str]]:
    """The regular expressions of an option, each of which matches the name of some module or layer."""
    if isinstance(patterns, str):
        raise ConfigError(f"kfac: {option}={patterns!r} is one string; pass a list, such as [{patterns!r}]")
    try:
        compiled = [re.compile(pattern) for pattern in patterns]
    except (re.error, TypeError) as error:
        raise ConfigError(f"kfac: {option} has what is no regular expression ({error}); pass a list of names or "
                          "patterns") from None
    names = [".".join(part for part in (plain_name(name), inner) if part)
             for name, module in model.named_modules()
             for inner in ["", *(held.name for held in layers_in(module))]]
    for each in compiled:
        if not any(each.search(name) for name in names):
            raise ConfigError(f"kfac: {option}={each.pattern!r} matches no layer of the model; see "
                              "model.named_modules() for the names")
    return compiled


def _covered(name: str, held: HeldLayer, users: list[HeldLayer | None]) -> CoveredLayer | None:
    """The layer, or none if it cannot be covered. `users`: what all modules hold the weight for."""
    if isinstance(held.weight, nn.UninitializedParameter):
        raise ConfigError(f"kfac: layer {name} has no shape yet; run a forward pass first")
    if held.weight.is_meta:
        raise ConfigError(f"kfac: layer {name} is on the meta device; make the optimizer after to_empty() and the "
                          "initialisation of the parameters")
    # The factors of an output layer serve for a table that shares its weight.
    others = [user for user in users if user is None or user.kind not in (held.kind, "embedding")]
    alike = [user for user in users if user is not None and user.kind == held.kind]
    if others or not held.weight.is_floating_point() or held.weight.numel() == 0:
        return None
    biases = {(id(user.bias), user.bias_outputs) for user in alike if user.outputs == held.outputs}
    trained = len(biases) == 1 and held.bias is not None and held.bias.requires_grad
    if not trained and not held.weight.requires_grad:
        return None
    return CoveredLayer(held.kind, held.weight, held.bias if trained else None, name, held.groups,
                        held.outputs, held.bias_outputs if trained else None)


def split_layers(layers: list[CoveredLayer], split: Mapping[str, int]) -> list[CoveredLayer]:
    """Layers with those that `split` names in equal parts of their outputs."""
    used: set[str] = set()
    result: list[CoveredLayer] = []
    for pattern, parts in split.items():
        if not isinstance(parts, int) or isinstance(parts, bool):
            raise ConfigError(f"kfac: split={parts!r} of {pattern!r}; pass a number of parts")
        try:
            re.compile(pattern)
        except (re.error, TypeError) as error:
            raise ConfigError(f"kfac: split has {pattern!r}, which is no regular expression ({error}); pass names "
                              "of layers or patterns") from None
    for layer in layers:
        found = [pattern for pattern in split
                 if pattern == layer.name or re.search(pattern, layer.name)]
        used.update(found)
        result += _parts(layer, split[found[0]]) if found else [layer]
    if unused := [pattern for pattern in split if pattern not in used]:
        raise ConfigError(f"kfac: split names {', '.join(unused)}, which matches no covered layer; they are "
                          f"{', '.join(layer.name for layer in layers)}")
    return result


def _parts(layer: CoveredLayer, parts: int) -> list[CoveredLayer]:
    if not layer.kind.startswith("linear") or parts < 1 or layer.count % parts != 0:
        raise ConfigError(f"kfac: split={parts} of layer {layer.name} ({layer.kind}, {layer.count} outputs); "
                          "split Linear layers, into a number of parts that divides their outputs")
    size = layer.count // parts

    def part_of(whole: Range | None, part: int) -> Range:
        return ((whole[0] if whole else 0) + part * size, size)

    return [replace(layer, name=f"{layer.name}[{part}]", outputs=part_of(layer.outputs, part),
                    bias_outputs=None if layer.bias is None else part_of(layer.bias_outputs, part))
            for part in range(parts)]


def _uncovered(model: nn.Module, tracked: list[CoveredLayer], norms: bool) -> dict[str, list[str]]:
    """Modules that hold trained parameters outside the covered layers, by type."""
    covered = {id(one) for layer in tracked for one in layer.parameters}
    result: dict[str, list[str]] = defaultdict(list)
    for name, module in model.named_modules():
        own = [p for p in module.parameters(recurse=False) if p.requires_grad and id(p) not in covered]
        if own and (norms or not any(held.kind == "norm" for held in layers_in(module))):
            result[type(module).__name__].append(plain_name(name) or "(the model itself)")
    return dict(result)


def _around(name: str, model: nn.Module) -> list[nn.Module]:
    """The modules that hold the one of this name, and itself."""
    parts = name.split(".") if name else []
    return [model.get_submodule(".".join(parts[:count])) for count in range(len(parts) + 1)]


def _users(model: nn.Module) -> dict[int, list[HeldLayer | None]]:
    """For each parameter the layers that it is a weight of; None for each module that has another use."""
    users: dict[int, list[HeldLayer | None]] = defaultdict(list)
    for module in model.modules():
        held = layers_in(module)
        for layer in held:
            users[id(layer.weight)].append(layer)
        known = {id(one) for layer in held for one in (layer.weight, layer.bias)}
        for parameter in module._parameters.values():
            if parameter is not None and id(parameter) not in known:
                users[id(parameter)].append(None)
    return users
