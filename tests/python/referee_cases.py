# SPDX-License-Identifier: Apache-2.0
"""Small models, one or more for each kind of layer, and what the package computes for them."""

from __future__ import annotations

import copy
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from loop_reference import Part
from nets import PlainRMSNorm, kfac_over_sgd
from torch import nn

import spdkfac

CLASSES, EXAMPLES, TOKENS, FEATURES, WORDS = 4, 5, 6, 8, 11


@dataclass(frozen=True)
class Case:
    """A model with data. `kind` is what it is about; targets are classes, or values for MSELoss."""

    name: str
    kind: str
    model: Callable[[], nn.Module]
    input: tuple[int, ...]  # of one example
    output: tuple[int, ...] = (CLASSES,)  # of one example; classes come first
    words: bool = False  # inputs are words
    loss: str = "cross entropy"
    reduction: str = "mean"
    options: dict[str, Any] = field(default_factory=dict)

    def data(self) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(3)
        shape = (EXAMPLES, *self.input)
        inputs = (torch.randint(WORDS, shape, generator=generator) if self.words
                  else torch.randn(shape, generator=generator))
        if self.loss == "square":
            return inputs, torch.randn((EXAMPLES, *self.output), generator=generator)
        return inputs, torch.randint(self.output[0], (EXAMPLES, *self.output[1:]), generator=generator)

    def make(self) -> nn.Module:
        torch.manual_seed(7)
        return self.model()

    def loss_function(self) -> nn.Module:
        kind = nn.MSELoss if self.loss == "square" else nn.CrossEntropyLoss
        return kind(reduction=self.reduction)

    def __str__(self) -> str:
        return self.name


class Conv1D(nn.Module):
    """As in transformers: the weight is [in, out]."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight = nn.Parameter(torch.randn(nx, nf) / 2)
        self.bias = nn.Parameter(torch.randn(nf) / 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        return flat.view(*x.size()[:-1], self.nf)


class Mean(nn.Module):
    """Over all but the first dimension and one other."""

    def __init__(self, kept: int) -> None:
        super().__init__()
        self.kept = kept

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.movedim(self.kept, 1).flatten(2).mean(2)


class ClassesFirst(nn.Module):
    """[N, T, C] to [N, C, T], as the loss wants tokens."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2)


def convolution(layer: Callable[[], nn.Module], channels: int) -> Callable[[], nn.Module]:
    """A convolution, and a Linear layer on the mean of its channels."""
    return lambda: nn.Sequential(layer(), nn.Tanh(), Mean(1), nn.Linear(channels, CLASSES))


def tokens(layer: Callable[[], nn.Module], features: int) -> Callable[[], nn.Module]:
    """A layer on tokens, and a Linear layer on their mean."""
    return lambda: nn.Sequential(layer(), nn.Tanh(), Mean(-1), nn.Linear(features, CLASSES))


def only(**options: Any) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(FEATURES, CLASSES, **options))


class SelfAttention(nn.Module):
    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.embed = nn.Linear(FEATURES, FEATURES)
        self.attention = nn.MultiheadAttention(FEATURES, 2, bias=bias, batch_first=True)
        if bias:
            nn.init.normal_(self.attention.in_proj_bias)  # zeros hide mistakes
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.embed(x))
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))


class Fused(nn.Linear):
    parts = 3


class FusedConv1D(Conv1D):
    parts = 3


class FusedAttention(nn.Module):
    """One layer for queries, keys and values."""

    def __init__(self, fused: nn.Module) -> None:
        super().__init__()
        self.embed = nn.Linear(FEATURES, FEATURES)
        self.qkv = fused
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(torch.tanh(self.embed(x))).chunk(3, dim=-1)
        return self.head(nn.functional.scaled_dot_product_attention(q, k, v).mean(1))


