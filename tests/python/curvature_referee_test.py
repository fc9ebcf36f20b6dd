# SPDX-License-Identifier: Apache-2.0
"""Curvature agrees with curvlinops, and with loops over single examples for what curvlinops does not know.

curvlinops takes the mean square of C outputs for their sum divided by √C, and the loss of every token as an example
of its own, so its empirical Fisher is C or T times that of the loss as torch computes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from curvlinops import KFACInverseLinearOperator, KFACLinearOperator
from devices import DEVICE
from loop_reference import Part, rows_of_examples, twin_of
from referee_cases import (CLASSES, FEATURES, IMAGE, TOKENS, Block, Case, ClassesFirst, convolution_cases,
                           largest_errors, linear_cases, mlp, other_cases, relative)
from torch import nn
from torch.nn import functional as F

import spdkfac

pytestmark = [pytest.mark.skipif(DEVICE == "cuda", reason="double precision on the CPU"),
              pytest.mark.usefixtures("double_precision")]
TOLERANCE, DAMPING = 1e-9, 0.03
Batches = list[tuple[torch.Tensor, torch.Tensor]]


@pytest.fixture(scope="module")
def errors() -> Iterator[dict[str, float]]:
    with largest_errors("curvlinops") as found:
        yield found


def compare(found: dict[str, float], limit: float = TOLERANCE) -> None:
    wrong = {what: error for what, error in found.items() if not error < limit}
    assert not wrong, wrong


# ---- curvlinops ----

def uneven(case: Case) -> Batches:
    """The examples in batches of two and three."""
    inputs, targets = case.data()
    return [(inputs[:2], targets[:2]), (inputs[2:], targets[2:])]


def operator(model: nn.Module, loss: nn.Module, batches: Batches, **options: object) -> KFACLinearOperator:
    return KFACLinearOperator(model, loss, list(model.parameters()), batches, separate_weight_and_bias=False,
                              check_deterministic=False, **options)


def named(cases: list[Case], name: str) -> Case:
    return next(case for case in cases if case.name == name)


def tiny_cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3, padding=1, stride=2), nn.Tanh(), nn.Conv2d(3, 4, 2, bias=False), nn.Tanh(),
                         nn.Flatten(), nn.Linear(4 * 3 * 3, CLASSES))


def known_cases() -> list[Case]:
    text = (TOKENS, FEATURES)
    linear = linear_cases()
    return [named(linear, "mlp"), named(linear, "mlp, sum"), named(linear, "mlp, square loss"),
            named(linear, "linear, square loss, sum"),
            named(linear, "linear on tokens"), named(linear, "transformer block"),
            Case("small cnn", "Conv2d", tiny_cnn, IMAGE), Case("small cnn, sum", "Conv2d", tiny_cnn, IMAGE,
                                                               reduction="sum"),
            Case("small cnn, square loss", "Conv2d", tiny_cnn, IMAGE, loss="square"),
            # Tokens that do not see each other, each with a loss of its own.
            Case("token losses", "Linear", lambda: nn.Sequential(nn.Linear(FEATURES, 7), nn.Tanh(),
                                                                 nn.Linear(7, CLASSES), ClassesFirst()),
                 text, (CLASSES, TOKENS))]


@pytest.mark.parametrize("approximation", ["expand", "reduce"])
@pytest.mark.parametrize("fisher", ["empirical", "exact"])
@pytest.mark.parametrize("case", known_cases(), ids=str)
def test_the_matrix_is_that_of_curvlinops(case: Case, fisher: str, approximation: str,
                                          errors: dict[str, float]) -> None:
    """Products with all unit vectors, and the exactly damped inverse."""
    if (case.name, fisher, approximation) == ("token losses", "exact", "reduce"):
        pytest.skip("curvlinops adds the gradients of all tokens' losses of an example here")
    model, loss, batches = case.make(), case.loss_function(), uneven(case)
    theirs = operator(model, loss, batches, kfac_approx=approximation,
                      fisher_type={"exact": "type-2"}.get(fisher, fisher))
    ours = spdkfac.curvature(model, batches, loss, fisher=fisher, approximation=approximation)
    assert ours.numel == sum(p.numel() for p in model.parameters())
    unit = torch.eye(ours.numel)
    more = 1
    if fisher == "empirical" and case.reduction == "mean":
        more = case.output[0] if case.loss == "square" else math.prod(case.output[1:])
    inverse = KFACInverseLinearOperator(theirs, DAMPING * more, use_exact_damping=True)
    found = {"product": relative(ours.product(unit), theirs @ unit / more),
             "solve": relative(ours.solve(unit, DAMPING), inverse @ unit * more),
             "trace": abs(float(ours.trace() - theirs.trace / more)) / float(theirs.trace / more)}
    for what, error in found.items():
        key = f"curvature, {fisher}, {approximation}: {what}"
        errors[key] = max(errors[key], error)
    compare(found)


def test_binary_losses_are_those_of_curvlinops() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, 3))
    data = [(torch.randn(4, FEATURES), torch.randint(2, (4, 3)).double())]
    for reduction in ("mean", "sum"):
        loss = nn.BCEWithLogitsLoss(reduction=reduction)
        ours = spdkfac.curvature(model, data, loss, fisher="exact")
        unit = torch.eye(ours.numel)
        compare({reduction: relative(ours.product(unit), operator(model, loss, data, fisher_type="type-2") @ unit)})


@pytest.mark.parametrize("case", [named(linear_cases(), "mlp"), Case("small cnn", "Conv2d", tiny_cnn, IMAGE),
                                  named(linear_cases(), "transformer block")], ids=str)
def test_drawn_labels_make_the_empirical_fisher_of_these_labels(case: Case) -> None:
    """The documented draw, done again here, goes to curvlinops as labels."""
    model, loss, batches = case.make(), case.loss_function(), uneven(case)
    generator = torch.Generator().manual_seed(5)
    drawn = [(inputs, torch.multinomial(model(inputs).softmax(1).detach(), 1, generator=generator).squeeze(1))
             for inputs, _ in batches]
    ours = spdkfac.curvature(model, batches, loss, fisher="mc", seed=5)
    unit = torch.eye(ours.numel)
    theirs = operator(model, loss, drawn, fisher_type="empirical")
    alike = operator(model, loss, batches, fisher_type="mc", seed=5)  # which draws in the same way
    compare({"product": relative(ours.product(unit), theirs @ unit), "seed": relative(alike @ unit, theirs @ unit)})


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), nn.MSELoss(), nn.MSELoss(reduction="sum"),
                                  nn.BCEWithLogitsLoss()], ids=str)
def test_drawn_labels_give_the_exact_fisher_on_average(loss: nn.Module) -> None:
    """Deviations fall with the root of the draws: 3 % of 1,000 for what is one of a single draw."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
    targets = torch.randint(3, (6,)) if isinstance(loss, nn.CrossEntropyLoss) else torch.rand(6, 3).round()
    data = [(torch.randn(6, 3), targets)]
    exact = spdkfac.curvature(model, data, loss, fisher="exact")
    drawn = spdkfac.curvature(model, data, loss, fisher="mc", samples=1000)
    compare({name: relative(drawn[name].G, exact[name].G) for name in exact}, limit=0.1)
    again = spdkfac.curvature(model, data, loss, fisher="mc", samples=3, seed=2)
    same = spdkfac.curvature(model, data, loss, fisher="mc", samples=3, seed=2)
    other = spdkfac.curvature(model, data, loss, fisher="mc", samples=3, seed=3)
    assert torch.equal(again["0"].G, same["0"].G) and not torch.equal(again["0"].G, other["0"].G)


