# SPDX-License-Identifier: Apache-2.0
"""Every kind of layer: the first update against derivatives that autograd takes, in double precision."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from curvature import DAMPING, OPTIONS, preconditioned
from devices import DEVICE
from nets import Conv1D, ManyKinds, difference, flat, kfac_over_sgd, kinds_batch, many_kinds
from torch import nn
from torch.utils.checkpoint import checkpoint

import spdkfac
from spdkfac import ConfigError

pytestmark = pytest.mark.skipif(DEVICE == "cuda", reason="formulas in double precision on the CPU")
EXAMPLES = 5


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(6)
    yield
    torch.set_default_dtype(torch.float32)


def last(tensor: torch.Tensor) -> torch.Tensor:
    """[N, positions, outputs] of an output [N, …, outputs] or [N, outputs, …] of a convolution."""
    return tensor.reshape(len(tensor), -1, tensor.shape[-1])


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(3, 4), (3,)),
    "tokens": (lambda: nn.Linear(3, 4), (2, 3)),
    "conv1d": (lambda: nn.Conv1d(2, 4, 3, stride=2, padding=1), (2, 7)),
    "conv1d same": (lambda: nn.Conv1d(2, 4, 4, padding="same", dilation=2), (2, 9)),
    "conv1d circular": (lambda: nn.Conv1d(2, 4, 3, padding=1, padding_mode="circular"), (2, 5)),
    "conv1d groups": (lambda: nn.Conv1d(4, 6, 3, groups=2), (4, 6)),
    "conv2d": (lambda: nn.Conv2d(2, 3, (2, 3), padding=(1, 0)), (2, 4, 5)),
    "conv3d": (lambda: nn.Conv3d(2, 3, (2, 3, 1), stride=(1, 2, 1), padding=(1, 0, 0)), (2, 3, 5, 2)),
    "conv3d valid": (lambda: nn.Conv3d(2, 3, 2, padding="valid", dilation=(1, 2, 1)), (2, 3, 5, 2)),
    "conv3d groups": (lambda: nn.Conv3d(4, 4, 2, groups=4, bias=False), (4, 3, 2, 2)),
    "transposed 1d": (lambda: nn.ConvTranspose1d(3, 2, 3, stride=2, padding=1, output_padding=1), (3, 4)),
    "transposed 2d": (lambda: nn.ConvTranspose2d(3, 2, (2, 3), stride=2, dilation=(2, 1)), (3, 2, 3)),
    "transposed 2d groups": (lambda: nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2), (4, 2, 2)),
    "transposed 3d": (lambda: nn.ConvTranspose3d(2, 3, 2, stride=(1, 2, 1), bias=False), (2, 2, 2, 1)),
    "in out": (lambda: Conv1D(4, 3), (3,)),
    "in out tokens": (lambda: Conv1D(4, 3), (2, 3)),
}


def is_convolution(module: nn.Module) -> bool:
    return isinstance(module, nn.modules.conv._ConvNd)


def groups_of(module: nn.Module) -> int:
    return module.groups if is_convolution(module) else 1


def matrices(module: nn.Module, weight: torch.Tensor) -> torch.Tensor:
    """Something like the weight as [groups, outputs, inputs and kernel]."""
    groups = groups_of(module)
    parts = weight.unflatten(0, (groups, -1))
    if isinstance(module, Conv1D) or getattr(module, "transposed", False):
        parts = parts.transpose(1, 2)
    return parts.flatten(2)


def rows_of(module: nn.Module, output: torch.Tensor) -> torch.Tensor:
    """Output [N, positions, groups, outputs]."""
    if is_convolution(module):
        output = output.flatten(2).transpose(1, 2) if output.dim() > 2 else output
    return last(output).unflatten(-1, (groups_of(module), -1))


def inputs_by_derivative(module: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """For each group [rows, d_a]: what an output is the product of with the weight, and 1."""
    outputs = rows_of(module, module(x))
    result = []
    for group in range(groups_of(module)):
        rows = []
        for row in outputs[:, :, group, 0].reshape(-1):
            gradient, = torch.autograd.grad(row, module.weight, retain_graph=True)
            row = matrices(module, gradient)[group][0]
            rows.append(torch.cat([row, torch.ones(1)]) if module.bias is not None else row)
        result.append(torch.stack(rows))
    return result


def expected_update(module: nn.Module, x: torch.Tensor, trained: str = "both") -> torch.Tensor:
    """The preconditioned gradient [groups, outputs, d_a] by explicit Kronecker products."""
    output = module(x)
    gradient, = torch.autograd.grad(curved(output), output, retain_graph=True)
    weight, = torch.autograd.grad(curved(output), module.weight, retain_graph=True)
    columns = [matrices(module, weight)] if trained != "bias" else []
    if module.bias is not None and trained != "weight":
        bias, = torch.autograd.grad(curved(output), module.bias)
        columns.append(bias.reshape(groups_of(module), -1, 1))
    joined = torch.cat(columns, dim=2)
    gradients = rows_of(module, gradient)
    updates = []
    for group, rows in enumerate(inputs_by_derivative(module, x)):
        if trained == "bias":
            rows = rows[:, -1:]
        elif trained == "weight" and module.bias is not None:
            rows = rows[:, :-1]
        g = gradients[:, :, group].reshape(-1, gradients.shape[-1]) * EXAMPLES
        a_factor = rows.T @ rows / EXAMPLES
        updates.append(preconditioned(a_factor, g.T @ g / len(rows), joined[group]))
    return torch.stack(updates)


def curved(output: torch.Tensor) -> torch.Tensor:
    """A loss that is a mean over the examples."""
    return (output.square() + output.tanh()).sum() / EXAMPLES


def update_of(module: nn.Module, x: torch.Tensor, forward: Callable[[nn.Module, torch.Tensor], torch.Tensor],
              trained: str = "both", passes: int = 1) -> torch.Tensor:
    after = copy.deepcopy(module)
    optimizer = kfac_over_sgd(after, **OPTIONS, examples=EXAMPLES)
    if passes == 1:
        curved(forward(after, x)).backward()
    else:  # several calls in one pass
        outputs = [forward(after, part) for part in x.chunk(passes)]
        curved(torch.cat(outputs)).backward()
    optimizer.step()
    columns = [matrices(module, module.weight - after.weight)] if trained != "bias" else []
    if module.bias is not None and trained != "weight":
        columns.append((module.bias - after.bias).reshape(groups_of(module), -1, 1))
    return torch.cat(columns, dim=2).detach()


def called(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        module(x)  # does not count
    return module(x)


def recomputed(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(module, x, use_reentrant=False)


def reentrant(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(module, x.requires_grad_(), use_reentrant=True)


def case(name: str) -> tuple[nn.Module, torch.Tensor]:
    make, shape = CASES[name]
    return make(), torch.randn(EXAMPLES, *shape)


@pytest.mark.parametrize("forward", [called, recomputed, reentrant])
@pytest.mark.parametrize("name", CASES)
def test_updates_are_what_derivatives_say(name: str, forward: Callable[..., torch.Tensor]) -> None:
    module, x = case(name)
    expected = expected_update(module, x)
    assert difference(update_of(module, x, forward), expected) < 1e-9


@pytest.mark.parametrize("trained", ["weight", "bias"])
@pytest.mark.parametrize("name", [name for name in CASES if CASES[name][0]().bias is not None])
def test_what_is_frozen_is_no_part_of_the_factors(name: str, trained: str) -> None:
    module, x = case(name)
    expected = expected_update(module, x, trained)
    (module.bias if trained == "weight" else module.weight).requires_grad_(False)
    assert difference(update_of(module, x, called, trained), expected) < 1e-9


@pytest.mark.parametrize("name", CASES)
def test_autocast_sees_the_same_layers(name: str) -> None:
    module, x = case(name)
    module = module.float()
    optimizer = kfac_over_sgd(module, **OPTIONS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        curved(module(x.float()).float()).backward()
    optimizer.step()
    assert optimizer.counters["factor_updates"] > 0
    assert optimizer.counters["layers_without_factors"] == 0
    assert all(bool(p.isfinite().all()) for p in module.parameters())


# --- tables ---


class Words(nn.Module):
    """A table of words, one of places, and an output."""

    def __init__(self, tied: bool = False, **options: object) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 4, **options)  # type: ignore[arg-type]
        self.places = nn.Embedding(3, 4)
        self.out = nn.Linear(4, 7, bias=False)
        if tied:
            self.out.weight = self.words.weight

    def forward(self, numbers: torch.Tensor, places_first: bool = False) -> torch.Tensor:
        places = self.places(torch.arange(3)) if places_first else None
        words = self.words(numbers)
        return self.out(torch.tanh(words + (self.places(torch.arange(3)) if places is None else places)))


def numbers() -> torch.Tensor:
    return torch.randint(7, (EXAMPLES, 3))


def table_update(a: torch.Tensor, g: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Of a diagonal A, for a weight [rows, features]."""
    return preconditioned(torch.diag(a), g, gradient.T).T


