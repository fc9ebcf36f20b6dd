# SPDX-License-Identifier: Apache-2.0
"""Kinds of models that people train: with the defaults each learns, or is refused at once with a reason."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

import spdkfac

Loss = Callable[[], Any]
Made = tuple[nn.Module, Loss]
EXAMPLES = 8
CLASSES = 3


def labels() -> torch.Tensor:
    return torch.arange(EXAMPLES) % CLASSES


class Diffusion(nn.Module):
    """A U-Net that knows the time: attention, a transposed convolution, a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16))
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.down = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(4, 16)
        self.attend, self.project = nn.Conv2d(16, 48, 1), nn.Conv2d(16, 16, 1)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.last = nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, images: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        angles = time[:, None] * torch.exp(-torch.arange(8.0))
        shift = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        skip = self.first(images)
        hidden = F.silu(self.norm(self.down(skip) + shift[:, :, None, None]))
        q, k, v = self.attend(hidden).flatten(2).transpose(1, 2).chunk(3, -1)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(hidden.shape)
        return self.last(torch.cat([skip, self.up(hidden + self.project(mixed))], 1))


def diffusion() -> Made:
    model = Diffusion()
    noise, time = torch.randn(EXAMPLES, 3, 8, 8), torch.rand(EXAMPLES)
    noisy = torch.randn(EXAMPLES, 3, 8, 8) + noise * time[:, None, None, None]
    return model, lambda: (model(noisy, time) - noise).square().mean()


def autoencoder() -> Made:
    model = nn.ModuleDict({"encode": nn.Linear(12, 16), "mean": nn.Linear(16, 4), "spread": nn.Linear(16, 4),
                           "decode": nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 12))})
    inputs, noise = torch.rand(EXAMPLES, 12), torch.randn(EXAMPLES, 4)

    def loss() -> torch.Tensor:  # a sum, and several terms
        hidden = F.relu(model["encode"](inputs))
        mean, spread = model["mean"](hidden), model["spread"](hidden)
        decoded = model["decode"](mean + noise * (spread / 2).exp())
        divergence = -0.5 * (1 + spread - mean.square() - spread.exp()).sum()
        return 0.1 * (F.binary_cross_entropy_with_logits(decoded, inputs, reduction="sum") + divergence)
    return model, loss