# ---- loops over examples ----

def example_rows(case: Case, model: nn.Module) -> tuple[list[Part], dict[str, list[tuple[torch.Tensor, torch.Tensor]]]]:
    """For each layer of the twin and each example: input rows, and gradients of the example's loss."""
    twin, parts = twin_of(model)
    inputs, targets = case.data()
    return parts, {part.linear: list(rows_of_examples(twin, part.linear, (inputs,), targets, case.loss_function()))
                   for part in parts}


def own_factor(found: spdkfac.Curvature, part: Part, parts: list[Part]) -> tuple[torch.Tensor, torch.Tensor]:
    """A and G of a part: of a group, of a projection, or of the layer."""
    pairs = [other for other in parts if other.name == part.name and other.parameters[0] == part.parameters[0]]
    of_name = [layer for name, layer in found.items()
               if name == part.name or name.startswith((f"{part.name}[", f"{part.name}.")) and "out_proj" not in name]
    all_of_name = [other for other in parts if other.name == part.name]
    if "out_proj" in part.parameters[0]:
        layer, group = found[f"{part.name}.out_proj"], 0
    elif len(of_name) == 1:
        layer, group = of_name[0], pairs.index(part)
    else:
        layer, group = of_name[all_of_name.index(part)], 0
    return layer.a.dense()[group], layer.g.dense()[group]


