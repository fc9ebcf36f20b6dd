# SPDX-License-Identifier: Apache-2.0
"""K-FAC by its definition, in plain loops, for tests. Nothing here comes from the package.

A twin is a model that computes the same function from Linear layers alone: a convolution becomes a Linear
layer on patches that loops have listed, attention becomes three Linear layers, an embedding becomes one on
unit vectors. So one definition, that of a Linear layer, is enough for every kind of layer.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import nn

Values = Mapping[str, torch.Tensor]  # by the name of a parameter: weights, gradients or updates
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Part:
    """A Linear layer of the twin, and where its rows are in the parameters of the model."""

    kind: str
    name: str  # of the layer in the model
    linear: str  # of the Linear layer in the twin
    parameters: tuple[str, ...]
    matrix: Callable[[Values], torch.Tensor]  # [out, in] or [out, in + 1]: the bias comes last


class Twin(nn.Module):
    """A module made of Linear layers. Subclasses say which rows of the weights they have."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        own = dict(module.named_parameters())
        self.linears = nn.ModuleList()
        for matrix in self.matrices(module, own):
            bias = self.has_bias(module)
            linear = nn.Linear(matrix.shape[1] - bias, len(matrix), bias, dtype=matrix.dtype)
            with torch.no_grad():
                linear.weight.copy_(matrix[:, : linear.in_features])
                if bias:
                    linear.bias.copy_(matrix[:, -1])
            self.linears.append(linear)

    @staticmethod
    def has_bias(module: nn.Module) -> bool:
        return getattr(module, "bias", None) is not None

    @staticmethod
    def names(module: nn.Module) -> list[tuple[str, ...]]:
        """The parameters that each Linear layer takes its rows from, by the name in the module."""
        raise NotImplementedError

    @classmethod
    def matrices(cls, module: nn.Module, values: Values) -> list[torch.Tensor]:
        raise NotImplementedError