class CrossAttention(nn.Module):
    """Queries are half of the tokens, keys and values others; with sizes, three weights of their own."""

    def __init__(self, own_sizes: bool = False) -> None:
        super().__init__()
        self.embed = nn.Linear(FEATURES, FEATURES)
        self.own_sizes = own_sizes
        sizes = {"kdim": 6, "vdim": 7} if own_sizes else {}
        self.attention = nn.MultiheadAttention(FEATURES, 4, batch_first=True, **sizes)
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.embed(x))
        memory = x[:, TOKENS // 2 :]
        keys, values = memory, memory
        if self.own_sizes:
            keys, values = memory[..., :6], memory[..., 1:]
        return self.head(self.attention(x[:, : TOKENS // 2], keys, values, need_weights=False)[0].mean(1))


class Block(nn.Module):
    """A transformer block of Linear layers."""

    def __init__(self, per_token: bool) -> None:
        super().__init__()
        self.embed = nn.Linear(FEATURES, FEATURES)
        self.query, self.value = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES)
        self.key = nn.Linear(FEATURES, FEATURES, bias=False)
        self.out = nn.Linear(FEATURES, FEATURES)
        self.norm = nn.LayerNorm(FEATURES, elementwise_affine=False)
        self.up, self.down = nn.Linear(FEATURES, 12), nn.Linear(12, FEATURES)
        self.head = nn.Linear(FEATURES, CLASSES)
        self.per_token = per_token

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        q, k, v = self.query(x), self.key(x), self.value(x)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v))
        x = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return self.head(x).transpose(1, 2) if self.per_token else self.head(x.mean(1))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 10), nn.Tanh(), nn.Linear(10, 7, bias=False), nn.Sigmoid(),
                         nn.Linear(7, CLASSES))


def cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 6, 3, stride=2, bias=False),
                         nn.Tanh(), nn.Conv2d(6, 5, (2, 1), padding=(1, 0)), nn.Tanh(), nn.Flatten(),
                         nn.Linear(5 * 4 * 3, CLASSES))


def cnn_with_norms() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True),
                         nn.Conv2d(4, 6, 3, stride=2), nn.GroupNorm(2, 6), nn.ReLU(inplace=True),
                         nn.Flatten(), nn.Linear(6 * 2 * 2, 5), nn.LayerNorm(5), nn.Linear(5, CLASSES))


