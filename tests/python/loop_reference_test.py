# SPDX-License-Identifier: Apache-2.0
"""Every kind of layer against K-FAC's definition in plain loops (loop_reference.py), in double precision."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator

import pytest
import torch
from devices import DEVICE
from loop_reference import (Factors, block_diagonal, blocks_of_units, damped, exact_fisher, factors, preconditioned,
                            preconditioned_units, rows_of_examples, twin_of)
from referee_cases import (NOT_COVERED, Case, convolution_cases, expect_covered, largest_errors, linear_cases,
                           norm_cases, observe, other_cases, relative, square)
from torch import nn

import spdkfac

pytestmark = [pytest.mark.skipif(DEVICE == "cuda", reason="double precision on the CPU"),
              pytest.mark.usefixtures("double_precision")]
TOLERANCE, DAMPING = 1e-9, 0.03
CASES = [*linear_cases(), *convolution_cases(), *other_cases()]


def named(*names: str) -> list[Case]:
    return [case for case in CASES if case.name in names]


@pytest.fixture(scope="module")
def errors() -> Iterator[dict[str, float]]:
    with largest_errors("plain loops") as found:
        yield found


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_twin_is_the_same_function(case: Case) -> None:
    """Otherwise it could not referee: the same outputs, and the same gradients of all weights."""
    model = case.make()
    twin, parts = twin_of(model)
    inputs, targets = case.data()
    torch.testing.assert_close(twin(inputs), model(inputs), rtol=1e-12, atol=1e-12)
    for each in (model, twin):
        case.loss_function()(each(inputs), targets).backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    for part in parts:
        linear = twin.get_submodule(part.linear)
        own = [p.grad.reshape(len(p), -1) for p in linear.parameters()]
        torch.testing.assert_close(torch.cat(own, 1), part.matrix(gradients), rtol=1e-11, atol=1e-13)
    assert {name for part in parts for name in part.parameters} == set(gradients)


def per_token(case: Case) -> bool:
    return case.options.get("examples") == "tokens"


@pytest.mark.parametrize("mode", ["pi", "plain", "relative"])
@pytest.mark.parametrize("case", [case for case in CASES if not per_token(case)], ids=str)
def test_updates(case: Case, mode: str, errors: dict[str, float]) -> None:
    model = case.make()
    twin, parts = twin_of(model)
    seen = observe(case, model, damping=DAMPING, damping_mode=mode)
    expect_covered(case, parts, seen)
    inputs, targets = case.data()
    wrong = {}
    for part in parts:
        found = factors(twin, part.linear, (inputs,), targets, case.loss_function())
        error = relative(part.matrix(seen.updates),
                         preconditioned(damped(found, mode, DAMPING), part.matrix(seen.gradients)))
        errors[case.kind] = max(errors[case.kind], error)
        if not error < TOLERANCE:
            wrong[part.linear] = error
    assert not wrong, f"{case.name}: {wrong}"


def norms_of(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if "Norm" in type(module).__name__ and "." not in name
            and name]


@pytest.mark.parametrize("mode", ["pi", "plain", "relative"])
@pytest.mark.parametrize("case", norm_cases(), ids=str)
def test_norms(case: Case, mode: str, errors: dict[str, float]) -> None:
    """Of each norm the block diagonal Fisher of its units, exactly."""
    model = case.make()
    for name in norms_of(model):
        for parameter in model.get_submodule(name).parameters():
            nn.init.normal_(parameter)  # ones and zeros hide mistakes
    seen = observe(case, model, damping=DAMPING, damping_mode=mode, norms=True)
    inputs, targets = case.data()
    assert len(norms_of(model)) == 3
    for name in norms_of(model):
        own = [f"{name}.{own}" for own, _ in model.get_submodule(name).named_parameters()]
        assert set(own) <= seen.covered

        def by_units(values: dict[str, torch.Tensor], own: list[str] = own) -> torch.Tensor:
            return torch.stack([values[one].reshape(-1) for one in own], 1)

        blocks = blocks_of_units(model, own, inputs, targets, case.loss_function())
        kept = seen.state[own[0]]["kfac_g_average"]
        assert relative(torch.stack([square(one) for one in kept]), blocks) < TOLERANCE, name
        expected = preconditioned_units(blocks, by_units(seen.gradients), mode, DAMPING)
        error = relative(by_units(seen.updates), expected)
        errors[case.kind] = max(errors[case.kind], error)
        assert error < TOLERANCE, name


def block_ends(dimension: int, most: int) -> list[int]:
    """Where blocks of at most this size end: as few as possible, of one size but for the last."""
    count = math.ceil(dimension / most)
    size = math.ceil(dimension / count)
    return [min((block + 1) * size, dimension) for block in range(count)]


def split(factor: torch.Tensor, how: str, most: int) -> torch.Tensor:
    """A factor of more rows than this keeps its diagonal, or blocks on it."""
    if len(factor) <= most:
        return factor
    ends = block_ends(len(factor), most) if how == "blocks" else list(range(1, len(factor) + 1))
    return block_diagonal(factor, ends)


@pytest.mark.parametrize("mode", ["pi", "plain", "relative"])
@pytest.mark.parametrize("how", ["diagonal", "blocks"])
@pytest.mark.parametrize("case", named("mlp", "linear without bias", "transformer block", "cnn",
                                      "conv2d with stride", "grouped", "self-attention", "embedding", "conv1d",
                                      "transposed 2d"), ids=str)
def test_large_factors(case: Case, how: str, mode: str, errors: dict[str, float]) -> None:
    if "max_dimension" not in inspect.signature(spdkfac.SPDKFACOptimizer).parameters:
        assert "large factors" in NOT_COVERED
        pytest.skip("large factors are not split yet")
    model, most = case.make(), 6
    twin, parts = twin_of(model)
    seen = observe(case, model, damping=DAMPING, damping_mode=mode, max_dimension=most, large_factors=how)
    expect_covered(case, parts, seen)
    inputs, targets = case.data()
    wrong = {}
    for part in parts:
        found = factors(twin, part.linear, (inputs,), targets, case.loss_function())
        found.a, found.g = split(found.a, how, most), split(found.g, how, most)
        expected = preconditioned(damped(found, mode, DAMPING), part.matrix(seen.gradients))
        error = relative(part.matrix(seen.updates), expected)
        errors[f"large factors, {how}"] = max(errors[f"large factors, {how}"], error)
        if not error < TOLERANCE:
            wrong[part.linear] = error
    assert not wrong, f"{case.name}, {how}: {wrong}"


@pytest.mark.parametrize("case", named("mlp", "linear on tokens"), ids=str)
def test_bias_alone(case: Case) -> None:
    """Of a layer whose weight is frozen A is the number of its positions."""
    model = case.make()
    model[0].weight.requires_grad_(False)
    seen = observe(case, model, damping=DAMPING, damping_mode="pi")
    if "0.bias" not in seen.covered:
        assert "bias alone" in NOT_COVERED
        pytest.skip("layers whose bias alone is trained are not covered yet")
    inputs, targets = case.data()
    found = damped(factors(model, "0", (inputs,), targets, case.loss_function()), "pi", DAMPING)
    expected = preconditioned(found, seen.gradients["0.bias"][:, None])
    assert relative(seen.updates["0.bias"][:, None], expected) < TOLERANCE


@pytest.mark.parametrize("convention", ["paper", "kfac-pytorch"])
@pytest.mark.parametrize("case", named("cnn", "transformer block"), ids=str)
def test_conventions(case: Case, convention: str) -> None:
    """The table of docs/numerics.md: powers of N and S beside those of kfc."""
    model = case.make()
    twin, parts = twin_of(model)
    seen = observe(case, model, damping=DAMPING, damping_mode="pi", convention=convention)
    inputs, targets = case.data()
    for part in parts:
        found = factors(twin, part.linear, (inputs,), targets, case.loss_function())
        s, n = found.positions, len(targets)
        if convention == "paper":
            found.a, found.g = found.a / s**2, found.g * s**2
        elif part.kind == "Linear":
            found.a, found.g = found.a / s, found.g / n**2
        else:
            found.a, found.g = found.a / s**3, found.g / (n**2 * s**2)
        expected = preconditioned(damped(found, "pi", DAMPING), part.matrix(seen.gradients))
        assert relative(part.matrix(seen.updates), expected) < TOLERANCE, part.linear


@pytest.mark.parametrize("case", named("linear", "linear, square loss", "linear, sum", "mlp"), ids=str)
def test_one_example_is_the_exact_fisher(case: Case) -> None:
    """With one example and one position A⊗G is the layer's exact block, so no convention is left."""
    model = case.make()
    twin, parts = twin_of(model)
    inputs, targets = case.data()
    one = ((inputs[:1],), targets[:1], case.loss_function())
    for part in parts:
        found = factors(twin, part.linear, *one)
        torch.testing.assert_close(torch.kron(found.g, found.a), exact_fisher(twin, part.linear, *one))


def test_sampled_rows() -> None:
    """With factor_rows, A and G are those of every k-th row, times k, from one first row for both."""
    (case,) = named("linear on tokens")
    model = case.make()
    seen = observe(case, model, damping=DAMPING, damping_mode="pi", factor_rows=6)
    inputs, targets = case.data()
    every = inputs.shape[0] * inputs.shape[1] // 6  # 5 of 30 rows
    found = list(rows_of_examples(model, "0", (inputs,), targets, case.loss_function()))
    rows, gradients = (torch.cat(each) for each in zip(*found, strict=True))
    fits = []
    for first in range(every):
        a, g = rows[first::every], gradients[first::every]
        sample = Factors(every * a.T @ a / len(inputs), every * g.T @ g / len(rows))
        for what, factor in (("a", sample.a), ("g", sample.g)):
            ours = square(seen.state["0.weight"][f"kfac_{what}_average"][0])
            if relative(ours, factor) < TOLERANCE:
                fits.append((what, first))
    assert len(fits) == 2 and fits[0][1] == fits[1][1], fits
