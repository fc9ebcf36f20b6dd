# SPDX-License-Identifier: Apache-2.0
"""What a Curvature does: functions of its matrix, vectors, files, uneven batches, and users' mistakes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from devices import DEVICE
from nets import batch, small_net
from referee_cases import Conv1D, relative
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import spdkfac

LOSS = nn.CrossEntropyLoss()
DAMPING = 0.02
DAMPED_AS_IN_TRAINING = {"plain": lambda a, g: (DAMPING, DAMPING),
                         "relative": lambda a, g: (math.sqrt(DAMPING) * a, math.sqrt(DAMPING) * g),
                         "pi": lambda a, g: (math.sqrt(a / g * DAMPING), math.sqrt(g / a * DAMPING))}


class Mixed(nn.Module):
    """Parameters in an order of their own, a group, both layouts, a layer without bias, and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.free = nn.Parameter(torch.ones(4))
        self.first = nn.Conv2d(2, 4, 2, groups=2)
        self.back = nn.ConvTranspose2d(4, 2, 2, bias=False)
        self.last = Conv1D(4, 2)
        self.norm = nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.back(torch.tanh(self.first(x))).mean((2, 3))
        return self.head(self.norm(torch.tanh(self.last(x))) * self.free)


def mixed(examples: int = 6) -> tuple[nn.Module, list[tuple[torch.Tensor, torch.Tensor]]]:
    torch.manual_seed(3)
    model = Mixed().double().to(DEVICE)
    return model, [(torch.randn(examples, 2, 3, 3, dtype=torch.float64, device=DEVICE),
                    torch.randint(3, (examples,), device=DEVICE))]


@pytest.fixture(scope="module")
def found() -> spdkfac.Curvature:
    model, data = mixed()
    return spdkfac.curvature(model, data, LOSS)


def explicit(found: spdkfac.Curvature) -> torch.Tensor:
    """The whole matrix, by index arithmetic on parameters: which element of which group each one is."""
    total = torch.zeros(found.numel, found.numel, dtype=torch.float64)
    places = found.unflatten(torch.arange(found.numel))
    for name, layer in found.items():
        groups = layer.groups
        if name == "back":  # [in, out, kernel…]
            rows = [places["back.weight"].transpose(0, 1).reshape(2, -1)]
        elif name == "last":  # [in, out]
            rows = [torch.cat([places["last.weight"].T, places["last.bias"][:, None]], dim=1)]
        else:
            whole = torch.cat([places[f"{name}.weight"].flatten(1), places[f"{name}.bias"][:, None]], dim=1)
            rows = list(whole.chunk(groups))
        for group, index in enumerate(rows):
            product = torch.kron(layer.g.dense()[group], layer.a.dense()[group])
            total[index.reshape(-1)[:, None], index.reshape(-1)] = product
    return total


def vectors(found: spdkfac.Curvature, count: int = 3) -> torch.Tensor:
    return torch.randn(count, found.numel, dtype=torch.float64, device=found.device)


# ---- functions of the matrix ----

def test_functions_are_those_of_the_explicit_matrix(found: spdkfac.Curvature) -> None:
    assert list(found.parameters) == ["head.weight", "head.bias", "first.weight", "first.bias", "back.weight",
                                      "last.weight", "last.bias"]
    matrix, v = explicit(found), vectors(found)
    scale = 7.0
    damped = scale * matrix + DAMPING * torch.eye(len(matrix), dtype=torch.float64)
    inverse = torch.linalg.inv(damped)
    expected = {
        "product": (found.product(v), v @ matrix),
        "damped product": (found.product(v, scale=scale, damping=DAMPING), v @ damped),
        "solve": (found.solve(v, DAMPING, scale=scale), v @ inverse),
        "root": (found.power(found.power(v, -0.5, DAMPING, scale=scale), -0.5, DAMPING, scale=scale),
                 v @ inverse),
        "logdet": (found.logdet(DAMPING, scale=scale), torch.linalg.slogdet(damped).logabsdet),
        "trace": (found.trace(), matrix.trace()),
        "diagonal": (found.diagonal(), matrix.diagonal()),
        "diagonal of the inverse": (found.diagonal(-1, DAMPING, scale=scale), inverse.diagonal()),
    }
    wrong = {what: error for what, (own, reference) in expected.items()
             if not (error := relative(own.double(), reference)) < 1e-9}
    assert not wrong, wrong