class Recurrent(nn.Module):
    """One Linear layer that is called three times in a pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES)
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for _ in range(3):
            x = torch.tanh(self.again(x))
        return self.head(x)


class NormBlock(nn.Module):
    """A transformer block whose norms are trained: two modules of torch, and one that is written out."""

    def __init__(self, per_token: bool) -> None:
        super().__init__()
        self.embed, self.before = nn.Linear(FEATURES, FEATURES), nn.LayerNorm(FEATURES)
        self.mix, self.between = nn.Linear(FEATURES, FEATURES), nn.RMSNorm(FEATURES, eps=1e-5)
        self.last, self.head = PlainRMSNorm(FEATURES), nn.Linear(FEATURES, CLASSES)
        self.per_token = per_token

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.embed(x))
        x = x + torch.tanh(self.mix(self.before(x)).cumsum(1))
        x = self.head(self.last(x + torch.tanh(self.between(x)).cumsum(1)))
        return x.transpose(1, 2) if self.per_token else x.mean(1)


def cnn_with_own_norms() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, bias=False), nn.GroupNorm(2, 4), nn.ReLU(inplace=True),
                         nn.Conv2d(4, 6, 3, stride=2), nn.InstanceNorm2d(6, affine=True), nn.Tanh(),
                         nn.Flatten(), nn.Linear(6 * 2 * 2, 6), nn.Unflatten(1, (2, 3)), nn.LayerNorm((2, 3)),
                         nn.Flatten(), nn.Linear(6, CLASSES))


SEQUENCE, IMAGE, VOLUME = (2, 9), (2, 8, 7), (2, 4, 5, 4)
PER_TOKEN = (CLASSES, TOKENS)


def linear_cases() -> list[Case]:
    """What curvlinops knows: Linear layers."""
    one, text = (FEATURES,), (TOKENS, FEATURES)
    return [
        Case("linear", "Linear", only(), one),
        Case("linear without bias", "Linear", only(bias=False), one),
        Case("linear, square loss", "Linear", only(), one, loss="square"),
        Case("linear, sum", "Linear", only(), one, reduction="sum"),
        Case("linear, square loss, sum", "Linear", only(), one, loss="square",
             reduction="sum"),
        Case("linear on tokens", "Linear", tokens(lambda: nn.Linear(FEATURES, 7), 7), text),
        Case("linear on an image", "Linear", tokens(lambda: nn.Linear(FEATURES, 7, bias=False), 7),
             (2, 3, FEATURES)),
        Case("mlp", "Linear", mlp, one),
        Case("mlp, square loss", "Linear", mlp, one, loss="square"),
        Case("mlp, sum", "Linear", mlp, one, reduction="sum"),
        Case("called three times", "Linear", Recurrent, one),
        Case("transformer block", "Linear", lambda: Block(False), text),
        Case("transformer block, token losses", "Linear", lambda: Block(True), text, PER_TOKEN),
        Case("transformer block, tokens as examples", "Linear", lambda: Block(True), text, PER_TOKEN,
             options={"examples": "tokens"}),
        Case("transformer block, sum of token losses", "Linear", lambda: Block(True), text, PER_TOKEN,
             reduction="sum"),
    ]


def convolution_cases() -> list[Case]:
    """What curvlinops knows: Conv2d without groups."""
    def of(name: str, *arguments: Any, **options: Any) -> Case:
        return Case(name, "Conv2d", convolution(lambda: nn.Conv2d(2, 5, *arguments, **options), 5), IMAGE)

    return [
        of("conv2d", 3),
        of("conv2d without bias", 3, bias=False),
        of("conv2d with padding", 3, padding=1),
        of("conv2d with stride", 3, stride=2, padding=(2, 1)),
        of("conv2d with dilation", (3, 2), dilation=(2, 3), padding=(1, 2)),
        of("conv2d with stride and dilation", 2, stride=(2, 3), dilation=2, padding=1),
        of("conv2d 1x1", 1),
        of("conv2d padded to the same size", 3, padding="same", dilation=2),
        Case("cnn", "Conv2d", cnn, IMAGE),
        Case("cnn, square loss", "Conv2d", cnn, IMAGE, loss="square"),
        Case("cnn, sum", "Conv2d", cnn, IMAGE, reduction="sum"),
        Case("cnn, channels last", "Conv2d", lambda: cnn().to(memory_format=torch.channels_last), IMAGE),
    ]


def other_cases() -> list[Case]:
    """Kinds that curvlinops does not know."""
    def of(name: str, kind: str, layer: Callable[[], nn.Module], input: tuple[int, ...],
           channels: int = 6) -> Case:
        return Case(name, kind, convolution(layer, channels), input)

    text = (TOKENS, FEATURES)
    return [
        of("conv1d", "Conv1d", lambda: nn.Conv1d(2, 6, 3), SEQUENCE),
        of("conv1d with all settings", "Conv1d",
           lambda: nn.Conv1d(2, 6, 3, stride=2, padding=2, dilation=2, bias=False), SEQUENCE),
        of("conv1d padded to the same size", "Conv1d", lambda: nn.Conv1d(2, 6, 4, padding="same"), SEQUENCE),
        of("conv1d with groups", "Conv1d", lambda: nn.Conv1d(4, 6, 3, groups=2, padding=1), (4, 9)),
        of("conv2d with an even kernel of the same size", "Conv2d",
           lambda: nn.Conv2d(2, 6, (4, 2), padding="same"), IMAGE),
        of("conv2d, circular", "Conv2d",
           lambda: nn.Conv2d(2, 6, 3, padding=1, padding_mode="circular"), IMAGE),
        of("conv3d", "Conv3d", lambda: nn.Conv3d(2, 6, 2), VOLUME),
        of("conv3d with all settings", "Conv3d",
           lambda: nn.Conv3d(2, 6, (2, 3, 1), stride=(1, 2, 2), padding=(1, 1, 0), dilation=(2, 1, 1),
                             bias=False), VOLUME),
        of("conv3d with groups", "Conv3d", lambda: nn.Conv3d(2, 6, 2, groups=2), VOLUME),
        of("transposed 1d", "ConvTranspose1d", lambda: nn.ConvTranspose1d(2, 6, 3), SEQUENCE),
        of("transposed 1d with all settings", "ConvTranspose1d",
           lambda: nn.ConvTranspose1d(2, 6, 3, stride=2, padding=1, output_padding=1, dilation=2, bias=False),
           SEQUENCE),
        of("transposed 2d", "ConvTranspose2d", lambda: nn.ConvTranspose2d(2, 6, 2, stride=2), IMAGE),
        of("transposed 2d with all settings", "ConvTranspose2d",
           lambda: nn.ConvTranspose2d(2, 6, 3, stride=(2, 1), padding=(1, 2), output_padding=(1, 0),
                                      dilation=(1, 2), bias=False), IMAGE),
        of("transposed 2d with groups", "ConvTranspose2d",
           lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), (4, 4, 5)),
        of("transposed 3d", "ConvTranspose3d", lambda: nn.ConvTranspose3d(2, 6, 2, stride=2), (2, 2, 3, 2)),
        of("grouped", "Conv2d with groups", lambda: nn.Conv2d(4, 6, 3, padding=1, groups=2), (4, 5, 6)),
        of("grouped with stride", "Conv2d with groups",
           lambda: nn.Conv2d(6, 6, 3, stride=2, groups=3, bias=False), (6, 7, 5)),
        of("depthwise", "Conv2d with groups", lambda: nn.Conv2d(6, 6, 3, padding=1, groups=6), (6, 5, 6)),
        of("depthwise, two outputs each", "Conv2d with groups",
           lambda: nn.Conv2d(3, 6, 3, dilation=2, groups=3), (3, 6, 7)),
        Case("self-attention", "MultiheadAttention", SelfAttention, text),
        Case("self-attention without bias", "MultiheadAttention", lambda: SelfAttention(bias=False), text),
        Case("cross-attention", "MultiheadAttention", CrossAttention, text),
        Case("cross-attention with three weights", "MultiheadAttention", lambda: CrossAttention(True), text),
        Case("Conv1D on tokens", "Conv1D", tokens(lambda: Conv1D(7, FEATURES), 7), text),
        Case("fused projection", "fused projections",
             lambda: FusedAttention(Fused(FEATURES, 3 * FEATURES)), text, options={"split": {"qkv": 3}}),
        Case("fused projection of Conv1D", "fused projections",
             lambda: FusedAttention(FusedConv1D(3 * FEATURES, FEATURES)), text,
             options={"split": {"qkv": 3}}),
        Case("embedding", "Embedding", tokens(lambda: nn.Embedding(WORDS, 7), 7), (TOKENS,), words=True),
        Case("embedding, one word each", "Embedding",
             lambda: nn.Sequential(nn.Embedding(WORDS, 7), nn.Tanh(), nn.Linear(7, CLASSES)), (), words=True),
    ]


def norm_cases() -> list[Case]:
    """Norms that keep examples apart; their other layers are of kinds above."""
    text = (TOKENS, FEATURES)
    return [
        Case("norms of a transformer block", "norms", lambda: NormBlock(False), text),
        Case("norms of a transformer block, token losses", "norms", lambda: NormBlock(True), text, PER_TOKEN),
        Case("norms of a transformer block, sum", "norms", lambda: NormBlock(False), text, reduction="sum"),
        Case("norms of a cnn", "norms", cnn_with_own_norms, IMAGE),
        Case("norms of a cnn, square loss", "norms", cnn_with_own_norms, IMAGE, loss="square"),
    ]


@dataclass
class Observed:
    """What one step with the package did, by the names of parameters."""

    gradients: dict[str, torch.Tensor]
    updates: dict[str, torch.Tensor]  # what SGD with rate 1 subtracted
    state: dict[str, dict[str, Any]]  # K-FAC's tensors
    covered: set[str]


def observe(case: Case, model: nn.Module, **options: Any) -> Observed:
    """One step of SGD with rate 1 on K-FAC's direction, without limits on its length."""
    unknown = case.options.keys() - inspect.signature(spdkfac.SPDKFACOptimizer).parameters.keys()
    if unknown and case.kind in NOT_COVERED:
        pytest.skip(f"{case.kind} are not covered yet: {unknown}")
    model = copy.deepcopy(model)
    inputs, targets = case.data()
    optimizer = kfac_over_sgd(model, lr=1.0, momentum=0.0, kl_clip=0.0, loss_reduction=case.reduction,
                              **{**case.options, **options})
    parameters = dict(model.named_parameters())
    before = {name: p.detach().clone() for name, p in parameters.items()}
    case.loss_function()(model(inputs), targets).backward()
    gradients = {name: p.grad.clone() for name, p in parameters.items() if p.grad is not None}
    optimizer.step()
    state = optimizer.state_dict()["state"]
    covered = {id(p) for p in optimizer.layers.parameters()}
    return Observed(gradients, {name: before[name] - p.detach() for name, p in parameters.items()},
                    {name: state.get(index, {}) for index, name in enumerate(parameters)},
                    {name for name, p in parameters.items() if id(p) in covered})


