# SPDX-License-Identifier: Apache-2.0
"""An independent referee: factors and preconditioned gradients agree with curvlinops.

Its A is ours divided by the positions S of a layer, its G ours multiplied by them. Its product A⊗G is `scale`
times ours: it counts the loss of every token as a term, takes the mean square of C outputs for their sum
divided by √C, and does not divide a sum over examples by their number.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

import pytest
import torch
from curvlinops import KFACInverseLinearOperator, KFACLinearOperator
from devices import DEVICE
from loop_reference import Factors, Part, damped, preconditioned, twin_of
from nets import kfac_over_sgd
from referee_cases import (EXAMPLES, IMAGE, TOKENS, Case, average, cnn_with_norms, convolution,
                           convolution_cases, expect_covered, largest_errors, linear_cases, observe,
                           other_cases, relative, square)
from torch import nn

pytestmark = [pytest.mark.skipif(DEVICE == "cuda", reason="double precision on the CPU"),
              pytest.mark.usefixtures("double_precision")]
TOLERANCE, DAMPING = 1e-9, 0.03


@pytest.fixture(scope="module")
def errors() -> Iterator[dict[str, float]]:
    with largest_errors("curvlinops") as found:
        yield found


class Referee:
    """curvlinops on a model of Linear and Conv2d layers, one for each part."""

    def __init__(self, case: Case, model: nn.Module, layers: dict[str, Part],
                 batches: list[tuple[torch.Tensor, torch.Tensor]] | None = None) -> None:
        batches = batches or [case.data()]
        self.case, self.layers, self.model = case, layers, model
        self.parameters = {name: [p for p in model.get_submodule(name).parameters() if p.requires_grad]
                           for name in layers}
        self.positions = positions(case, model, layers, batches[0][0])
        self.operator = KFACLinearOperator(
            model, case.loss_function(), [p for own in self.parameters.values() for p in own],
            batches, fisher_type="empirical", kfac_approx="expand",
            separate_weight_and_bias=False, check_deterministic=False)
        self.operator.compute_kronecker_factors()

    def factors(self, layer: str) -> tuple[torch.Tensor, torch.Tensor]:
        """In our convention kfc."""
        state, s = self.operator.state_dict(), self.positions[layer]
        return (state["input_covariances"][layer] * s,
                state["gradient_covariances"][layer] / (scale(self.case) * s))

    def preconditioned(self, layer: str, gradients: dict[str, torch.Tensor], mode: str) -> torch.Tensor:
        """With our damping, in the scale of its factors: γ·scale for the product, or one for each factor.

        `exact` is that of solver="eigen".
        """
        more, s = scale(self.case), self.positions[layer]
        damping = (DAMPING / s, DAMPING * more * s) if mode == "plain" else DAMPING * more
        inverse = KFACInverseLinearOperator(self.operator, damping, use_heuristic_damping=mode == "pi",
                                            use_exact_damping=mode == "exact", min_damping=0.0)
        vectors = [torch.zeros_like(p) for own in self.parameters.values() for p in own]
        names = list(self.layers)
        first = sum(len(self.parameters[name]) for name in names[: names.index(layer)])
        matrix = self.layers[layer].matrix(gradients)
        own = self.parameters[layer]
        vectors[first] = matrix[:, : own[0][0].numel()].reshape(own[0].shape)
        if len(own) == 2:
            vectors[first + 1] = matrix[:, -1]
        solution = inverse @ vectors
        columns = [x.reshape(len(matrix), -1) for x in solution[first : first + len(own)]]
        return torch.cat(columns, dim=1) * more


def scale(case: Case) -> float:
    """Its product A⊗G in units of ours."""
    terms = math.prod(case.output[1:])
    per_token = case.options.get("examples") == "tokens"
    if case.reduction == "sum":
        return EXAMPLES * (terms if per_token else 1)
    outputs = case.output[0] if case.loss == "square" else 1
    return outputs * (1 if per_token else terms)


def positions(case: Case, model: nn.Module, layers: dict[str, Part],
              inputs: torch.Tensor) -> dict[str, float]:
    """Rows of a call of each layer, divided by what counts as examples."""
    examples = EXAMPLES * (TOKENS if case.options.get("examples") == "tokens" else 1)
    found: dict[str, float] = {}
    handles = []
    for name in layers:
        def count(module: nn.Module, _: object, output: torch.Tensor, name: str = name) -> None:
            features = output.shape[1 if isinstance(module, nn.Conv2d) else -1]
            found[name] = output.numel() / features / examples
        handles.append(model.get_submodule(name).register_forward_hook(count))
    model(inputs)
    for handle in handles:
        handle.remove()
    return found


def compare(case: Case, referee: Referee, parts: list[Part], model: nn.Module, errors: dict[str, float],
            how: str = "") -> None:
    """Factors, and updates with each kind of damping."""
    found: dict[str, float] = {}
    for mode in ("pi", "plain", "exact"):
        solver = {"solver": "eigen"} if mode == "exact" else {"damping_mode": mode}
        seen = observe(case, model, damping=DAMPING, **solver)
        expect_covered(case, parts, seen)
        for layer, part in referee.layers.items():
            update = part.matrix(seen.updates)
            found[f"update, {mode}: {part.linear}"] = relative(
                update, referee.preconditioned(layer, seen.gradients, mode))
            for side, factor in zip("ag", referee.factors(layer), strict=True):
                found[f"{side.upper()}: {part.linear}"] = relative(average(part, parts, seen, side), factor)
    for what, error in found.items():
        key = f"{case.kind}{how}: {'update' if what.startswith('update') else 'factors'}"
        errors[key] = max(errors[key], error)
    wrong = {what: error for what, error in found.items() if not error < TOLERANCE}
    assert not wrong, f"{case.name}: {wrong}"


@pytest.mark.parametrize("case", [*linear_cases(), *convolution_cases()], ids=str)
def test_what_curvlinops_knows(case: Case, errors: dict[str, float]) -> None:
    model = case.make()
    _, parts = twin_of(model)  # only for the rows of its parameters
    compare(case, Referee(case, model, {part.name: part for part in parts}), parts, model, errors)


@pytest.mark.parametrize("stride", [1, 2])
def test_patches_in_pieces(stride: int, errors: dict[str, float]) -> None:
    """Patches of 8 MB, made in pieces of 1 MiB, or products without patches."""
    case = Case("pieces", "Conv2d", convolution(lambda: nn.Conv2d(8, 5, 5, stride, padding=2), 5),
                (8, 32, 32), options={"patch_memory": 1 << 20})
    model = case.make()
    parts = by_name(model)
    compare(case, Referee(case, model, parts), list(parts.values()), model, errors)


def test_layers_between_norms(errors: dict[str, float]) -> None:
    """Batch statistics make examples depend on each other; both sides see the batch as one."""
    case = Case("cnn with norms", "Conv2d", cnn_with_norms, IMAGE)
    model = case.make()
    parts = by_name(model)
    compare(case, Referee(case, model, parts), list(parts.values()), model, errors)


@pytest.mark.parametrize("case", other_cases(), ids=str)
def test_other_kinds_as_linear_layers(case: Case, errors: dict[str, float]) -> None:
    model = case.make()
    twin, parts = twin_of(model)
    referee = Referee(case, twin, {part.linear: part for part in parts})
    compare(case, referee, parts, model, errors, " as Linear")


def named(cases: list[Case], name: str) -> Case:
    return next(case for case in cases if case.name == name)


def by_name(model: nn.Module) -> dict[str, Part]:
    return {part.name: part for part in twin_of(model)[1]}


@pytest.mark.parametrize("case", [named(linear_cases(), "mlp"), named(convolution_cases(), "cnn")], ids=str)
def test_averages_over_steps(case: Case) -> None:
    """m ← ρ·m + (1−ρ)·new, with the factors of each step's weights; updates come from the averages."""
    model, weight_of_old = case.make(), 0.7
    inputs, targets = case.data()
    optimizer = kfac_over_sgd(model, lr=0.1, momentum=0.0, kl_clip=0.0, damping=DAMPING,
                              running_average=weight_of_old)
    averages: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    for step in range(3):
        optimizer.zero_grad()
        referee = Referee(case, model, by_name(model))
        for layer in referee.layers:
            new = referee.factors(layer)
            old = averages.get(layer, new)
            averages[layer] = tuple(weight_of_old * o + (1 - weight_of_old) * n
                                    for o, n in zip(old, new, strict=True))
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        case.loss_function()(model(inputs), targets).backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
        optimizer.step()
        updates = {name: (before[name] - p.detach()) / 0.1 for name, p in model.named_parameters()}
        for layer, part in referee.layers.items():
            reference = damped(Factors(*averages[layer]), "pi", DAMPING)
            expected = preconditioned(reference, part.matrix(gradients))
            assert relative(part.matrix(updates), expected) < TOLERANCE, f"{layer} in step {step}"


