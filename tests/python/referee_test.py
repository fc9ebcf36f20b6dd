# SPDX-License-Identifier: Apache-2.0
"""An independent referee: factors and preconditioned gradients agree with curvlinops.

Its A is ours divided by the positions S of a layer, its G ours multiplied by them. Its product A⊗G is `scale`
times ours: it counts the loss of every token as a term, takes the mean square of C outputs for their sum
divided by √C, and does not divide a sum over examples by their number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from curvlinops import KFACInverseLinearOperator, KFACLinearOperator
from devices import DEVICE
from loop_reference import Part, twin_of
from referee_cases import (EXAMPLES, TOKENS, Case, convolution_cases, expect_covered, largest_errors,
                           linear_cases, observe, other_cases, relative, square)
from torch import nn

pytestmark = pytest.mark.skipif(DEVICE == "cuda", reason="double precision on the CPU")
TOLERANCE, DAMPING = 1e-9, 0.03


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def errors() -> Iterator[dict[str, float]]:
    with largest_errors("curvlinops") as found:
        yield found


class Referee:
    """curvlinops on a model of Linear and Conv2d layers, one for each part."""

    def __init__(self, case: Case, model: nn.Module, layers: dict[str, Part]) -> None:
        inputs, targets = case.data()
        self.case, self.layers, self.model = case, layers, model
        self.parameters = {name: list(model.get_submodule(name).parameters()) for name in layers}
        self.positions = positions(case, model, layers, inputs)
        self.operator = KFACLinearOperator(
            model, case.loss_function(), [p for own in self.parameters.values() for p in own],
            [(inputs, targets)], fisher_type="empirical", kfac_approx="expand",
            separate_weight_and_bias=False, check_deterministic=False)
        self.operator.compute_kronecker_factors()

    def factors(self, layer: str) -> tuple[torch.Tensor, torch.Tensor]:
        """In our convention kfc."""
        state, s = self.operator.state_dict(), self.positions[layer]
        return (state["input_covariances"][layer] * s,
                state["gradient_covariances"][layer] / (scale(self.case) * s))

    def preconditioned(self, layer: str, gradients: dict[str, torch.Tensor], mode: str) -> torch.Tensor:
        """With our damping, in the scale of its factors: γ·scale for the product, or one for each factor."""
        more, s = scale(self.case), self.positions[layer]
        damping = DAMPING * more if mode == "pi" else (DAMPING / s, DAMPING * more * s)
        inverse = KFACInverseLinearOperator(self.operator, damping, use_heuristic_damping=mode == "pi",
                                            min_damping=0.0)
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
    """Factors, where a weight has one pair of them, and updates with both kinds of damping."""
    found: dict[str, float] = {}
    for mode in ("pi", "plain"):
        seen = observe(case, model, damping=DAMPING, damping_mode=mode)
        expect_covered(case, parts, seen)
        for layer, part in referee.layers.items():
            update = part.matrix(seen.updates)
            found[f"update, {mode}: {part.linear}"] = relative(
                update, referee.preconditioned(layer, seen.gradients, mode))
            pairs = [other for other in parts if other.parameters[0] == part.parameters[0]]
            state = seen.state[part.parameters[0]]
            if "kfac_a_average" in state and state["kfac_a_average"].ndim == 2:
                group = pairs.index(part)
                for what, factor in zip("ag", referee.factors(layer), strict=True):
                    ours = square(state[f"kfac_{what}_average"][group])
                    found[f"{what.upper()}: {part.linear}"] = relative(ours, factor)
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


@pytest.mark.parametrize("case", other_cases(), ids=str)
def test_other_kinds_as_linear_layers(case: Case, errors: dict[str, float]) -> None:
    model = case.make()
    twin, parts = twin_of(model)
    referee = Referee(case, twin, {part.linear: part for part in parts})
    compare(case, referee, parts, model, errors, " as Linear")