def square(triangle: torch.Tensor) -> torch.Tensor:
    """A symmetric matrix from the rows of its upper triangle."""
    size = int((8 * len(triangle) + 1) ** 0.5 - 1) // 2
    matrix = torch.zeros(size, size, dtype=triangle.dtype)
    matrix[tuple(torch.triu_indices(size, size))] = triangle
    return matrix + matrix.T - matrix.diag().diag()


def average(part: Part, parts: list[Part], seen: Observed, side: str) -> torch.Tensor:
    """A or G of a part, from the state of its weight: a matrix for each group or each element of a diagonal,
    or under the names of the layers that share the weight."""
    pairs = [other for other in parts if other.parameters[0] == part.parameters[0]]
    index, state, key = pairs.index(part), seen.state[part.parameters[0]], f"kfac_{side}_average"
    if key in state:
        matrices = state[key].chunk(len(pairs))[index]
    else:
        attention = part.kind == "MultiheadAttention"
        matrices = state[f"{key}@{part.name}" + (f".{'qkv'[index]}_proj" if attention else f"[{index}]")]
    return matrices.reshape(-1).diag() if len(matrices) > 1 else square(matrices[0])


def relative(value: torch.Tensor, reference: torch.Tensor) -> float:
    assert value.shape == reference.shape
    return float(torch.linalg.norm(value - reference) / torch.linalg.norm(reference))


def uncovered(part: Part, seen: Observed) -> list[str]:
    return [name for name in part.parameters if name not in seen.covered]


# Kinds that the package does not cover yet: their cases are skipped, and named. A case of another kind fails
# where a parameter keeps its own gradient, so coverage cannot get lost unseen.
NOT_COVERED: set[str] = set()


def expect_covered(case: Case, parts: list[Part], seen: Observed) -> None:
    missing = sorted({name for part in parts for name in uncovered(part, seen)})
    if missing and case.kind in NOT_COVERED:
        pytest.skip(f"{case.kind} is not covered yet: {missing}")
    assert not missing, f"{case.name}: these parameters keep their own gradient: {missing}"


@contextmanager
def largest_errors(title: str) -> Iterator[dict[str, float]]:
    """Largest errors by kind and quantity; printed at the end, for docs/numerics.md (pytest -s)."""
    errors: dict[str, float] = defaultdict(float)
    yield errors
    print(f"\nlargest relative errors against {title}")
    for what, error in sorted(errors.items()):
        print(f"  {what:40} {error:.1e}")