ALL = [*linear_cases(), *convolution_cases(), *other_cases()]
# One number of examples for all layers; tokens as examples are examples here.
PLAIN = [case for case in ALL if "examples" not in case.options]


@pytest.mark.parametrize("case", [case for case in PLAIN if case.name != "called three times"], ids=str)
def test_factors_of_every_kind_of_layer(case: Case) -> None:
    """A = Σããᵀ/N and G = Σggᵀ/(N·S); reduced, one row for each example: mean inputs and summed gradients."""
    model = case.make()
    parts, rows = example_rows(case, model)
    found = {"expand": spdkfac.curvature(model, uneven(case), case.loss_function(), **case.options)}
    if not case.words and case.kind != "MultiheadAttention":
        found["reduce"] = spdkfac.curvature(model, uneven(case), case.loss_function(), approximation="reduce",
                                            **case.options)
    wrong = {}
    for part in parts:
        examples = rows[part.linear]
        n = len(examples)
        more = n if case.reduction == "sum" else 1  # the matrix of a sum
        for approximation, ours in found.items():
            used = [(r.mean(0, keepdim=True), g.sum(0, keepdim=True)) if approximation == "reduce" else (r, g)
                    for r, g in examples]
            a = sum(r.T @ r for r, _ in used) / n
            g = more * sum(g.T @ g for _, g in used) / (n * len(used[0][0]))
            if case.words and "embedding" in part.kind.lower():
                a = a.diag().diag()
            own_a, own_g = own_factor(ours, part, parts)
            wrong[f"{approximation} A {part.linear}"] = relative(own_a, a)
            # Gradients of keys add up to zero over an example.
            sizes = sum(row.norm() for _, row in examples).square() * more / n
            wrong[f"{approximation} G {part.linear}"] = float((own_g - g).norm() / sizes)
    compare(wrong)


@pytest.mark.parametrize("case", [case for case in PLAIN if case.kind != "MultiheadAttention"], ids=str)
def test_gradients_of_single_examples(case: Case) -> None:
    model = case.make()
    found = spdkfac.curvature(model, uneven(case), case.loss_function(), **case.options)
    ours = found.example_gradients(model, uneven(case), case.loss_function(), basis=False)
    inputs, targets = case.data()
    names = list(found.parameters)
    parameters = dict(model.named_parameters())
    for example in range(len(targets)):
        loss = case.loss_function()(model(inputs[example : example + 1]), targets[example : example + 1])
        gradients = dict(zip(names, torch.autograd.grad(loss, [parameters[name] for name in names]), strict=True))
        for name, layer in found.items():
            assert relative(ours[name][example], layer.join(gradients)) < TOLERANCE, f"{name} {example}"


