# SPDX-License-Identifier: Apache-2.0
"""The tasks: data, network, loss, what is measured on test data, and where to look for learning rates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional

import attention
import data
import networks
import physics
from data import Batch, Data
from files import Sources
from mistake import Mistake

Range = tuple[float, float]
Load = Callable[[Sources, torch.device], Data]


@dataclass(frozen=True)
class Rates:
    """Learning rates to search, lowest and highest, by whose step has that length."""

    sgd: Range
    adam: Range
    kfac: Range  # K-FAC over SGD, whose preconditioned gradients have a scale of their own


@dataclass(frozen=True)
class Task:
    """The metric is one of test data, and lower is better."""

    name: str
    load: Load
    model: Callable[[], nn.Module]
    loss: Callable[[nn.Module, Batch], torch.Tensor]
    metric: str
    measure: Callable[[nn.Module, Iterator[Batch]], torch.Tensor]
    batch: int
    cpu_steps: int
    gpu_steps: int
    rates: Rates
    decays: bool = True  # whether weight decay is worth a search
    damping: Range = (3e-4, 3e-1)  # to search for K-FAC where it is not relative
    kl_clip: float = 0.001  # likewise, where K-FAC is not grafted

    def steps(self, device: torch.device) -> int:
        return self.gpu_steps if device.type == "cuda" else self.cpu_steps


def squared_error(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Summed over the pixels, mean over the images."""
    inputs, wanted = batch
    return functional.mse_loss(model(inputs), wanted, reduction="sum") / len(inputs)


def cross_entropy(model: nn.Module, batch: Batch) -> torch.Tensor:
    inputs, labels = batch
    return functional.cross_entropy(model(inputs).flatten(0, -2), labels.flatten())


def mean_of(loss: Callable[[nn.Module, Batch], torch.Tensor], model: nn.Module,
            tests: Iterator[Batch]) -> torch.Tensor:
    """A loss that is a mean over examples, over all tests."""
    losses, counts = zip(*((loss(model, batch), len(batch[0])) for batch in tests))
    weights = torch.tensor(counts, device=losses[0].device) / sum(counts)
    mean: torch.Tensor = (torch.stack(losses) * weights).sum()
    return mean


def error_rate(model: nn.Module, tests: Iterator[Batch]) -> torch.Tensor:
    """The share of wrong answers, in percent."""
    wrong = torch.cat([model(inputs).argmax(1) != labels for inputs, labels in tests])
    return 100 * wrong.float().mean()


CONVOLUTIONS = Rates(sgd=(0.01, 1.0), adam=(5e-4, 5e-2), kfac=(1e-3, 1e-1))
TRANSFORMERS = Rates(sgd=(0.01, 1.0), adam=(5e-4, 5e-2), kfac=(1e-3, 1e-1))
AUTOENCODERS = Rates(sgd=(5e-4, 5e-2), adam=(3e-4, 3e-2), kfac=(3e-2, 1.0))


def autoencoder(name: str, widths: tuple[int, ...], tests: int | None, batch: int, cpu_steps: int,
                gpu_steps: int, side: int = 28) -> Task:
    return Task(name, partial(data.fashion_pixels, tests=tests, side=side), partial(networks.autoencoder, widths),
                squared_error, "test squared error", partial(mean_of, squared_error), batch, cpu_steps,
                gpu_steps, AUTOENCODERS, decays=False, damping=(1.0, 100.0), kl_clip=1.0)


def classifier(name: str, load: Load, model: Callable[[], nn.Module], batch: int, cpu_steps: int,
               gpu_steps: int, rates: Rates = CONVOLUTIONS) -> Task:
    return Task(name, load, model, cross_entropy, "test error (%)", error_rate, batch, cpu_steps, gpu_steps,
                rates)


def gpt(name: str, window: int, width: int, heads: int, blocks: int, test_windows: int, batch: int,
        cpu_steps: int, gpu_steps: int) -> Task:
    return Task(name, partial(data.text_windows, window=window, test_windows=test_windows),
                partial(attention.Gpt, window, width, heads, blocks), cross_entropy, "test loss",
                partial(mean_of, cross_entropy), batch, cpu_steps, gpu_steps, TRANSFORMERS)


few_tests = partial(data.fashion_images, tests=2000)  # enough for the tasks that a CPU can do

# One run of the budget takes at most about 20 s of an H200, of the small ones about a minute of a CPU core.
TASKS: dict[str, Task] = {task.name: task for task in (
    autoencoder("autoencoder", (784, 1000, 500, 250, 30, 250, 500, 1000, 784), None, 512, 600, 1500),
    autoencoder("autoencoder-small", (196, 128, 64, 32, 16, 32, 64, 128, 196), 2000, 512, 1000, 1000, side=14),
    classifier("cnn", few_tests, networks.small_cnn, 128, 400, 1000),
    classifier("resnet20", data.fashion_images, networks.resnet20, 128, 300, 1400),
    classifier("cifar-128", data.cifar_images, networks.resnet18, 128, 400, 3900),
    classifier("cifar-2048", data.cifar_images, networks.resnet18, 2048, 50, 240),
    classifier("vit", data.fashion_images, partial(attention.Vit, 4, 192, 3, 6), 256, 300, 1500,
               TRANSFORMERS),
    classifier("vit-small", few_tests, partial(attention.Vit, 7, 64, 4, 3), 128, 800, 800, TRANSFORMERS),
    gpt("gpt", 128, 256, 4, 4, 1024, 64, 300, 1500),
    gpt("gpt-small", 64, 96, 4, 2, 256, 32, 600, 600),
    Task("physics", physics.square, partial(physics.Poisson, 64, 4),
         physics.poisson_loss, "relative error", physics.relative_error, 256, 1500, 3000,
         Rates(sgd=(3e-4, 3e-2), adam=(1e-3, 3e-2), kfac=(1e-2, 1.0)), decays=False,
         kl_clip=0.01),
)}


def task_named(name: str) -> Task:
    if name not in TASKS:
        raise Mistake(f"--tasks: unknown task ({name}); give one of {', '.join(TASKS)}")
    return TASKS[name]
