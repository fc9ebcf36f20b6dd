# SPDX-License-Identifier: Apache-2.0
"""The kinds of layers that K-FAC covers: what tells them, and how their weights are laid out.

One function for each kind of module. It returns the layers that the module holds itself, none for other
modules. Names of kinds are those of layer tables (docs/formats.md); the calls of each kind are in
src/spdkfac/runtime/kinds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

Range = tuple[int, int]  # first output, and how many


@dataclass(frozen=True, eq=False)
class HeldLayer:
    """A layer inside a module: its parameters, or ranges of their outputs."""

    kind: str
    weight: torch.Tensor
    bias: torch.Tensor | None
    name: str = ""  # inside the module
    groups: int = 1
    outputs: Range | None = None
    bias_outputs: Range | None = None

    @property
    def count(self) -> int:
        """Its outputs."""
        if self.outputs is not None:
            return self.outputs[1]
        if self.kind == "norm":
            return self.weight.numel()
        if self.kind.startswith("conv_transpose"):
            return self.weight.size(1) * self.groups
        return self.weight.size(1 if self.kind in ("linear_in_out", "embedding") else 0)


CONVOLUTIONS: dict[type[nn.Module], str] = {
    nn.Conv1d: "conv1d", nn.Conv2d: "conv2d", nn.Conv3d: "conv3d",
    nn.ConvTranspose1d: "conv_transpose1d", nn.ConvTranspose2d: "conv_transpose2d",
    nn.ConvTranspose3d: "conv_transpose3d",
}


def linear(module: nn.Module, own: Mapping[str, torch.Tensor]) -> list[HeldLayer]:
    if not isinstance(module, nn.Linear) or "weight" not in own:
        return []
    return [HeldLayer("linear", own["weight"], own.get("bias"))]


def convolution(module: nn.Module, own: Mapping[str, torch.Tensor]) -> list[HeldLayer]:
    kind = next((name for kind, name in CONVOLUTIONS.items() if isinstance(module, kind)), None)
    if kind is None or "weight" not in own:
        return []
    return [HeldLayer(kind, own["weight"], own.get("bias"), groups=int(getattr(module, "groups")))]


def linear_in_out(module: nn.Module, own: Mapping[str, torch.Tensor]) -> list[HeldLayer]:
    """transformers' Conv1D, known by its name and its number of outputs: input·weight + bias."""
    outputs = getattr(module, "nf", None)
    if (not any(each.__name__ == "Conv1D" for each in type(module).__mro__)
            or "weight" not in own or own["weight"].dim() != 2 or own["weight"].size(1) != outputs):
        return []
    return [HeldLayer("linear_in_out", own["weight"], own.get("bias"))]


def attention(module: nn.Module, own: Mapping[str, torch.Tensor]) -> list[HeldLayer]:
    """The projections of queries, keys and values; that of the output is a Linear module."""
    if not isinstance(module, nn.MultiheadAttention):
        return []
    size, bias = module.embed_dim, own.get("in_proj_bias")
    layers = []
    for part, name in enumerate(("q_proj", "k_proj", "v_proj")):
        rows = (part * size, size)
        of_bias = rows if bias is not None else None
        if "in_proj_weight" in own:
            layers.append(HeldLayer("linear", own["in_proj_weight"], bias, name, outputs=rows,
                                    bias_outputs=of_bias))
        elif f"{name}_weight" in own:
            layers.append(HeldLayer("linear", own[f"{name}_weight"], bias, name, bias_outputs=of_bias))
    return layers


def embedding(module: nn.Module, own: Mapping[str, torch.Tensor]) -> list[HeldLayer]:
    """Tables with dense gradients whose rows are neither bounded nor scaled by how often they occur."""
    if (not isinstance(module, nn.Embedding) or "weight" not in own or module.sparse
            or module.scale_grad_by_freq or module.max_norm is not None):
        return []
    return [HeldLayer("embedding", own["weight"], None)]


NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._BatchNorm,
         nn.modules.instancenorm._InstanceNorm)
# Of classes that write the norm out, as transformers' do.
NORM_NAME = re.compile("(layer|rms|group|batch|instance)_?norm", re.IGNORECASE)


def norm(module: nn.Module, own: Mapping[str, torch.Tensor]) -> list[HeldLayer]:
    """A scale, and maybe a shift, for each unit. SyncBatchNorm hides its call inside a function of its own."""
    weight, bias = own.get("weight"), own.get("bias")
    if weight is None or isinstance(module, nn.SyncBatchNorm) or own.keys() - {"weight", "bias"}:
        return []
    by_name = weight.dim() == 1 and any(NORM_NAME.search(each.__name__) for each in type(module).__mro__)
    if not (by_name or isinstance(module, NORMS)) or (bias is not None and bias.shape != weight.shape):
        return []
    return [HeldLayer("norm", weight, bias)]


KINDS: list[Callable[[nn.Module, Mapping[str, torch.Tensor]], list[HeldLayer]]] = [
    linear, convolution, linear_in_out, attention, embedding, norm,
]


def layers_in(module: nn.Module) -> list[HeldLayer]:
    """The layers that a module holds itself, frozen ones, too."""
    own = dict(module.named_parameters(recurse=False, remove_duplicate=False))
    return next((found for kind in KINDS if (found := kind(module, own))), [])