@pytest.mark.parametrize("mode", ["mean", *DAMPED_AS_IN_TRAINING])
def test_dampings_of_other_kinds(found: spdkfac.Curvature, mode: str) -> None:
    layer, v = found["last"], vectors(found, 1)
    a, g = layer.A, layer.G
    own = layer.join(found.unflatten(v))[0, 0]
    if mode == "mean":
        matrix = torch.kron(g, a)
        matrix += DAMPING * matrix.trace() / len(matrix) * torch.eye(len(matrix), dtype=torch.float64)
        expected = torch.linalg.solve(matrix, own.reshape(-1)).view_as(own)
    else:
        more_a, more_g = DAMPED_AS_IN_TRAINING[mode](float(a.trace() / len(a)), float(g.trace() / len(g)))
        expected = torch.linalg.inv(g + more_g * torch.eye(len(g), dtype=torch.float64)) @ own @ torch.linalg.inv(
            a + more_a * torch.eye(len(a), dtype=torch.float64))
    solved = layer.join(found.unflatten(found.solve(v, DAMPING, mode=mode)))[0, 0]
    assert relative(solved, expected) < 1e-9


def test_samples_have_the_covariance(found: spdkfac.Curvature) -> None:
    """4,000 samples: deviations of some percent of the largest variance."""
    generator = torch.Generator(found.device).manual_seed(1)
    samples = found.sample(4000, damping=1.0, scale=50.0, generator=generator)
    expected = torch.linalg.inv(50 * explicit(found) + torch.eye(found.numel))
    assert (samples.T @ samples / len(samples) - expected).abs().max() < 0.1
    assert abs(float(samples.square().sum() / len(samples) / expected.trace()) - 1) < 0.03


def test_vectors_by_name_or_flat(found: spdkfac.Curvature) -> None:
    v = vectors(found, 2)
    by_name = found.unflatten(v)
    assert torch.equal(found.flatten(by_name), v)
    solved = found.solve({**by_name, "free": torch.ones(4)}, DAMPING)
    assert set(solved) == set(found.parameters)
    assert torch.equal(found.flatten(solved), found.solve(v, DAMPING))
    assert relative(found.solve(v[0], DAMPING), found.solve(v, DAMPING)[0]) < 1e-12  # other kernels on a GPU
    single = found.solve(v.float(), DAMPING)
    assert single.dtype == torch.float64


def test_inner_products_of_examples(found: spdkfac.Curvature) -> None:
    model, data = mixed()
    in_basis = found.example_gradients(model, data, LOSS)
    plain = found.example_gradients(model, data, LOSS, basis=False)
    rows = torch.zeros(len(data[0][1]), found.numel, dtype=torch.float64, device=DEVICE)
    for name, layer in found.items():
        layer.split(plain[name], found.unflatten(rows))
    expected = rows @ found.solve(rows, DAMPING).T
    assert relative(found.inner(in_basis, in_basis, DAMPING), expected) < 1e-9
    mean = torch.autograd.grad(LOSS(model(data[0][0]), data[0][1]), [model.head.weight])[0]
    assert relative(found.unflatten(rows.mean(0))["head.weight"], mean) < 1e-9


# ---- data ----

def test_batches_do_not_matter() -> None:
    model, data = mixed(12)
    (inputs, targets), = data
    uneven = [(inputs[:1], targets[:1]), (inputs[1:8], targets[1:8]), (inputs[8:], targets[8:])]
    for options in ({}, {"fisher": "exact"}, {"approximation": "reduce"}, {"ekfac": True}):
        whole = spdkfac.curvature(model, data, LOSS, **options)
        parts = spdkfac.curvature(model, uneven, LOSS, **options)
        assert parts.examples == 12 and abs(parts.loss - float(LOSS(model(inputs), targets).detach())) < 1e-12
        for name, layer in whole.items():
            assert relative(parts[name].A, layer.A) < 1e-12 and relative(parts[name].G, layer.G) < 1e-12
            assert relative(parts[name].eigenvalues, layer.eigenvalues) < 1e-9


