# SPDX-License-Identifier: Apache-2.0
"""Norms: updates against the blocks of the Fisher that autograd's gradients of single examples make."""

from __future__ import annotations

import copy
import gc
import warnings
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from curvature import DAMPING, OPTIONS
from devices import DEVICE
from nets import PlainRMSNorm, difference, kfac_over_sgd
from torch import nn
from torch.utils.checkpoint import checkpoint

import spdkfac

pytestmark = pytest.mark.skipif(DEVICE == "cuda", reason="formulas in double precision on the CPU")
EXAMPLES = 5
Forward = Callable[[nn.Module, torch.Tensor], torch.Tensor]


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(8)
    yield
    torch.set_default_dtype(torch.float32)


class ChannelsFirstLayerNorm(nn.Module):
    """Written out for images, as ConvNeXt's authors do."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.ones(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        apart = x - x.mean(1, keepdim=True)
        even = apart / torch.sqrt(apart.pow(2).mean(1, keepdim=True) + 1e-6)
        return self.weight[:, None, None] * even + self.bias[:, None, None]


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "layer norm": (lambda: nn.LayerNorm(6), (6,)),
    "of tokens": (lambda: nn.LayerNorm(6), (3, 6)),
    "of images": (lambda: nn.LayerNorm(6), (2, 3, 6)),
    "over two dimensions": (lambda: nn.LayerNorm((3, 6)), (2, 3, 6)),
    "over all": (lambda: nn.LayerNorm((3, 6)), (3, 6)),
    "without bias": (lambda: nn.LayerNorm(6, bias=False), (3, 6)),
    "rms norm": (lambda: nn.RMSNorm(6), (3, 6)),
    "rms norm over two dimensions": (lambda: nn.RMSNorm((3, 6), eps=1e-3), (2, 3, 6)),
    "group norm": (lambda: nn.GroupNorm(2, 6), (6, 3, 2)),
    "group norm of vectors": (lambda: nn.GroupNorm(3, 6), (6,)),
    "batch norm 1d": (lambda: nn.BatchNorm1d(6), (6,)),
    "batch norm 1d of sequences": (lambda: nn.BatchNorm1d(6), (6, 4)),
    "batch norm 2d": (lambda: nn.BatchNorm2d(6, eps=1e-2), (6, 3, 2)),
    "batch norm 3d": (lambda: nn.BatchNorm3d(6, track_running_stats=False), (6, 2, 3, 2)),
    "instance norm": (lambda: nn.InstanceNorm2d(6, affine=True), (6, 3, 2)),
    "written out": (lambda: PlainRMSNorm(6), (3, 6)),
    "written out, weight + 1": (lambda: PlainRMSNorm(6, one=1.0), (3, 6)),
    "written out, channels first": (lambda: ChannelsFirstLayerNorm(6), (6, 3, 2)),
}


def case(name: str) -> tuple[nn.Module, torch.Tensor]:
    make, shape = CASES[name]
    module = make()
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module, torch.randn(EXAMPLES, *shape)


def curved(output: torch.Tensor) -> torch.Tensor:
    """A loss that is a mean over the examples."""
    return (output.square() + output.tanh()).sum() / EXAMPLES


def trained(module: nn.Module) -> list[torch.Tensor]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def by_units(tensors: list[torch.Tensor]) -> torch.Tensor:
    """[units, parameters]"""
    return torch.stack([one.detach().reshape(-1) for one in tensors], 1)


def rows_of_examples(module: nn.Module, output: torch.Tensor) -> torch.Tensor:
    """What the loss of each example gives the parameters, [N, units, parameters]."""
    gradient, = torch.autograd.grad(curved(output), output, retain_graph=True)
    rows = []
    for example in range(len(output)):
        own = torch.zeros_like(gradient)
        own[example] = gradient[example] * len(output)
        rows.append(by_units(list(torch.autograd.grad(output, trained(module), own, retain_graph=True))))
    return torch.stack(rows)


def solved(rows: torch.Tensor, gradient: torch.Tensor, calls: int = 1) -> torch.Tensor:
    """(F + γ)⁻¹·∇/(A + γ) of each unit, with F = Σvvᵀ/N over all rows of `calls` calls, and A their number."""
    fisher = torch.einsum("nui,nuj->uij", rows, rows) / EXAMPLES
    damped = fisher + DAMPING * torch.eye(fisher.shape[-1])
    return torch.linalg.solve(damped, gradient.unsqueeze(2)).squeeze(2) / (calls + DAMPING)


def expected_update(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    rows = rows_of_examples(module, module(x))
    return solved(rows, rows.mean(0))


def update_of(module: nn.Module, x: torch.Tensor, forward: Forward, **options: object) -> torch.Tensor:
    after = copy.deepcopy(module)
    optimizer = kfac_over_sgd(after, **{**OPTIONS, "examples": EXAMPLES, "norms": True, **options})
    curved(forward(after, x)).backward()
    optimizer.step()
    assert optimizer.counters["layers_without_factors"] == 0
    return by_units([before - now for before, now in zip(trained(module), trained(after), strict=True)])


def called(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return module(x)


def changed_in_place(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return module(x).mul_(1.0)


def recomputed(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(module, x, use_reentrant=False)


def reentrant(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(module, x.requires_grad_(), use_reentrant=True)


@pytest.mark.parametrize("forward", [called, changed_in_place, recomputed, reentrant])
@pytest.mark.parametrize("name", CASES)
def test_updates_are_those_of_exact_blocks(name: str, forward: Forward) -> None:
    module, x = case(name)
    expected = expected_update(module, x)
    assert difference(update_of(module, x, forward), expected) < 1e-9


@pytest.mark.parametrize("frozen", ["weight", "bias"])
@pytest.mark.parametrize("name", [name for name in CASES if getattr(CASES[name][0](), "bias", None) is not None])
def test_what_is_frozen_is_no_part_of_the_blocks(name: str, frozen: str) -> None:
    module, x = case(name)
    module.get_parameter(frozen).requires_grad_(False)
    x.requires_grad_()  # as behind other layers
    expected = expected_update(module, x)
    assert difference(update_of(module, x, called), expected) < 1e-9


@pytest.mark.parametrize("mode", ["relative", "pi"])
def test_damping_is_relative_to_all_units(mode: str) -> None:
    """Units with small gradients are damped by the mean of all, not by their own."""
    module, x = case("of tokens")
    rows = rows_of_examples(module, module(x))
    fisher = torch.einsum("nui,nuj->uij", rows, rows) / EXAMPLES
    mean, root = fisher.diagonal(dim1=1, dim2=2).mean(), DAMPING ** 0.5
    of_a, of_g = (root, root * mean) if mode == "relative" else (root / mean.sqrt(), root * mean.sqrt())
    expected = torch.linalg.solve(fisher + of_g * torch.eye(2), rows.mean(0).unsqueeze(2)).squeeze(2) / (1 + of_a)
    assert difference(update_of(module, x, called, damping_mode=mode), expected) < 1e-9


@pytest.mark.parametrize("convention", ["paper", "kfac-pytorch"])
def test_conventions_differ_in_the_number_of_examples_alone(convention: str) -> None:
    module, x = case("of tokens")
    rows = rows_of_examples(module, module(x))
    of_share = rows / EXAMPLES if convention == "kfac-pytorch" else rows
    assert difference(update_of(module, x, called, convention=convention), solved(of_share, rows.mean(0))) < 1e-9


def test_time_may_come_first() -> None:
    module, x = case("of tokens")
    expected = expected_update(module, x)

    def swapped(norm: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
        return norm(inputs.transpose(0, 1)).transpose(0, 1)

    assert difference(update_of(module, x, swapped), expected) < 1e-9


def test_examples_may_be_flattened() -> None:
    module, x = case("of images")
    expected = expected_update(module, x)

    def flattened(norm: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
        return norm(inputs.flatten(0, 2)).view_as(inputs)

    assert difference(update_of(module, x, flattened), expected) < 1e-9


def test_tokens_may_be_the_examples() -> None:
    module, x = case("of tokens")
    flat = x.flatten(0, 1)

    def loss(output: torch.Tensor) -> torch.Tensor:
        return (output.square() + output.tanh()).sum() / len(flat)

    output = module(flat)
    gradient, = torch.autograd.grad(loss(output), output)
    even = nn.functional.layer_norm(flat, (6,))
    rows = torch.stack([gradient * even, gradient], 2) * len(flat)
    fisher = torch.einsum("nui,nuj->uij", rows, rows) / len(flat) + DAMPING * torch.eye(2)
    expected = torch.linalg.solve(fisher, rows.mean(0).unsqueeze(2)).squeeze(2) / (1 + DAMPING)
    after = copy.deepcopy(module)
    optimizer = kfac_over_sgd(after, **OPTIONS, examples="tokens", norms=True)
    loss(after(x)).backward()
    optimizer.step()
    update = by_units([before - now for before, now in zip(trained(module), trained(after), strict=True)])
    assert difference(update, expected) < 1e-9


def test_two_calls_add_up() -> None:
    module, x = case("of tokens")
    other = torch.randn_like(x)
    outputs = module(x), module(other)
    rows = torch.cat([rows_of_examples(module, output) for output in outputs])
    expected = solved(rows, rows.sum(0) / EXAMPLES, calls=2)
    after = copy.deepcopy(module)
    optimizer = kfac_over_sgd(after, **OPTIONS, examples=EXAMPLES, norms=True)
    (curved(after(x)) + curved(after(other))).backward()
    optimizer.step()
    update = by_units([before - now for before, now in zip(trained(module), trained(after), strict=True)])
    assert difference(update, expected) < 1e-9


def test_accumulated_passes_equal_the_joined_batch() -> None:
    module, x = case("of tokens")
    joined, apart = copy.deepcopy(module), copy.deepcopy(module)
    whole = torch.cat([x, torch.randn_like(x)])
    for model, parts in ((joined, [whole]), (apart, list(whole.chunk(2)))):
        optimizer = kfac_over_sgd(model, **OPTIONS, norms=True)
        for part in parts:
            (curved(model(part)) * EXAMPLES / len(whole)).backward()
        optimizer.step()
    assert difference(by_units(trained(apart)), by_units(trained(joined))) < 1e-12


def test_channels_last_changes_nothing() -> None:
    module, x = case("batch norm 2d")
    expected = expected_update(module, x)
    assert difference(update_of(module, x.to(memory_format=torch.channels_last), called), expected) < 1e-9


@pytest.mark.parametrize("name", CASES)
def test_autocast_sees_the_same_blocks(name: str) -> None:
    module, x = case(name)
    module, x = module.float(), x.bfloat16()  # as it comes from a layer under autocast
    torch.set_default_dtype(torch.float32)
    rows = rows_of_examples(module, module(x.float()))
    fisher = torch.einsum("nui,nuj->uij", rows, rows) / EXAMPLES
    optimizer = kfac_over_sgd(module, **OPTIONS, examples=EXAMPLES, norms=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = module(x)
    curved(output.float()).backward()
    optimizer.step()
    kept = optimizer.state_dict()["state"][0]["kfac_g_average"]
    upper = torch.triu_indices(*fisher.shape[1:])
    # g may be rounded to bfloat16.
    assert kept.dtype == torch.float32 and difference(kept, fisher[:, upper[0], upper[1]]) < 0.02


def test_inputs_are_let_go_with_their_gradients() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 2))
    optimizer = kfac_over_sgd(model, **OPTIONS, norms=True)
    kept: list[weakref.ref[torch.Tensor]] = []
    model[1].register_forward_pre_hook(lambda _, inputs: kept.append(weakref.ref(inputs[0])))
    loss = curved(model(torch.randn(EXAMPLES, 6)))
    loss.backward()
    gc.collect()
    assert kept[0]() is None  # though the loss and its graph live
    optimizer.step()


def test_a_second_backward_pass_is_refused() -> None:
    module, x = case("of tokens")
    optimizer = kfac_over_sgd(module, **OPTIONS, norms=True)
    loss = curved(module(x))
    torch.autograd.grad(loss, trained(module), retain_graph=True)  # does not count
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="second backward pass went through the same call of layer"):
        loss.backward()
    optimizer.discard()


# --- which are covered ---


def test_norms_are_covered_where_that_is_wanted() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.LayerNorm(4, elementwise_affine=False))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # those that are left out are not complained about
        layers = spdkfac.SPDKFACOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model).layers
    assert layers.names == ["0"] and layers.uncovered == {}
    layers = kfac_over_sgd(model, norms=True).layers
    assert layers.names == ["0", "1"] and layers.coverage == 1


def test_what_only_looks_like_a_norm_is_listed() -> None:
    class OtherRMSNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.offset = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))

    model = nn.Sequential(nn.Linear(3, 4), nn.SyncBatchNorm(4), OtherRMSNorm())
    layers = kfac_over_sgd(model, norms=True).layers
    assert layers.names == ["0"]
    assert layers.uncovered == {"SyncBatchNorm": ["1"], "OtherRMSNorm": ["2"]}


@pytest.mark.parametrize("name", ["LayerNorm2d", "GroupNormAct", "BatchNormAct2d", "LayerNormAct2d", "RmsNorm",
                                  "RmsNorm2d"])
def test_norms_of_timm(name: str) -> None:
    layers = pytest.importorskip("timm.layers")
    module = getattr(layers, name)(8, 2) if name == "GroupNormAct" else getattr(layers, name)(8)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(EXAMPLES, 3, 8) if name == "RmsNorm" else torch.randn(EXAMPLES, 8, 3, 2)
    expected = expected_update(module, x)
    assert difference(update_of(module, x, called), expected) < 1e-9


def test_the_norm_of_torchvision() -> None:
    convnext = pytest.importorskip("torchvision.models.convnext")
    module, x = convnext.LayerNorm2d(6), torch.randn(EXAMPLES, 6, 3, 2)
    assert difference(update_of(module, x, called), expected_update(module, x)) < 1e-9


# --- tables ---


def test_tables_know_norms() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2, bias=False), nn.RMSNorm(2)).float()
    table = spdkfac.describe(model, torch.zeros(2, 3, dtype=torch.float32), norms=True)
    layers = {layer["name"]: layer for layer in table.to_json()["layers"]}
    assert [layer["kind"] for layer in layers.values()] == ["linear", "norm", "linear", "norm"]
    assert (layers["1"]["d_a"], layers["1"]["d_g"], layers["1"]["blocks_g"]) == (1, 8, 4)
    assert layers["1"]["gradients"] == [4, 4]
    assert (layers["3"]["d_a"], layers["3"]["d_g"], layers["3"]["blocks_g"]) == (1, 2, 2)
    assert table.parameters == sum(p.numel() for p in model.parameters())
    assert spdkfac.Model.from_json(table.to_json()) == table
    for algorithm in ("d-kfac", "mpd-kfac", "spd-kfac", "owner-precondition"):
        plan = spdkfac.plan(table, "ethernet-10g-16", world=4, algorithm=algorithm)
        assert spdkfac.simulate(table, "ethernet-10g-16", algorithm=plan).world == 4