class Words(nn.Module):
    """A recurrent language model; time comes first."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.memory = nn.Embedding(20, 8), nn.LSTM(8, 12, 2)
        self.between, self.out = nn.Linear(12, 12), nn.Linear(12, 20)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(self.between(self.memory(self.embed(tokens))[0])))


def language_model() -> Made:
    model, tokens = Words(), torch.randint(0, 20, (7, EXAMPLES))
    return model, lambda: F.cross_entropy(model(tokens[:-1]).flatten(0, 1), tokens[1:].flatten())


class Unrolled(nn.Module):
    """The same layers in each step of time."""

    def __init__(self) -> None:
        super().__init__()
        self.input, self.hidden, self.out = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        state = inputs.new_zeros(inputs.shape[1], 16)
        for each in inputs:
            state = torch.tanh(self.input(each) + self.hidden(state))
        return self.out(state)


def unrolled() -> Made:
    model, inputs = Unrolled(), torch.randn(5, EXAMPLES, 6)
    return model, lambda: F.cross_entropy(model(inputs), labels())


class Graphs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.nodes, self.messages = nn.Linear(6, 16), nn.Linear(16, 16)
        self.edges, self.out = nn.Linear(4, 16), nn.Linear(16, CLASSES)

    def forward(self, nodes: torch.Tensor, ends: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(self.nodes(nodes))
        sent = self.messages(hidden[ends[0]]) + self.edges(edges)
        return self.out(hidden + torch.zeros_like(hidden).index_add(0, ends[1], sent))


def graph() -> Made:
    """As many edges as it likes: 33 for 8 nodes."""
    model, nodes, edges = Graphs(), torch.randn(EXAMPLES, 6), torch.randn(33, 4)
    ends = torch.randint(0, EXAMPLES, (2, 33))
    return model, lambda: F.cross_entropy(model(nodes, ends, edges), labels())


class ManyInputs(nn.Module):
    """A dict in, a dict with a tuple out."""

    def __init__(self) -> None:
        super().__init__()
        self.images, self.words = nn.Conv2d(3, 8, 3), nn.EmbeddingBag(30, 8)
        self.numbers = nn.Linear(5, 8)
        self.classes, self.value = nn.Linear(24, CLASSES), nn.Linear(24, 1)

    def forward(self, data: dict[str, torch.Tensor]) -> dict[str, Any]:
        hidden = torch.cat([self.images(data["images"]).mean((2, 3)), self.words(data["words"]),
                            self.numbers(data["numbers"])], 1)
        return {"classes": self.classes(hidden), "values": (self.value(hidden),)}


def many_inputs() -> Made:
    model = ManyInputs()
    data = {"images": torch.randn(EXAMPLES, 3, 6, 6), "words": torch.randint(0, 30, (EXAMPLES, 4)),
            "numbers": torch.randn(EXAMPLES, 5)}

    def loss() -> torch.Tensor:
        out = model(data)
        return F.cross_entropy(out["classes"], labels()) + out["values"][0].square().mean()
    return model, loss


def perceptron(*layers: nn.Module) -> Made:
    model = nn.Sequential(*layers)
    inputs = torch.randn(EXAMPLES, 10)
    return model, lambda: F.cross_entropy(model(inputs), labels())


def siamese() -> Made:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 8))
    three = [torch.randn(EXAMPLES, 1, 6, 6) for _ in range(3)]
    return model, lambda: F.triplet_margin_loss(*(model(each) for each in three))


def normalised() -> Made:
    return perceptron(parametrizations.weight_norm(nn.Linear(10, 16)), nn.ReLU(),
                      parametrizations.spectral_norm(nn.Linear(16, 8)), nn.ReLU(), nn.Linear(8, CLASSES))


class LowRank(nn.Module):
    """A frozen layer and a small trainable difference."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, 2, bias=False)
        self.up = nn.Linear(2, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.base(inputs) + self.up(self.down(inputs))


def low_rank() -> Made:
    return perceptron(LowRank(nn.Linear(10, 16)), nn.ReLU(), LowRank(nn.Linear(16, CLASSES)))


def half_frozen() -> Made:
    model, loss = perceptron(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    model[0].requires_grad_(False)  # type: ignore[index]
    return model, loss


def channels_last() -> Made:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(True), nn.Conv2d(8, 8, 3, groups=8), nn.Hardswish(True),
                          nn.Flatten(), nn.Linear(32, CLASSES)).to(memory_format=torch.channels_last)
    images = torch.randn(EXAMPLES, 3, 6, 6).to(memory_format=torch.channels_last)
    return model, lambda: F.cross_entropy(model(images), labels())


def autocast() -> Made:
    model, plain = channels_last()

    def loss() -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return plain()
    return model, loss


def half_precision() -> Made:
    model, _ = perceptron(nn.Linear(10, 16), nn.GELU(), nn.Linear(16, CLASSES))
    model.bfloat16()
    inputs = torch.randn(EXAMPLES, 10).bfloat16()
    return model, lambda: F.cross_entropy(model(inputs).float(), labels())


def functional() -> Made:
    model, _ = perceptron(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    inputs = torch.randn(EXAMPLES, 10)
    return model, lambda: F.cross_entropy(
        torch.func.functional_call(model, dict(model.named_parameters()), (inputs,)), labels())


def scalar_output() -> Made:
    class Energy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(10, 16), nn.SiLU(), nn.Linear(16, 1))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.layers(inputs).square().mean()
    model, inputs = Energy(), torch.randn(EXAMPLES, 10)
    return model, lambda: model(inputs)


def gradient_penalty() -> Made:
    model = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    real, fake = torch.randn(EXAMPLES, 6), torch.randn(EXAMPLES, 6) + 1

    def loss() -> torch.Tensor:
        middle = ((real + fake) / 2).requires_grad_()
        slope, = torch.autograd.grad(model(middle).sum(), middle, create_graph=True)
        return model(fake).mean() - model(real).mean() + 10 * (slope.norm(dim=1) - 1).square().mean()
    return model, loss


def spoken() -> Made:
    """As in speech: time first in the loss, batch first in the model."""
    model = nn.ModuleDict({"in": nn.Linear(8, 16), "memory": nn.GRU(16, 16, batch_first=True),
                           "out": nn.Linear(16, 10)})
    inputs, targets = torch.randn(EXAMPLES, 12, 8), torch.randint(1, 10, (EXAMPLES, 5))

    def loss() -> torch.Tensor:
        scores = model["out"](model["memory"](torch.relu(model["in"](inputs)))[0]).log_softmax(-1)
        return F.ctc_loss(scores.transpose(0, 1), targets, torch.full((EXAMPLES,), 12), torch.full((EXAMPLES,), 5))
    return model, loss


def traced_part() -> Made:
    """One block is TorchScript: it keeps its own gradient."""
    return perceptron(torch.jit.script(nn.Linear(10, 16)), nn.Tanh(), nn.Linear(16, CLASSES))


def complex_part() -> Made:
    """Complex weights keep their own gradient."""
    model = nn.ModuleDict({"complex": nn.Linear(6, 8, dtype=torch.cfloat), "real": nn.Linear(8, 2)})
    inputs = torch.randn(EXAMPLES, 6, dtype=torch.cfloat)
    return model, lambda: model["real"](model["complex"](inputs).abs()).square().mean()


def mixed_types() -> Made:
    """Each layer in a type of its own."""
    model = nn.ModuleList([nn.Linear(10, 16).double(), nn.Linear(16, 16).bfloat16(), nn.Linear(16, CLASSES)])
    inputs = torch.randn(EXAMPLES, 10)

    def loss() -> torch.Tensor:
        hidden = inputs
        for layer in model:
            hidden = layer(torch.tanh(hidden).to(layer.weight.dtype))
        return F.cross_entropy(hidden, labels())
    return model, loss


def sparse_gradients() -> Made:
    """Those of a table that keeps its own."""
    model = nn.ModuleDict({"table": nn.Embedding(10, 6, sparse=True), "out": nn.Linear(6, CLASSES)})
    words = torch.randint(0, 10, (EXAMPLES, 4))
    return model, lambda: F.cross_entropy(model["out"](model["table"](words).mean(1)), labels())


def sparse_inputs() -> Made:
    """As words of documents, in the first layer of a network on a graph."""
    model = nn.ModuleDict({"words": nn.Linear(10, 16), "out": nn.Linear(16, CLASSES)})
    counts = torch.randn(EXAMPLES, 10).relu().to_sparse()

    def loss() -> torch.Tensor:
        return F.cross_entropy(model["out"](model["words"](counts).tanh()), labels())
    return model, loss


def empty_layer() -> Made:
    """As a block of width 0, which keeps its own gradient."""
    model = nn.ModuleDict({"in": nn.Linear(10, 8), "down": nn.Linear(8, 0), "up": nn.Linear(0, 8),
                           "out": nn.Linear(8, CLASSES)})
    inputs = torch.randn(EXAMPLES, 10)

    def loss() -> torch.Tensor:
        hidden = model["in"](inputs).tanh()
        return F.cross_entropy(model["out"](hidden + model["up"](model["down"](hidden))), labels())
    return model, loss


def physics() -> Made:
    """An equation of derivatives that torch.func takes, whose calls do not count, and values at a border."""
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    inside, border = torch.rand(32, 2), torch.rand(EXAMPLES, 2)

    def loss() -> torch.Tensor:
        slopes = torch.func.vmap(torch.func.jacrev(lambda point: model(point)[0]))(inside)
        return (slopes[:, 0] - slopes[:, 1]).square().mean() + (model(border) - 1).square().mean()
    return model, loss


LEARN = [diffusion, autoencoder, language_model, unrolled, many_inputs, siamese, normalised, low_rank, half_frozen,
         channels_last, autocast, half_precision, functional, scalar_output, gradient_penalty, spoken, traced_part,
         complex_part, mixed_types, empty_layer, physics, sparse_inputs]
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
}