@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("places_first", [False, True])
def test_tables_count_their_rows(padding: int | None, places_first: bool) -> None:
    model, indices = Words(padding_idx=padding), numbers()
    outputs: dict[str, torch.Tensor] = {}
    for name in ("words", "places"):
        model.get_submodule(name).register_forward_hook(
            lambda _, __, output, name=name: outputs.update({name: output}))
    loss = curved(model(indices, places_first))
    gradients = dict(zip(outputs, torch.autograd.grad(loss, list(outputs.values()), retain_graph=True), strict=True))
    loss.backward()
    expected = {}
    for name, rows, examples in (("words", indices.flatten(), EXAMPLES), ("places", torch.arange(3), 3)):
        g = gradients[name].reshape(-1, 4) * EXAMPLES
        table = model.get_submodule(name)
        if table.padding_idx is not None:
            g = g * (rows != table.padding_idx)[:, None]
        counts = torch.zeros(len(table.weight))
        for row in rows.tolist():
            counts[row] += row != table.padding_idx
        expected[name] = table_update(counts / examples, g.T @ g / len(g), table.weight.grad)
    after = copy.deepcopy(model)
    optimizer = kfac_over_sgd(after, **OPTIONS)
    optimizer.zero_grad()
    curved(after(indices, places_first)).backward()
    optimizer.step()
    assert optimizer.layers.coverage == 1
    for name, update in expected.items():
        change = (model.get_submodule(name).weight - after.get_submodule(name).weight).detach()
        assert difference(change, update) < 1e-9, name


