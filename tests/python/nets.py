# SPDX-License-Identifier: Apache-2.0
"""Small networks and data that tests share."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

import spdkfac
from spdkfac.sharding import whole

CLASSES = 4


class SmallNet(nn.Module):
    """Convolutions with and without bias, a parameter of its own, Linear layers, no statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 6, 3, padding=1)
        self.second = nn.Conv2d(6, 8, 3, stride=2, padding=1, bias=False)
        self.scale = nn.Parameter(torch.ones(8, 1, 1))
        self.third = nn.Linear(8 * 3 * 3, 12)
        self.out = nn.Linear(12, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = torch.tanh(self.second(torch.tanh(self.first(images))) * self.scale)
        return self.out(torch.tanh(self.third(features.flatten(1))))


def small_net(dtype: torch.dtype = torch.float64) -> SmallNet:
    torch.manual_seed(7)
    with torch.device("cpu"):
        model = SmallNet()
    return model.to(torch.get_default_device(), dtype)


Batch = tuple[torch.Tensor, torch.Tensor]


def batch(step: int, part: int = 0, examples: int = 6, dtype: torch.dtype = torch.float64) -> Batch:
    """The examples of a process in a step: the same in every run."""
    generator = torch.Generator("cpu").manual_seed(1000 + 100 * step + part)
    images = torch.randn(examples, 2, 6, 6, generator=generator, dtype=torch.float64, device="cpu")
    labels = torch.randint(CLASSES, (examples,), generator=generator, device="cpu")
    return images.to(torch.get_default_device(), dtype), labels.to(torch.get_default_device())


def joined(batches: Iterable[Batch]) -> Batch:
    images, labels = zip(*batches, strict=True)
    return torch.cat(images), torch.cat(labels)


def loss_of(model: nn.Module, data: Batch) -> torch.Tensor:
    return nn.functional.cross_entropy(model(data[0]), data[1])


def kfac_over_sgd(model: nn.Module, lr: float = 0.05, momentum: float = 0.9,
                  foreach: bool | None = None, **options: Any) -> spdkfac.SPDKFACOptimizer:
    """SPDKFACOptimizer as published, without its warning about other layers."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="spdkfac: K-FAC covers")
        sgd = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum, foreach=foreach)
        return spdkfac.SPDKFACOptimizer(sgd, model, **{"preset": "paper", **options})


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterable[Batch]) -> None:
    for data in batches:
        optimizer.zero_grad()
        loss_of(model, data).backward()
        optimizer.step()


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([whole(p.detach()).cpu().double().reshape(-1) for p in model.parameters()])


def difference(value: torch.Tensor, reference: torch.Tensor) -> float:
    return float((value - reference).abs().max() / reference.abs().max())


def same_bits(left: nn.Module, right: nn.Module) -> bool:
    """On a GPU the same up to rounding: there torch may add in another order."""
    if torch.get_default_device().type != "cpu":
        return difference(flat(left), flat(right)) < 1e-4
    pairs = zip(left.state_dict().values(), right.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


class Conv1D(nn.Module):
    """A Linear layer with its weight [in, out], as transformers have it."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.randn(nx, nf))
        self.bias = nn.Parameter(torch.randn(nf))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, x.reshape(-1, x.size(-1)), self.weight).view(*x.shape[:-1], self.nf)


class PlainRMSNorm(nn.Module):
    """Written out, as in transformers; `one` is added to the weight, as Gemma does."""

    def __init__(self, size: int, one: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))
        self.one = one

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        even = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (self.one + self.weight if self.one else self.weight) * even


class ManyKinds(nn.Module):
    """A layer of each kind; some have groups. Norms that keep examples apart, so that ranks add up."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Conv1d(2, 4, 3, padding=1)
        self.channels = nn.Conv1d(4, 4, 3, padding=1, groups=4)
        self.wider = nn.ConvTranspose1d(4, 4, 2, stride=2, groups=2)
        self.table = nn.Embedding(3, 4, padding_idx=0)
        self.places = nn.Embedding(8, 4)
        self.before = nn.LayerNorm(4)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.after = PlainRMSNorm(4)
        self.c_attn = Conv1D(12, 4)
        self.space = nn.Conv3d(4, 3, 2)
        self.up = nn.ConvTranspose3d(3, 2, 2, bias=False)
        self.groups = nn.GroupNorm(1, 2, affine=True)
        self.plane = nn.ConvTranspose2d(2, 2, 2)
        self.out = nn.Linear(2 * 5 * 3, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of [N, 2, 4]."""
        steps = torch.tanh(self.wider(torch.tanh(self.channels(self.line(x))))).transpose(1, 2)
        numbers = (x > 0).long().sum(1)
        places = torch.arange(8, device=x.device).expand(len(x), 8)  # of each example: then ranks add up
        steps = steps + self.table(numbers).repeat(1, 2, 1) + self.places(places)
        even = self.before(steps)
        steps = steps + self.attention(even, even, even)[0]
        q, k, v = self.c_attn(self.after(steps)).chunk(3, -1)
        volume = (torch.tanh(q * k) + v).transpose(1, 2).reshape(-1, 4, 2, 2, 2)
        planes = torch.tanh(self.up(torch.tanh(self.space(volume)))).flatten(2, 3)
        return self.out(torch.tanh(self.plane(self.groups(planes))).flatten(1))


def many_kinds() -> ManyKinds:
    torch.manual_seed(7)
    with torch.device("cpu"):
        model = ManyKinds()
    return model.to(torch.get_default_device(), torch.float64)


def kinds_batch(step: int, part: int = 0, examples: int = 5) -> torch.Tensor:
    """Inputs of a process in a step."""
    generator = torch.Generator("cpu").manual_seed(1000 + 100 * step + part)
    return torch.randn(examples, 2, 4, generator=generator, dtype=torch.float64, device="cpu").to(
        torch.get_default_device())


def kinds_loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(x).square().sum(1).mean()


def steps(count: int, first: int = 0, **options: Any) -> Iterator[Batch]:
    return (batch(step, **options) for step in range(first, first + count))
