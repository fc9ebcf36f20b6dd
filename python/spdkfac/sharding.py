# SPDX-License-Identifier: Apache-2.0
"""Models of fully_shard (FSDP2): between passes a process has a part of each parameter.

Calls of layers are seen by their whole weights, which fully_shard makes once and fills for each pass.
Gradients are whole during step() alone: they are gathered, preconditioned as with any other model, and each
process keeps its part. Parameters and the wrapped optimizer's state stay in parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from .errors import ConfigError
from .layers import CoveredLayer, CoveredLayers
from .wrapping import Gradients, sharded_modules


class Shards:
    """What is whole of each sharded parameter of a model, and what this process keeps; empty for other models."""

    def __init__(self, model: nn.Module) -> None:
        self._whole: dict[int, tuple[torch.Tensor, Any]] = {}  # by the shard: both
        self._places: list[tuple[nn.Module, str, torch.Tensor]] = []
        modules = sharded_modules(model)
        if modules and any(parameter.is_meta for parameter in model.parameters()):
            raise ConfigError("kfac: parameters are on the meta device, without values; give the model memory "
                              "(to_empty) and values before the optimizer is made")
        for module in modules:
            module.reshard()
        places = [(module, name, parameter) for module in model.modules()
                  for name, parameter in module._parameters.items() if parameter is not None]
        for module in modules:
            _reject_mixed(module)
            module.unshard()
            for owner, name, shard in places:
                whole = owner._parameters[name]
                if whole is not None and whole is not shard:
                    self._whole[id(shard)] = (whole, shard)
                    self._places.append((owner, name, whole))
            module.reshard()
        if modules:
            self._require_all(model)

    def __bool__(self) -> bool:
        return bool(self._whole)

    def _require_all(self, model: nn.Module) -> None:
        for name, parameter in model.named_parameters():
            whole, _ = self._whole.get(id(parameter), (None, None))
            if whole is None and parameter.requires_grad:
                raise ConfigError(f"kfac: parameter {name} is not sharded, but others are, so nobody would average its "
                                  "gradient; call fully_shard on the model itself, too, after its layers")
            if whole is not None and whole.dtype != parameter.dtype:
                raise ConfigError(f"kfac: parameter {name} is {parameter.dtype} and {whole.dtype} in passes "
                                  "(MixedPrecisionPolicy); use torch.autocast instead")
            if whole is not None and type(whole.data).__name__ == "DTensor":
                raise ConfigError(f"kfac: parameter {name} is sharded by tensor parallelism, too, so no process "
                                  "ever has the whole of it; use fully_shard alone")
            if whole is not None and parameter.device != whole.device:
                raise ConfigError(f"kfac: parameter {name} is on {parameter.device} between passes (CPUOffloadPolicy), "
                                  "where K-FAC does not compute; leave it on the GPU")

    def require_parts(self, optimizer: torch.optim.Optimizer) -> None:
        """The wrapped optimizer must step what this process keeps, not a whole parameter of a pass."""
        known = {id(whole) for whole, _ in self._whole.values()}
        if any(id(parameter) in known for group in optimizer.param_groups for parameter in group["params"]):
            raise ConfigError(f"kfac: {type(optimizer).__name__} was made when a forward pass had left parameters whole, "
                              "so it would not update the model; make it right after fully_shard, before any pass")

    def require_possible(self, **options: object) -> None:
        """Options that read parameters or the scale of gradients in ways that are not there for parts."""
        for name, value in options.items():
            if self and value:
                raise ConfigError(f"kfac: {name} does not work with fully_shard yet; leave it out, or train with "
                                  "DistributedDataParallel")

    def averaged(self, gradients: Gradients) -> Gradients:
        """Who averages gradients: fully_shard does, where it cuts parameters."""
        if self and gradients == "own":
            raise ConfigError("kfac: gradients=\"own\" with fully_shard, which averages them itself; leave it at "
                              "\"auto\"")
        return "averaged" if self else gradients

    def require_group(self, size: int) -> None:
        """K-FAC's processes must be those that the gradients are averaged over."""
        for _, shard in self._whole.values():
            if (over := shard.device_mesh.size()) != size:
                raise ConfigError(f"kfac: fully_shard averages gradients over {over} processes, and K-FAC has {size}; "
                                  "pass process_group with the processes of its mesh")

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The modules have the whole parameters, though without values, so that layers are found as ever."""
        before = [(owner, name, owner._parameters[name]) for owner, name, _ in self._places]
        for owner, name, whole in self._places:
            owner._parameters[name] = whole  # type: ignore[assignment]
        try:
            yield
        finally:
            for owner, name, shard in before:
                owner._parameters[name] = shard

    def marked(self, layers: CoveredLayers) -> CoveredLayers:
        """The layers, which then know what this process keeps of them."""
        shards = {id(whole): shard for whole, shard in self._whole.values()}

        def marked(layer: CoveredLayer) -> CoveredLayer:
            return replace(layer, weight_shard=shards.get(id(layer.weight)), bias_shard=shards.get(id(layer.bias)))
        return replace(layers, tracked=[marked(layer) for layer in layers.tracked])

    def whole_of(self, shard: torch.Tensor) -> torch.Tensor:
        """The parameter by which K-FAC knows it; itself for one that is not sharded."""
        return self._whole.get(id(shard), (shard, None))[0]

    @contextmanager
    def whole_gradients(self) -> Iterator[None]:
        """Gradients are whole meanwhile; afterwards each process has its part of what they have become."""
        gathered = [(whole, shard.grad) for whole, shard in self._whole.values() if shard.grad is not None]
        try:
            for whole, gradient in gathered:
                whole.grad = gradient.full_tensor()
            yield
            for whole, gradient in gathered:
                gradient.to_local().copy_(own_part(whole.grad, gradient).to_local())
        finally:
            for whole, _ in gathered:
                whole.grad = None


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The whole of a DTensor, on all processes; others as they are."""
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()  # type: ignore[no-any-return]


def own_part(tensor: Any, like: Any) -> Any:
    """Of a tensor that is the same on all processes, as a DTensor that is cut as another is."""
    from torch.distributed.tensor import DTensor, Replicate

    everywhere = DTensor.from_local(tensor, like.device_mesh, [Replicate()] * like.device_mesh.ndim, run_check=False)
    return everywhere.redistribute(placements=like.placements)


def _reject_mixed(module: Any) -> None:
    """Gradients that wait in another type are out of reach of K-FAC's bookkeeping of passes."""
    policy = getattr(module._get_fsdp_state(), "_mp_policy", None)
    types = {getattr(policy, "param_dtype", None), getattr(policy, "reduce_dtype", None)} - {None}
    if types - {parameter.dtype for parameter in module.parameters()}:
        raise ConfigError(f"kfac: fully_shard with a MixedPrecisionPolicy ({', '.join(map(str, types))}); "
                          "use torch.autocast instead")