def test_a_table_tied_to_an_output_layer_has_its_factors() -> None:
    model = Words(tied=True)
    optimizer = kfac_over_sgd(model, **OPTIONS)
    assert optimizer.layers.names == ["places", "out"]
    before = copy.deepcopy(model)
    indices = numbers()
    hidden = torch.tanh(before.words(indices) + before.places(torch.arange(3))).detach()
    output = before.out(hidden)
    gradient, = torch.autograd.grad(curved(output), output)
    curved(before(indices)).backward()
    rows, g = hidden.reshape(-1, 4), gradient.reshape(-1, 7) * EXAMPLES
    expected = preconditioned(rows.T @ rows / EXAMPLES, g.T @ g / len(g), before.out.weight.grad)
    curved(model(indices)).backward()
    optimizer.step()
    assert difference((before.out.weight - model.out.weight).detach(), expected) < 1e-9


@pytest.mark.parametrize("options", [{"sparse": True}, {"max_norm": 1.0}, {"scale_grad_by_freq": True}])
def test_other_tables_keep_their_gradient(options: dict[str, object]) -> None:
    layers = kfac_over_sgd(Words(**options)).layers
    assert layers.names == ["places", "out"]
    assert layers.uncovered == {"Embedding": ["words"]}


# --- attention and fused projections ---