def trained(model: nn.Module, loss_of: Loss, name: str, **options: Any) -> spdkfac.SPDKFACOptimizer:
    """Five steps; nothing may be said but what K-FAC covers."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="spdkfac: K-FAC covers")
        optimizer = spdkfac.SPDKFACOptimizer(OPTIMIZERS[name](model.parameters()), model, **options)
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = loss_of()
            losses.append(loss.item())
            loss.backward()
            optimizer.step()
    losses.append(loss_of().item())
    assert all(map(math.isfinite, losses)) and losses[-1] < losses[0], losses
    return optimizer


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("make", LEARN)
def test_it_learns(make: Callable[[], Made], name: str) -> None:
    model, loss_of = make()
    counters = trained(model, loss_of, name).counters
    for what in ("layers_without_factors", "layers_scaled", "nonfinite_factors", "nonfinite_gradients",
                 "inverses_kept"):
        assert counters[what] == 0, what


def test_sparse_gradients_of_other_layers_are_left_as_they_are() -> None:
    model, loss_of = sparse_gradients()  # Adam of torch refuses them
    trained(model, loss_of, "sgd")
    assert model["table"].weight.grad.is_sparse  # type: ignore[index]


def test_complex_layers_are_not_covered() -> None:
    model, loss_of = complex_part()
    assert trained(model, loss_of, "sgd").layers.uncovered == {"Linear": ["complex"]}


def test_layers_on_edges_of_a_graph_are_partial() -> None:
    model, loss_of = graph()
    with pytest.raises(RuntimeError, match=r"layer messages has 33 rows in a pass of 8 .*partial_layers="):
        trained(model, loss_of, "sgd")
    model, loss_of = graph()
    trained(model, loss_of, "sgd", partial_layers=["messages", "edges"])


def refused(model: nn.Module, loss_of: Loss, message: str) -> None:
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with pytest.raises(spdkfac.ConfigError, match=message):
        trained(model, loss_of, "sgd", log_level="error")
    for parameter, was in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, was)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_torchscript_is_refused() -> None:
    model, _ = perceptron(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    scripted = torch.jit.script(model)
    refused(scripted, lambda: scripted(torch.randn(EXAMPLES, 10)).sum(), "TorchScript")


def test_weights_that_are_all_computed_are_refused() -> None:
    model, loss_of = perceptron(parametrizations.weight_norm(nn.Linear(10, CLASSES)))
    refused(model, loss_of, "no trainable layer that K-FAC covers.*it has ParametrizedLinear: 0")


@pytest.mark.parametrize("how", ["computed", "vmap", "grad"])
def test_functions_that_hide_layers_are_refused(how: str) -> None:
    model, _ = perceptron(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    inputs = torch.randn(EXAMPLES, 10)

    def loss() -> torch.Tensor:
        parameters = dict(model.named_parameters())
        if how == "computed":
            halves = {name: 0.5 * each for name, each in parameters.items()}
            return F.cross_entropy(torch.func.functional_call(model, halves, (inputs,)), labels())
        if how == "vmap":
            each = torch.func.vmap(lambda one, label: F.cross_entropy(model(one), label))
            return each(inputs, labels()).mean()
        gradients = torch.func.grad(lambda those: F.cross_entropy(
            torch.func.functional_call(model, those, (inputs,)), labels()))(parameters)
        for name, parameter in parameters.items():
            parameter.grad = gradients[name].detach()
        return torch.zeros((), requires_grad=True)
    refused(model, loss, "no call of any layer was seen.*parameters themselves as weights.*torch.func.vmap")