@pytest.mark.parametrize("case", [named(linear_cases(), "transformer block"),
                                  named(convolution_cases(), "cnn"),
                                  named(convolution_cases(), "cnn, sum")], ids=str)
def test_two_passes_are_two_batches(case: Case) -> None:
    """Gradients that are accumulated over two passes: curvlinops gets both batches as its data."""
    model = case.make()
    inputs, targets = case.data()
    batches = [(inputs, targets), (inputs.flip(0) * 0.7, targets.roll(1))]
    referee = Referee(case, model, by_name(model), batches)
    optimizer = kfac_over_sgd(model, kl_clip=0.0, damping=DAMPING, loss_reduction=case.reduction)
    for batch in batches:
        loss = case.loss_function()(model(batch[0]), batch[1])
        (loss / (1 if case.reduction == "sum" else len(batches))).backward()
    optimizer.step()
    state = optimizer.state_dict()["state"]
    for index, (name, _) in enumerate(model.named_parameters()):
        layer = name.removesuffix(".weight")
        if layer != name:
            factors = list(referee.factors(layer))
            if case.reduction == "sum":  # the scale counts one batch
                factors[1] = factors[1] / len(batches)
            for what, factor in zip("ag", factors, strict=True):
                assert relative(square(state[index][f"kfac_{what}_average"][0]), factor) < TOLERANCE, name


def test_frozen_biases() -> None:
    """A layer whose bias is frozen has no column for it in A."""
    case = named(linear_cases(), "mlp")
    model = case.make()
    model[0].bias.requires_grad_(False)
    parts = by_name(model)
    parts["0"] = Part("Linear", "0", "0", ("0.weight",), lambda values: values["0.weight"])
    compare(case, Referee(case, model, parts), list(parts.values()), model, defaultdict(float))