class Projections(nn.Module):
    """The arithmetic of MultiheadAttention with Linear layers of their own, or one for all three."""

    def __init__(self, like: nn.MultiheadAttention, fused: bool = False) -> None:
        super().__init__()
        size = like.embed_dim
        weights = (like.in_proj_weight.chunk(3) if like.in_proj_weight is not None
                   else (like.q_proj_weight, like.k_proj_weight, like.v_proj_weight))
        parts = [linear_of(weight, like.in_proj_bias[part * size:(part + 1) * size])
                 for part, weight in enumerate(weights)]
        self.qkv = nn.ModuleList([linear_of(like.in_proj_weight, like.in_proj_bias)] if fused else parts)
        self.out_proj = linear_of(like.out_proj.weight, like.out_proj.bias)
        self.heads = like.num_heads

    def forward(self, *sources: torch.Tensor) -> torch.Tensor:
        """Of [N, T, features]."""
        if len(self.qkv) == 1:
            q, k, v = self.qkv[0](sources[0]).chunk(3, -1)
        else:
            q, k, v = (linear(x) for linear, x in zip(self.qkv, sources, strict=True))
        q, k, v = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in (q, k, v))
        mixed = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1) @ v
        return self.out_proj(mixed.transpose(1, 2).flatten(2))


def linear_of(weight: torch.Tensor, bias: torch.Tensor) -> nn.Linear:
    linear = nn.Linear(weight.size(1), weight.size(0))
    with torch.no_grad():
        linear.weight.copy_(weight)
        linear.bias.copy_(bias)
    return linear


def three_steps(model: nn.Module, forward: Callable[[nn.Module, int], torch.Tensor], **options: object) -> None:
    optimizer = kfac_over_sgd(model, **{**OPTIONS, "lr": 0.05, "examples": EXAMPLES, **options})
    for step in range(3):
        optimizer.zero_grad()
        curved(forward(model, step)).backward()
        optimizer.step()


