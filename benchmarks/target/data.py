# SPDX-License-Identifier: Apache-2.0
"""Training and test data on the device, as endless batches and as test batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn import functional

import files
from files import Sources

Batch = tuple[torch.Tensor, torch.Tensor]
TEST_CHUNK = 500  # examples of a test batch
FASHION_MEAN, FASHION_DEVIATION = 0.2860, 0.3530
CIFAR_MEAN, CIFAR_DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
SHIFT = 4  # pixels by which a CIFAR image moves at most


class Data(Protocol):
    def batches(self, size: int, seed: int) -> Iterator[Batch]:
        """Endless; the same for the same seed, so all optimizers see the same examples."""

    def tests(self) -> Iterator[Batch]:
        """All test examples once."""


def generator_on(device: torch.device, seed: int) -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


@dataclass(frozen=True)
class Images:
    """Images with labels, or with themselves as what to predict."""

    train: Batch
    test: Batch
    augment: bool = False

    def batches(self, size: int, seed: int) -> Iterator[Batch]:
        images, wanted = self.train
        generator = generator_on(images.device, seed)
        while True:
            order = torch.randperm(len(images), generator=generator, device=images.device)
            for start in range(0, len(images) - size + 1, size):
                chosen = order[start:start + size]
                picked = images[chosen]
                yield (flipped_and_moved(picked, generator) if self.augment else picked), wanted[chosen]

    def tests(self) -> Iterator[Batch]:
        return zip(self.test[0].split(TEST_CHUNK), self.test[1].split(TEST_CHUNK))


def flipped_and_moved(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each image mirrored or not, and moved by up to SHIFT pixels, with zeros from outside."""
    count, _, height, width = images.shape
    device = images.device

    def draw(high: int) -> torch.Tensor:
        return torch.randint(high, (count, 1), generator=generator, device=device)

    padded = functional.pad(images, (SHIFT, SHIFT, SHIFT, SHIFT))
    rows = torch.arange(height, device=device) + draw(2 * SHIFT + 1)
    columns = torch.arange(width, device=device).expand(count, width)
    columns = torch.where(draw(2) == 1, columns.flip(1), columns) + draw(2 * SHIFT + 1)
    which = torch.arange(count, device=device)[:, None, None]
    moved = padded.permute(0, 2, 3, 1)[which, rows[:, :, None], columns[:, None, :]]
    return moved.permute(0, 3, 1, 2).contiguous()


@dataclass(frozen=True)
class Text:
    """Windows of a text; what to predict is the next byte."""

    train: torch.Tensor
    test: torch.Tensor
    window: int
    test_windows: int

    def batches(self, size: int, seed: int) -> Iterator[Batch]:
        generator = generator_on(self.train.device, seed)
        while True:
            starts = torch.randint(len(self.train) - self.window, (size,), generator=generator,
                                   device=self.train.device)
            yield self._windows(self.train, starts)

    def tests(self) -> Iterator[Batch]:
        starts = torch.linspace(0, len(self.test) - self.window - 1, self.test_windows,
                                dtype=torch.float64).long().to(self.test.device)
        return (self._windows(self.test, some) for some in starts.split(128))

    def _windows(self, text: torch.Tensor, starts: torch.Tensor) -> Batch:
        places = starts[:, None] + torch.arange(self.window + 1, device=text.device)
        found = text[places].long()
        return found[:, :-1], found[:, 1:]


def fashion_images(sources: Sources, device: torch.device, tests: int | None = None) -> Images:
    def prepared(part: str, most: int | None) -> Batch:
        images, labels = files.fashion_mnist(sources, part)
        scaled = (images[:most].to(device).float() / 255 - FASHION_MEAN) / FASHION_DEVIATION
        return scaled, labels[:most].to(device)
    return Images(prepared("train", None), prepared("t10k", tests))


def fashion_pixels(sources: Sources, device: torch.device, tests: int | None = None, side: int = 28) -> Images:
    """Pixels from 0 to 1, to be predicted from themselves; images of a smaller side are means of blocks."""
    def prepared(part: str, most: int | None) -> Batch:
        images = files.fashion_mnist(sources, part)[0][:most].to(device).float().view(-1, 1, 28, 28) / 255
        pixels = torch.nn.functional.adaptive_avg_pool2d(images, side).flatten(1)
        return pixels, pixels
    return Images(prepared("train", None), prepared("t10k", tests))


def cifar_images(sources: Sources, device: torch.device) -> Images:
    def prepared(part: str) -> Batch:
        images, labels = files.cifar10(sources, part)
        mean, deviation = (torch.tensor(values, device=device).view(1, 3, 1, 1)
                           for values in (CIFAR_MEAN, CIFAR_DEVIATION))
        return (images.to(device).float() / 255 - mean) / deviation, labels.to(device)
    return Images(prepared("train"), prepared("test"), augment=True)


def text_windows(sources: Sources, device: torch.device, window: int, test_windows: int) -> Text:
    """The first nine tenths are for training, the last one is for tests."""
    text = files.text(sources)
    cut = len(text) * 9 // 10
    return Text(text[:cut].to(device), text[cut:].to(device), window, test_windows)