def test_the_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2)).to(DEVICE)
    model[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    data = [(torch.randn(5, 3), torch.randint(2, (5,)))]  # on the CPU: batches move
    first = spdkfac.curvature(model, data, LOSS)
    again = spdkfac.curvature(model, data, LOSS)
    assert torch.equal(first["0"].G, again["0"].G)  # no dropout
    assert all(p.grad is None for p in model.parameters())
    assert model.training and model[0].training and not model[1].training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class Checkpointed(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(super().forward, x, use_reentrant=False)


@pytest.mark.parametrize("how", ["in place", "checkpointed", "compiled", "autocast"])
def test_models_as_they_come(how: str) -> None:
    """Activations in place, activations that are computed again, torch.compile, mixed precision."""
    def made(container: type[nn.Sequential], inplace: bool) -> nn.Module:
        torch.manual_seed(1)
        # Rounding may switch a ReLU on or off, which changes more than the rest of it.
        act = [nn.Tanh() if how == "autocast" else nn.ReLU(inplace) for _ in range(3)]
        return container(nn.Conv2d(2, 4, 3), act[0], nn.Conv2d(4, 4, 3, bias=False), act[1],
                         nn.Flatten(), nn.Linear(16, 5), act[2], nn.Linear(5, 3)).to(DEVICE)

    x, y = torch.randn(5, 2, 6, 6), torch.randint(3, (5,))
    model = made(Checkpointed if how == "checkpointed" else nn.Sequential, how == "in place")
    called = torch.compile(model, backend="eager") if how == "compiled" else model

    def forward(module: nn.Module, pair: Any) -> Any:
        with torch.autocast(DEVICE, torch.bfloat16, enabled=how == "autocast"):
            return module(pair[0]), pair[1]

    for options in ({"fisher": "exact"}, {"ekfac": True}, {"approximation": "reduce"}):
        plain = spdkfac.curvature(made(nn.Sequential, False), [(x, y)], LOSS, **options)
        own = spdkfac.curvature(called, [(x, y)], LOSS, forward=forward, **options)
        for name, layer in plain.items():
            limit = 0.1 if how == "autocast" else 1e-5
            assert relative(own[name].A, layer.A) < limit and relative(own[name].G, layer.G) < limit, name
            if not how == "autocast":
                assert relative(own[name].eigenvalues, layer.eigenvalues) < 1e-3, name


def test_outputs_of_any_form_with_a_loss_of_ones_own() -> None:
    """As models that return an object with their loss."""
    model, ((x, y),) = mixed()
    own = spdkfac.curvature(model, [{"x": x, "y": y}], lambda outputs, _: outputs["loss"],
                            forward=lambda m, b: ({"loss": F.cross_entropy(m(b["x"]), b["y"])}, None))
    known = spdkfac.curvature(model, [(x, y)], LOSS)
    assert all(relative(own[name].G, layer.G) < 1e-12 for name, layer in known.items())
    with pytest.raises(spdkfac.ConfigError, match="needs a tensor as the model's outputs, not dict"):
        spdkfac.curvature(model, [(x, y)], LOSS, fisher="mc", forward=lambda m, b: ({"logits": m(b[0])}, b[1]))


def test_beside_an_optimizer_that_trains() -> None:
    """Neither sees the other's passes."""
    (inputs, labels), results = batch(0), []
    for curvature_too in (False, True):
        model = small_net()
        optimizer = spdkfac.SPDKFACOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
        for step in range(2):
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), labels).backward()
            if curvature_too:
                spdkfac.curvature(model, [batch(1)], LOSS, fisher="mc")
            optimizer.step()
        results.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_ignored_targets_are_no_terms() -> None:
    """Sequences of one class per token; without the ignored tokens, as rows, it is the same loss."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double().to(DEVICE)
    inputs, targets = torch.randn(4, 6, 4).double(), torch.randint(3, (4, 6))
    targets[0, 2:] = targets[3, 1] = -100
    kept = (inputs[targets >= 0], targets[targets >= 0])

    def forward(module: nn.Module, data: Any) -> Any:
        return module(data[0]).transpose(1, 2), data[1]

    for fisher in ("empirical", "exact"):
        ours = spdkfac.curvature(model, [(inputs, targets)], LOSS, fisher=fisher, forward=forward, layers=["2"])
        rows = spdkfac.curvature(model, [kept], LOSS, fisher=fisher, layers=["2"])
        # G is a mean over all rows of the layer, and N/M makes terms of examples' shares.
        n, m = len(inputs), len(kept[1])
        more = (n / m) ** 2 if fisher == "empirical" else n / m
        assert abs(ours.loss - rows.loss) < 1e-12
        assert relative(ours["2"].G * targets.numel(), rows["2"].G * m * more) < 1e-9


def test_batches_of_other_forms() -> None:
    model = nn.Bilinear(2, 2, 3)
    net = nn.Sequential(nn.Linear(4, 3)).to(DEVICE)

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            return self.net(torch.cat([left, right], dim=1))

    x, y = torch.randn(5, 4), torch.randint(3, (5,))
    plain = spdkfac.curvature(net, [(x, y)], LOSS)["0"]
    named = {"left": x[:, :2], "right": x[:, 2:]}
    def forward(model: nn.Module, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return model(batch["left"], batch["right"]), batch["labels"]

    for data, options in (([(named, y)], {}), ([((x[:, :2], x[:, 2:]), y)], {}),
                          ([{**named, "labels": y}], {"forward": forward})):
        own = spdkfac.curvature(Named(), data, LOSS, **options)["net.0"]
        assert torch.equal(own.A, plain.A) and torch.equal(own.G, plain.G)
    with pytest.raises(spdkfac.ConfigError, match="no layer is left"):
        spdkfac.curvature(model, [], LOSS)


def test_a_loss_of_ones_own() -> None:
    """Any function serves for the empirical Fisher: the mean is over examples, or said to be a sum."""
    model, data = mixed()
    known = spdkfac.curvature(model, data, LOSS)
    own = spdkfac.curvature(model, data, lambda outputs, targets: F.cross_entropy(outputs, targets))
    summed = spdkfac.curvature(model, data, lambda outputs, targets: F.cross_entropy(outputs, targets, reduction="sum"),
                               loss_reduction="sum")
    functional = spdkfac.curvature(model, data, F.cross_entropy)
    for name, layer in known.items():
        assert relative(own[name].G, layer.G) < 1e-12 and torch.equal(functional[name].G, layer.G)
        assert relative(summed[name].G, 6 * layer.G) < 1e-12
    with pytest.raises(spdkfac.ConfigError, match="needs a loss whose likelihood is known, not <lambda>"):
        spdkfac.curvature(model, data, lambda outputs, targets: outputs.sum(), fisher="mc")


def test_partly_called_layers_count_by_what_they_saw() -> None:
    """An expert that sees two of six examples: its block is a third of its own mean."""
    class Expert(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.expert = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            return torch.cat([self.expert(x[:2]), x[2:, :3]])

    torch.manual_seed(2)
    model = Expert().double().to(DEVICE)
    x, y = torch.randn(6, 4).double(), torch.randint(3, (6,))
    own = spdkfac.curvature(model, [(x, y)], LOSS, partial_layers=["expert"])["expert"]
    rows = model.first(x.to(DEVICE))[:2].detach()
    ones = torch.cat([rows, torch.ones(2, 1).to(rows)], dim=1)
    outputs = model.expert(rows)
    g = torch.autograd.grad(F.cross_entropy(outputs, y[:2].to(DEVICE), reduction="sum"), outputs)[0]
    assert own.examples == 2
    assert relative(own.A, ones.T @ ones / 2) < 1e-9
    assert relative(own.G, g.T @ g / 6) < 1e-9


# ---- files and types ----

def test_files_hold_everything(found: spdkfac.Curvature, tmp_path: Path) -> None:
    model, data = mixed()
    corrected = spdkfac.curvature(model, data, LOSS, ekfac=True, max_dimension=3, large_factors="blocks")
    for one in (found, corrected):
        one.save(tmp_path / "curvature.safetensors")
        loaded = spdkfac.Curvature.load(tmp_path / "curvature.safetensors", DEVICE)
        v = vectors(one)
        assert torch.equal(loaded.solve(v, DAMPING), one.solve(v, DAMPING))
        assert (loaded.examples, loaded.loss, loaded.about, loaded.parameters) == (
            one.examples, one.loss, one.about, one.parameters)
        gradients = loaded.example_gradients(model, data, LOSS)
        assert torch.equal(gradients["head"], one.example_gradients(model, data, LOSS)["head"])


def test_other_readers_of_safetensors_read_them(found: spdkfac.Curvature, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    found.save(tmp_path / "curvature.safetensors")
    with safetensors.safe_open(tmp_path / "curvature.safetensors", "pt") as file:
        assert json.loads(file.metadata()["curvature"])["examples"] == 6
        assert torch.equal(file.get_tensor("first.A"), found["first"].a.values.cpu())


@pytest.mark.parametrize("damage", ["cut", "format", "size"])
def test_damaged_files_are_refused(found: spdkfac.Curvature, tmp_path: Path, damage: str) -> None:
    from spdkfac import _core
    path = tmp_path / "curvature.safetensors"
    found.save(path)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        metadata, tensors = _core.read_tensors(str(path))
        if damage == "format":
            metadata["format"] = "other"
        else:
            tensors["head.A"] = tensors["head.A"][:, 1:, 1:].contiguous()
        _core.write_tensors(str(path), metadata, tensors)
    with pytest.raises(spdkfac.Error, match="curvature.safetensors: .*(checksum|format|head.A)"):
        spdkfac.Curvature.load(path)


def test_types_of_factors() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).to(DEVICE)
    data = [(torch.randn(5, 3), torch.randint(2, (5,)))]
    found = spdkfac.curvature(model, data, LOSS, dtype=torch.float64)
    assert found.dtype == torch.float64 and found.logdet(0.1).dtype == torch.float64
    assert found.to(dtype=torch.float32).dtype == torch.float32
    model = model.bfloat16()
    half = spdkfac.curvature(model, [(x.bfloat16(), y) for x, y in data], LOSS)
    assert half.dtype == torch.float32 and relative(half["0"].A, found["0"].A.float()) < 0.02


def test_progress_tells_each_batch(capsys: pytest.CaptureFixture[str]) -> None:
    model, data = mixed()
    told: list[tuple[int, int | None]] = []
    spdkfac.curvature(model, data * 2, LOSS, progress=lambda at, of: told.append((at, of)))
    assert told == [(1, 2), (2, 2)]
    spdkfac.curvature(model, data * 2, LOSS, progress=True)
    assert "curvature: batch 2 of 2" in capsys.readouterr().err


# ---- mistakes ----

def not_finite() -> None:
    model, data = mixed()
    spdkfac.curvature(model, [(data[0][0] / 0, data[0][1])], LOSS)


def never_called() -> None:
    model, data = mixed()
    model.spare = nn.Linear(2, 2).double()
    spdkfac.curvature(model, data, LOSS)


def call(**options: Any) -> Any:
    def called() -> None:
        model, data = mixed()
        arguments = {"loss": LOSS, "data": data, **options}
        spdkfac.curvature(model, **arguments)
    return called


MISTAKES = {
    "fisher=true": call(fisher="true"), "samples=2 with fisher=exact": call(fisher="exact", samples=2),
    "approximation=sum": call(approximation="sum"), "reduction=none": call(loss=nn.CrossEntropyLoss(reduction="none")),
    "without weights": call(loss=nn.CrossEntropyLoss(weight=torch.ones(3)), fisher="exact"),
    "the data have no batch": call(data=iter([])), "not a pair of inputs and targets": call(data=[torch.ones(2, 2)]),
    "pass something that can be gone through twice": call(data=iter(mixed()[1]), ekfac=True),
    "layer back has 54 rows in a pass of 4 examples": call(examples=lambda batch: 4),
    "matches no layer": call(layers=["absent"]), "layer spare was not called": never_called,
    "factor A of layer head is not finite": not_finite,
    "singular with damping=0": lambda: spdkfac.curvature(*mixed(), LOSS).solve(torch.ones(79), 0.0),
    "damping=-1": lambda: spdkfac.curvature(*mixed(), LOSS).logdet(-1.0),
    "mode=half": lambda: spdkfac.curvature(*mixed(), LOSS).logdet(1.0, mode="half"),
    "last dimension": lambda: spdkfac.curvature(*mixed(), LOSS).product(torch.ones(5)),
    "has no head.bias": lambda: spdkfac.curvature(*mixed(), LOSS).product({"head.weight": torch.ones(3, 4)}),
    "mode=pi damps A and G": lambda: spdkfac.curvature(*mixed(), LOSS, ekfac=True).logdet(1.0, mode="pi"),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_are_named(text: str) -> None:
    with pytest.raises(spdkfac.Error, match=text):
        MISTAKES[text]()