def sources_of(step: int, kinds: int, sizes: tuple[int, int, int]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    own = [torch.randn(EXAMPLES, 3, size, generator=generator) for size in sizes]
    return [own[min(part, kinds - 1)] for part in range(3)]


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(("kinds", "kdim", "vdim"), [(1, 4, 4), (2, 4, 4), (3, 4, 4), (3, 3, 5)])
def test_attention_steps_like_three_linear_layers(kinds: int, kdim: int, vdim: int, batch_first: bool) -> None:
    attention = nn.MultiheadAttention(4, 2, kdim=kdim, vdim=vdim, batch_first=batch_first)
    nn.init.normal_(attention.in_proj_bias)
    plain = Projections(attention)

    def attend(model: nn.Module, step: int) -> torch.Tensor:
        sources = sources_of(step, kinds, (4, kdim, vdim))
        if batch_first:
            return model(*sources)[0]
        swapped = {id(x): x.transpose(0, 1) for x in sources}  # the same inputs stay the same
        return model(*(swapped[id(x)] for x in sources))[0].transpose(0, 1)

    three_steps(attention, attend)
    three_steps(plain, lambda model, step: model(*sources_of(step, kinds, (4, kdim, vdim))))
    expected = Projections(attention)  # the trained one in parts
    assert difference(flat(plain), flat(expected)) < 1e-9


@pytest.mark.parametrize("graft", ["none", "sgd", "adam"])
def test_fused_projections_can_be_split(graft: str) -> None:
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    nn.init.normal_(attention.in_proj_bias)
    fused, apart = Projections(attention, fused=True), Projections(attention)
    sources = [sources_of(step, 1, (4, 4, 4)) for step in range(3)]
    three_steps(apart, lambda model, step: model(*sources[step]), graft=graft)
    three_steps(fused, lambda model, step: model(*sources[step]), graft=graft, split={r"qkv\.0": 3})
    expected = torch.cat([part.weight for part in apart.qkv])
    assert difference(fused.qkv[0].weight.detach(), expected.detach()) < 1e-9
    biases = torch.cat([part.bias for part in apart.qkv])
    assert difference(fused.qkv[0].bias.detach(), biases.detach()) < 1e-9


def test_columns_of_a_weight_stored_in_out_can_be_split() -> None:
    whole = Conv1D(6, 3)
    parts = nn.ModuleList([linear_of(whole.weight.T[first:first + 2], whole.bias[first:first + 2])
                           for first in range(0, 6, 2)])
    x = torch.randn(3, EXAMPLES, 2, 3)
    three_steps(parts, lambda model, step: torch.cat([part(x[step]) for part in model], -1))
    three_steps(whole, lambda model, step: model(x[step]), split={"": 3})
    assert difference(whole.weight.detach(), torch.cat([part.weight for part in parts]).detach().T) < 1e-9


@pytest.mark.parametrize(("split", "message"), [
    ({"nothing": 3}, "split names nothing, which matches no covered layer; they are 0, 1"),
    ({"0": 5}, r"split=5 of layer 0 \(linear, 4 outputs\); split Linear layers"),
    ({"0": 0}, "split=0 of layer 0"),
    ({"1": 2}, r"split=2 of layer 1 \(conv1d, 4 outputs\)"),
])
def test_what_cannot_be_split_is_refused(split: dict[str, int], message: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Conv1d(4, 4, 1))
    with pytest.raises(ConfigError, match=message):
        kfac_over_sgd(model, split=split)


# --- the whole model ---


def test_states_of_layers_that_share_a_weight_are_kept_apart() -> None:
    model = many_kinds()
    optimizer = kfac_over_sgd(model, split={"c_attn": 3}, norms=True)
    for step in range(2):
        optimizer.zero_grad()
        curved(model(kinds_batch(step))).backward()
        optimizer.step()
    names = [key for entry in optimizer.state_dict()["state"].values() for key in entry if "@" in key]
    assert {name.partition("@")[2] for name in names} == {
        "attention.q_proj", "attention.k_proj", "attention.v_proj", "c_attn[0]", "c_attn[1]", "c_attn[2]"}
    again = copy.deepcopy(model)
    resumed = kfac_over_sgd(again, split={"c_attn": 3}, norms=True)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for step in (2, 3):
        for one, its in ((model, optimizer), (again, resumed)):
            its.zero_grad()
            curved(one(kinds_batch(step))).backward()
            its.step()
    assert torch.equal(flat(model), flat(again))


def test_the_share_of_covered_parameters_is_told() -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.PReLU(5), nn.Linear(5, 4, bias=False), nn.Embedding(7, 2))
    covered, everything = 3 * 5 + 5 + 5 * 4 + 7 * 2, 3 * 5 + 5 + 5 + 20 + 14
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        optimizer = spdkfac.SPDKFACOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
    assert optimizer.layers.coverage == pytest.approx(covered / everything)
    assert f"covers {covered / everything:.1%} of the trained parameters" in str(said[0].message)
    assert kfac_over_sgd(many_kinds(), norms=True).layers.coverage == 1


def test_layers_of_attention_are_listed_where_they_are_not_covered() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.MultiheadAttention(4, 2, add_bias_kv=True))
    layers = kfac_over_sgd(model, skip_layers=["k_proj"]).layers
    assert layers.names == ["0", "1.q_proj", "1.v_proj", "1.out_proj"]
    assert layers.uncovered == {"MultiheadAttention": ["1"]}  # bias_k and bias_v


def test_a_bias_of_two_layers_belongs_to_the_first() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].bias = model[0].bias
    first, second = kfac_over_sgd(model).layers.tracked
    assert first.bias is model[0].bias and second.bias is None


def test_kinds_model_trains() -> None:
    model: ManyKinds = many_kinds()
    optimizer = kfac_over_sgd(model, damping=DAMPING, lr=0.01, norms=True)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = curved(model(kinds_batch(0)))
        loss.backward()
        losses.append(float(loss.detach()))
        optimizer.step()
    assert losses[-1] < losses[0]
