# SPDX-License-Identifier: Apache-2.0
"""What is around a model: DistributedDataParallel, torch.compile, and what cannot be trained with."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .errors import ConfigError

Gradients = Literal["auto", "averaged", "own"]


def layers_around(model: nn.Module) -> Iterator[nn.Module]:
    """The model, what it wraps, and so on, down to the module of the user."""
    dynamo = sys.modules.get("torch._dynamo")  # nothing is compiled before it is loaded
    while True:
        yield model
        if isinstance(model, DistributedDataParallel):
            model = model.module
        elif dynamo is not None and isinstance(model, dynamo.OptimizedModule):
            model = model._orig_mod
        else:
            return


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside DistributedDataParallel and torch.compile, in any order."""
    *_, inner = layers_around(model)
    return inner


def data_parallel(model: nn.Module) -> DistributedDataParallel | None:
    """The DistributedDataParallel that the model is, or is compiled from."""
    return next((each for each in layers_around(model) if isinstance(each, DistributedDataParallel)), None)


def plain_name(name: str) -> str:
    """The name that a module has in the model that is not compiled."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def reject_sharded(model: nn.Module) -> None:
    """What shards parameters so that a process never has the whole weight and gradient of a layer.

    fully_shard, which does not, is for spdkfac.sharding.
    """
    for module in model.modules():
        names = {f"{kind.__module__}.{kind.__name__}" for kind in type(module).__mro__}
        if any(name.startswith("torch.distributed.fsdp") and name.endswith(".FullyShardedDataParallel")
               for name in names):
            raise _sharded("FullyShardedDataParallel makes one flat parameter of many layers")
        if any(name.startswith("deepspeed.") for name in names):
            raise ConfigError("kfac: the model is a DeepSpeed engine, which steps its own optimizer and may "
                              "shard parameters; train the module with fully_shard or DistributedDataParallel, which "
                              "SPDKFACOptimizer supports, or use DeepSpeed without K-FAC")
    by_fully_shard = bool(sharded_modules(model))
    for name, parameter in model.named_parameters():
        if not by_fully_shard and (type(parameter).__name__ == "DTensor" or type(parameter.data).__name__ == "DTensor"):
            raise _sharded(f"parameter {name} is a DTensor, but not of fully_shard: with tensor parallelism no process "
                           "has the whole weight of a layer")
        if hasattr(parameter, "ds_id"):
            raise _sharded(f"parameter {name} belongs to DeepSpeed's ZeRO stage 3")


def _sharded(what: str) -> ConfigError:
    return ConfigError(f"kfac: {what}; K-FAC needs layers: shard the model with fully_shard (FSDP2), or train with "
                       "DistributedDataParallel: factors and inverses can still be kept by one rank each "
                       "(algorithm=\"owner-precondition\")")


def sharded_modules(model: nn.Module) -> list[Any]:
    """Those that fully_shard was called on."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # nothing is sharded before it is loaded
    kind = getattr(fsdp, "FSDPModule", None)
    return [] if kind is None else [module for module in model.modules() if isinstance(module, kind)]


def reject_replaced(model: nn.Module, covered: Iterable[torch.Tensor]) -> None:
    """Something may have replaced or cut the parameters since the optimizer was made."""
    reject_sharded(model)
    present = {id(parameter) for parameter in model.parameters()}
    if any(id(parameter) not in present or parameter.numel() == 0 for parameter in covered):
        raise ConfigError("kfac: parameters of the model were replaced after the optimizer was made, by fully_shard "
                          "or by a conversion of layers; make both optimizers afterwards")


def sends_gradients(gradients: Gradients, ddp: DistributedDataParallel | None) -> bool:
    """Whether gradients travel in our messages."""
    if gradients == "auto":
        return ddp is None
    if gradients == "averaged":
        return False
    if gradients != "own":
        raise ConfigError(f"kfac: gradients={gradients}; pass one of auto, averaged, own")
    if ddp is not None:
        ddp.require_backward_grad_sync = False  # as in no_sync(), for good
    return True


class FirstPass:
    """Calls a function once, when the module begins its first pass for training: with the
    DistributedDataParallel that runs it then, or None. The module may be copied and pickled meanwhile."""

    def __init__(self, module: nn.Module | None = None,
                 begin: Callable[[DistributedDataParallel | None], None] | None = None) -> None:
        self._module = None if module is None else weakref.ref(module)
        self._begin = None if begin is None else weakref.WeakMethod(begin)
        self._handle: Any = None if module is None else module.register_forward_pre_hook(self)

    def __call__(self, module: nn.Module, _: Any) -> None:
        if self._module is None or module is not self._module() or self._begin is None:
            return
        if not torch.is_grad_enabled() or not module.training:
            return
        begin = self._begin()
        self.forget()
        if begin is not None:
            begin(DistributedDataParallel._active_ddp_module)

    def forget(self) -> None:
        self._begin = None
        if self._handle is not None:
            self._handle.remove()

    def __deepcopy__(self, _: Any) -> FirstPass:
        return FirstPass()

    def __reduce__(self) -> Any:
        return FirstPass, ()