def with_bias(weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return weight if bias is None else torch.cat([weight, bias[:, None]], dim=1)


def padding_before(module: nn.Module) -> list[int]:
    """Padding in front of each dimension; "same" puts an odd pixel behind."""
    if module.padding == "same":
        return [d * (k - 1) // 2 for d, k in zip(module.dilation, module.kernel_size, strict=True)]
    return [0] * len(module.kernel_size) if module.padding == "valid" else list(module.padding)


def axis_reads(module: nn.Module, axis: int, size: int) -> list[list[int | None]]:
    """For each output position of an axis, and each place of the kernel: the pixel that is read."""
    kernel, step = module.kernel_size[axis], module.dilation[axis]
    stride, before = module.stride[axis], padding_before(module)[axis]
    reads: list[list[int | None]] = []
    if isinstance(module, (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)):
        outputs = (size - 1) * stride - 2 * before + step * (kernel - 1) + module.output_padding[axis] + 1
        for out in range(outputs):
            # Input i is written to position i·stride − padding + place·dilation.
            sources = [out + before - place * step for place in range(kernel)]
            reads.append([s // stride if s % stride == 0 and 0 <= s // stride < size else None
                          for s in sources])
        return reads
    total = step * (kernel - 1) if module.padding == "same" else 2 * before
    for out in range((size + total - step * (kernel - 1) - 1) // stride + 1):
        sources = [out * stride - before + place * step for place in range(kernel)]
        if module.padding_mode == "circular":
            reads.append([s % size for s in sources])
        else:
            reads.append([s if 0 <= s < size else None for s in sources])
    return reads


class ConvolutionTwin(Twin):
    """Of Conv1d to Conv3d and their transposed forms; one Linear layer for each group."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.module = copy.deepcopy(module).requires_grad_(False)  # only its settings are used

    @staticmethod
    def names(module: nn.Module) -> list[tuple[str, ...]]:
        own = ("weight", "bias") if Twin.has_bias(module) else ("weight",)
        return [own] * module.groups

    @classmethod
    def matrices(cls, module: nn.Module, values: Values) -> list[torch.Tensor]:
        weights = values["weight"].chunk(module.groups)
        if module.transposed:  # [in, out, places] of a group
            weights = [weight.transpose(0, 1) for weight in weights]
        biases = values["bias"].chunk(module.groups) if "bias" in values else [None] * module.groups
        return [with_bias(weight.flatten(1), bias)
                for weight, bias in zip(weights, biases, strict=True)]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        sizes = images.shape[2:]
        axes = [axis_reads(self.module, axis, size) for axis, size in enumerate(sizes)]
        outside = math.prod(sizes)  # a pixel behind the last: zero
        reads = []
        for position in itertools.product(*axes):
            for places in itertools.product(*position):
                flat = 0
                for place, size in zip(places, sizes, strict=True):
                    flat = outside if place is None or flat == outside else flat * size + place
                reads.append(flat)
        places = math.prod(self.module.kernel_size)
        index = torch.tensor(reads).reshape(-1, places)
        pixels = torch.cat([images.flatten(2), images.new_zeros(*images.shape[:2], 1)], dim=2)
        outputs = []
        for group, linear in zip(pixels.chunk(self.module.groups, dim=1), self.linears, strict=True):
            patches = group[:, :, index].transpose(1, 2).flatten(2)  # [N, positions, channel and place]
            outputs.append(linear(patches).transpose(1, 2))
        return torch.cat(outputs, dim=1).reshape(len(images), -1, *(len(axis) for axis in axes))


class LinearTwin(Twin):
    """Of Linear, and of Conv1D, whose weight is [in, out]; `parts` of it stand for fused projections."""

    @staticmethod
    def names(module: nn.Module) -> list[tuple[str, ...]]:
        own = ("weight", "bias") if Twin.has_bias(module) else ("weight",)
        return [own] * getattr(module, "parts", 1)

    @classmethod
    def matrices(cls, module: nn.Module, values: Values) -> list[torch.Tensor]:
        weight = values["weight"] if isinstance(module, nn.Linear) else values["weight"].T
        return list(with_bias(weight, values.get("bias")).chunk(getattr(module, "parts", 1)))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.cat([linear(inputs) for linear in self.linears], dim=-1)


class EmbeddingTwin(Twin):
    """A Linear layer on unit vectors."""

    @staticmethod
    def names(module: nn.Module) -> list[tuple[str, ...]]:
        return [("weight",)]

    @classmethod
    def matrices(cls, module: nn.Module, values: Values) -> list[torch.Tensor]:
        return [values["weight"].T]

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        linear = self.linears[0]
        vectors = torch.eye(linear.in_features, dtype=linear.weight.dtype)
        return linear(vectors[words])


class AttentionTwin(Twin):
    """Of MultiheadAttention with batch_first: queries, keys, values and the output."""

    def __init__(self, module: nn.MultiheadAttention) -> None:
        super().__init__(module)
        assert module.batch_first and module.dropout == 0 and module.bias_k is None
        self.heads = module.num_heads

    @staticmethod
    def has_bias(module: nn.Module) -> bool:
        return module.in_proj_bias is not None

    @staticmethod
    def names(module: nn.Module) -> list[tuple[str, ...]]:
        together = module.in_proj_weight is not None
        bias = ("in_proj_bias",) if AttentionTwin.has_bias(module) else ()
        weights = ["in_proj_weight"] * 3 if together else [f"{x}_proj_weight" for x in "qkv"]
        output = ("out_proj.weight", "out_proj.bias") if bias else ("out_proj.weight",)
        return [(weight, *bias) for weight in weights] + [output]

    @classmethod
    def matrices(cls, module: nn.Module, values: Values) -> list[torch.Tensor]:
        if "in_proj_weight" in values:
            weights = values["in_proj_weight"].chunk(3)
        else:
            weights = tuple(values[f"{x}_proj_weight"] for x in "qkv")
        biases = values["in_proj_bias"].chunk(3) if "in_proj_bias" in values else [None] * 3
        return [*(with_bias(w, b) for w, b in zip(weights, biases, strict=True)),
                with_bias(values["out_proj.weight"], values.get("out_proj.bias"))]

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                need_weights: bool = False) -> tuple[torch.Tensor, None]:
        heads = []
        projected = [linear(x) for linear, x in zip(self.linears[:3], (query, key, value), strict=True)]
        for q, k, v in zip(*(x.chunk(self.heads, dim=-1) for x in projected), strict=True):
            heads.append(torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1) @ v)
        return self.linears[3](torch.cat(heads, dim=-1)), None


def twin_class(module: nn.Module) -> type[Twin] | None:
    convolutions = (nn.Conv1d, nn.Conv2d, nn.Conv3d,
                    nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
    if isinstance(module, convolutions):
        return ConvolutionTwin
    if isinstance(module, nn.Linear) or any(each.__name__ == "Conv1D" for each in type(module).__mro__):
        return LinearTwin
    if isinstance(module, nn.Embedding):
        return EmbeddingTwin
    return AttentionTwin if isinstance(module, nn.MultiheadAttention) else None


def twin_of(model: nn.Module) -> tuple[nn.Module, list[Part]]:
    """A model of the same function whose layers are Linear layers, and these layers."""
    twin, parts = copy.deepcopy(model), []
    for name, module in model.named_modules():
        kind = twin_class(module)
        if kind is None or any(part.name == name.rpartition(".")[0] for part in parts):
            continue  # out_proj belongs to its attention
        parent, _, leaf = name.rpartition(".")
        setattr(twin.get_submodule(parent), leaf, kind(module))
        for index, own in enumerate(kind.names(module)):
            parts.append(Part(type(module).__name__, name, f"{name}.linears.{index}",
                              tuple(f"{name}.{x}" for x in own), matrix_of(module, kind, name, index)))
    return twin, parts


def matrix_of(module: nn.Module, kind: type[Twin], name: str,
              index: int) -> Callable[[Values], torch.Tensor]:
    own = [parameter for parameter, _ in module.named_parameters()]
    return lambda values: kind.matrices(module, {x: values[f"{name}.{x}"] for x in own})[index]


# ---- factors, one example at a time ----

@dataclass
class Factors:
    """A and G of convention kfc: Σããᵀ/N and Σggᵀ/(N·S)."""

    a: torch.Tensor
    g: torch.Tensor
    positions: int = 1  # S


def rows_of_examples(twin: nn.Module, linear: str, inputs: tuple[torch.Tensor, ...], targets: torch.Tensor,
                     loss: Loss) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Per example: rows of the layer's input, and the gradient of this example's loss by its output."""
    layer = twin.get_submodule(linear)
    for example in range(len(targets)):
        seen: list[tuple[torch.Tensor, torch.Tensor]] = []
        handle = layer.register_forward_hook(
            lambda _, arguments, output, seen=seen: seen.append((arguments[0], output)))
        value = loss(twin(*(x[example : example + 1] for x in inputs)), targets[example : example + 1])
        handle.remove()
        gradients = torch.autograd.grad(value, [output for _, output in seen])
        for (x, _), g in zip(seen, gradients, strict=True):
            rows = x.detach().reshape(-1, x.shape[-1])
            ones = rows.new_ones(len(rows), 1)
            trained = [columns for columns, p in ((rows, layer.weight), (ones, layer.bias))
                       if p is not None and p.requires_grad]
            yield torch.cat(trained, dim=1), g.reshape(-1, g.shape[-1])


def factors(twin: nn.Module, linear: str, inputs: tuple[torch.Tensor, ...], targets: torch.Tensor,
            loss: Loss) -> Factors:
    a, g, positions = torch.zeros(()), torch.zeros(()), 0
    for rows, gradients in rows_of_examples(twin, linear, inputs, targets, loss):
        positions = len(rows)  # of one call
        for row, gradient in zip(rows, gradients, strict=True):
            a = a + torch.outer(row, row)
            g = g + torch.outer(gradient, gradient)
    return Factors(a / len(targets), g / (len(targets) * positions), positions)


def exact_fisher(twin: nn.Module, linear: str, inputs: tuple[torch.Tensor, ...], targets: torch.Tensor,
                 loss: Loss) -> torch.Tensor:
    """The layer's block of the empirical Fisher: the mean of outer products of examples' gradients."""
    total = torch.zeros(())
    for rows, gradients in rows_of_examples(twin, linear, inputs, targets, loss):
        gradient = (gradients.T @ rows).reshape(-1)
        total = total + torch.outer(gradient, gradient)
    return total / len(targets)


def blocks_of_units(model: nn.Module, names: list[str], inputs: torch.Tensor, targets: torch.Tensor,
                    loss: Loss) -> torch.Tensor:
    """For each unit of a norm the block of the empirical Fisher, [units, k, k], of k parameters of these names.
    Examples run alone, so the norm must keep them apart."""
    own = [model.get_parameter(name) for name in names]
    blocks = torch.zeros(own[0].numel(), len(own), len(own), dtype=own[0].dtype)
    for example in range(len(targets)):
        value = loss(model(inputs[example : example + 1]), targets[example : example + 1])
        gradients = [gradient.reshape(-1) for gradient in torch.autograd.grad(value, own)]
        for unit in range(len(blocks)):
            vector = torch.stack([gradient[unit] for gradient in gradients])
            blocks[unit] += torch.outer(vector, vector) / len(targets)
    return blocks


# ---- from factors to the update ----

def damped(factors: Factors, mode: str, damping: float) -> Factors:
    """With π²= (tr A/d_A)/(tr G/d_G) for "pi", with the damping itself for "plain"."""
    a, g = factors.a, factors.g
    mean_a, mean_g = float(a.trace()) / len(a), float(g.trace()) / len(g)
    root = math.sqrt(damping)
    pi = math.sqrt(mean_a / mean_g)
    more_a, more_g = {"plain": (damping, damping), "pi": (pi * root, root / pi),
                      "relative": (root * mean_a, root * mean_g)}[mode]
    return Factors(a + more_a * torch.eye(len(a), dtype=a.dtype),
                   g + more_g * torch.eye(len(g), dtype=g.dtype))


def preconditioned_units(blocks: torch.Tensor, gradient: torch.Tensor, mode: str, damping: float) -> torch.Tensor:
    """Of gradients [units, k]: the factor is the block diagonal matrix of all units, and A is 1."""
    whole = damped(Factors(torch.ones(1, 1, dtype=blocks.dtype), torch.block_diag(*blocks)), mode, damping)
    return torch.linalg.solve(whole.g, gradient.reshape(-1)).reshape(gradient.shape) / whole.a


def preconditioned(factors: Factors, gradient: torch.Tensor) -> torch.Tensor:
    """Solves with the explicit Kronecker product of the damped factors; gradient is [out, in | bias]."""
    solution = torch.linalg.solve(torch.kron(factors.g, factors.a), gradient.reshape(-1))
    return solution.reshape(gradient.shape)


def block_diagonal(factor: torch.Tensor, ends: list[int]) -> torch.Tensor:
    """Only the diagonal blocks that end before these rows; ends 1, 2, … leave the diagonal."""
    kept = torch.zeros_like(factor)
    begin = 0
    for end in ends:
        kept[begin:end, begin:end] = factor[begin:end, begin:end]
        begin = end
    return kept