@pytest.mark.parametrize("fisher", ["empirical", "exact"])
def test_exact_columns_where_tokens_see_each_other(fisher: str) -> None:
    """G from one backward pass for each output of an example, with autograd alone."""
    case = Case("tokens", "Linear", lambda: Block(True), (3, FEATURES), (CLASSES, 3))
    model, (inputs, _) = case.make(), case.data()
    targets = torch.randint(CLASSES, (len(inputs), 3))
    found = spdkfac.curvature(model, [(inputs[:2], targets[:2]), (inputs[2:], targets[2:])], nn.CrossEntropyLoss(),
                              fisher=fisher)
    seen: list[torch.Tensor] = []
    handle = model.query.register_forward_hook(lambda _, __, output: seen.append(output))
    g = torch.zeros(FEATURES, FEATURES)
    for x, y in zip(inputs, targets, strict=True):
        seen.clear()
        outputs = model(x[None])
        p = outputs.softmax(1).detach()
        if fisher == "empirical":
            roots = [torch.autograd.grad(F.cross_entropy(outputs, y[None]), outputs, retain_graph=True)[0]]
        else:
            roots = []
            for token in range(3):
                for label in range(CLASSES):
                    root = torch.zeros_like(outputs)
                    root[0, :, token] = -p[0, :, token]
                    root[0, label, token] += 1
                    roots.append(root * p[0, label, token].sqrt() / math.sqrt(3))  # a third of each token's loss
        for root in roots:
            rows = torch.autograd.grad(outputs, seen[0], root, retain_graph=True)[0][0]
            g += rows.T @ rows
    handle.remove()
    assert relative(found["query"].G, g / (len(inputs) * 3)) < TOLERANCE


def test_second_moments_in_the_eigenbasis() -> None:
    """EK-FAC: Λ = E[(Q_Gᵀ ∇ Q_A)²], from per-example gradients and torch's own eigenvectors."""
    for case in (named(linear_cases(), "mlp"), Case("small cnn", "Conv2d", tiny_cnn, IMAGE),
                 named(other_cases(), "grouped"), named(linear_cases(), "transformer block")):
        model, loss, batches = case.make(), case.loss_function(), uneven(case)
        plain = spdkfac.curvature(model, batches, loss)
        found = spdkfac.curvature(model, batches, loss, ekfac=True)
        gradients = plain.example_gradients(model, batches, loss, basis=False)
        for name, layer in found.items():
            a, g = (torch.linalg.eigh(factor.dense())[1] for factor in (layer.a, layer.g))
            expected = (g.mT @ gradients[name] @ a).square().mean(0)
            assert relative(layer.eigenvalues, expected) < 1e-8, f"{case.name} {name}"
            # The best diagonal in this basis keeps the trace of the Fisher matrix.
            assert relative(layer.eigenvalues.sum(), gradients[name].square().sum() / len(gradients[name])) < TOLERANCE


def test_examples_inside_attention_are_not_told_apart() -> None:
    """Its rows are time first, and those of its output are flattened."""
    case = named(other_cases(), "self-attention")
    model, loss, batches = case.make(), case.loss_function(), uneven(case)
    found = spdkfac.curvature(model, batches, loss)
    with pytest.raises(spdkfac.ConfigError, match="not known of attention.q_proj"):
        found.example_gradients(model, batches, loss)
    for options in ({"approximation": "reduce"}, {"ekfac": True}):
        with pytest.raises(spdkfac.ConfigError, match="not known of attention.q_proj"):
            spdkfac.curvature(model, batches, loss, **options)
        spdkfac.curvature(model, batches, loss, skip_layers=["attention"], **options)


def test_tables_have_no_reduced_factors() -> None:
    case = named(other_cases(), "embedding")
    with pytest.raises(spdkfac.ConfigError, match="layer 0 is a table"):
        spdkfac.curvature(case.make(), uneven(case), case.loss_function(), approximation="reduce")


def test_large_factors_keep_blocks_or_the_diagonal() -> None:
    model, case = mlp(), named(linear_cases(), "mlp")
    whole = spdkfac.curvature(model, uneven(case), nn.CrossEntropyLoss())
    for kept in ("diagonal", "blocks"):
        parts = spdkfac.curvature(model, uneven(case), nn.CrossEntropyLoss(), max_dimension=7, large_factors=kept)
        for name, layer in parts.items():
            for own, reference in ((layer.A, whole[name].A), (layer.G, whole[name].G)):
                size = len(reference)
                blocks = 1 if size <= 7 else size if kept == "diagonal" else -(-size // 7)
                rows = -(-size // blocks)
                at = torch.arange(size) // rows
                assert relative(own, reference * (at[:, None] == at)) < TOLERANCE, f"{name}, {kept}"
