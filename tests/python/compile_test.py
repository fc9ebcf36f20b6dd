# SPDX-License-Identifier: Apache-2.0
"""torch.compile hides the calls of layers: it is off where a step needs them, and steps are those without it."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from nets import SmallNet, batch, flat, kfac_over_sgd, small_net, steps, train
from torch import nn
from torch._dynamo.backends.debugging import aot_eager

import spdkfac

Use = Callable[[torch.Tensor], torch.Tensor]


def compile_forward(model: SmallNet, backend: Any) -> Use:
    model.third.forward = torch.compile(model.third.forward, backend=backend)  # type: ignore[method-assign]
    return model


def compile_block(model: SmallNet, backend: Any) -> Use:
    model.third.compile(backend=backend)
    return model


def put_back(model: SmallNet, backend: Any) -> Use:
    model.third = torch.compile(model.third, backend=backend)  # type: ignore[assignment]
    return model


def compile_in_place(model: SmallNet, backend: Any) -> Use:
    model.compile(backend=backend)
    return model


def compile_outside(model: SmallNet, backend: Any) -> Use:
    return torch.compile(model, backend=backend)


def compile_caller(model: SmallNet, backend: Any) -> Use:
    return torch.compile(lambda images: model(images), backend=backend)


def compile_function(model: SmallNet, backend: Any) -> Use:
    """Compiled code that takes a layer's weight without its module."""
    third = torch.compile(
        lambda features: nn.functional.linear(features, model.third.weight, model.third.bias),
        backend=backend)
    model.third.forward = lambda features: third(features)  # type: ignore[method-assign]
    return model


WAYS = [compile_forward, compile_block, put_back, compile_in_place, compile_outside, compile_caller,
        compile_function]
INTERVALS: list[dict[str, Any]] = [{}, {"factor_interval": 2, "inverse_interval": 4},
                                   {"preset": "cnn", "interval": "auto"}]


class Counted:
    """A backend that runs forward graphs as they are, with their backward pass in them, and counts runs."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        compiled = aot_eager(graph, inputs)

        def run(*arguments: Any) -> Any:
            self.runs += 1
            return compiled(*arguments)
        return run


@pytest.fixture(autouse=True)
def forget_compiled() -> Iterator[None]:
    yield
    gc.collect()
    assert stance() == "default", "no optimizer is left, and nothing is forced"
    torch._dynamo.reset()


def compiles_own_layers() -> bool:
    """Up to 2.12 Dynamo compiles nothing of a call of one of torch's own layers."""
    layer, backend = nn.Linear(2, 2), Counted()
    layer.compile(backend=backend)
    layer(torch.ones(1, 2))
    return backend.runs > 0


def stance() -> str:
    return torch._dynamo.eval_frame._stance.stance


def plain(count: int, **options: Any) -> tuple[torch.Tensor, list[int]]:
    """Parameters after steps that are not compiled, and those of them that had no new factors."""
    model = small_net()
    optimizer = kfac_over_sgd(model, **options)
    updates, without = 0, []
    for step in range(count):
        train(model, optimizer, steps(1, step))
        if optimizer.counters["factor_updates"] == updates:
            without.append(step)
        updates = optimizer.counters["factor_updates"]
    return flat(model), without


def train_through(use: Use, optimizer: torch.optim.Optimizer, count: int, first: int = 0) -> None:
    for images, labels in steps(count, first):
        optimizer.zero_grad()
        nn.functional.cross_entropy(use(images), labels).backward()
        optimizer.step()


def close(model: nn.Module, expected: torch.Tensor) -> None:
    torch.testing.assert_close(flat(model), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("options", INTERVALS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("when", ["before", "after", "later"])
def test_compiled_code_runs_where_no_calls_are_needed(way: Callable[[SmallNet, Any], Use], when: str,
                                                      options: dict[str, Any]) -> None:
    compiled = way is not compile_block or compiles_own_layers()
    count = 26 if "preset" in options else 7  # at first "auto" has factors in each step
    first = 3 if when == "later" else 0
    model, backend = small_net(), Counted()
    expected, without_factors = plain(count, **options)
    assert without_factors or not options
    if when == "before":  # the optimizer is made
        use = way(model, backend)
        optimizer = kfac_over_sgd(use if isinstance(use, nn.Module) else model, **options)
    else:
        optimizer = kfac_over_sgd(model, **options)
        train(model, optimizer, steps(first))
        use = way(model, backend)
    train_through(use, optimizer, count - first, first)
    close(model, expected)
    assert optimizer.layers.names == ["first", "second", "third", "out"]
    assert backend.runs == (sum(step >= first for step in without_factors) if compiled else 0)


def test_a_compiled_step_is_right() -> None:
    model, backend = small_net(), Counted()
    optimizer = kfac_over_sgd(model, factor_interval=2, inverse_interval=2)

    @torch.compile(backend=backend)
    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    for images, labels in steps(6):
        step(images, labels)
    close(model, plain(6, factor_interval=2, inverse_interval=2)[0])
    assert backend.runs >= 3


def test_accumulation_clipping_and_a_rate_of_zero() -> None:
    results = []
    for compiled in (False, True):
        model = small_net()
        optimizer = kfac_over_sgd(model, factor_interval=2, inverse_interval=2)
        use = torch.compile(model, backend="aot_eager") if compiled else model
        for step in range(6):
            optimizer.zero_grad()
            optimizer.param_groups[0]["lr"] = 0.0 if step == 3 else 0.05
            for part in range(2):
                images, labels = batch(step, part)
                (nn.functional.cross_entropy(use(images), labels) / 2).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
        assert optimizer.counters["steps"] == 6
        results.append(flat(model))
    torch.testing.assert_close(results[1], results[0], rtol=1e-12, atol=1e-14)


def test_a_compiled_run_resumes_one_that_is_not() -> None:
    model = small_net()
    options: dict[str, Any] = {"factor_interval": 3, "inverse_interval": 3}
    optimizer = kfac_over_sgd(model, **options)
    train(model, optimizer, steps(4))
    again = small_net()
    again.load_state_dict(model.state_dict())
    use = torch.compile(again, backend="aot_eager")
    resumed = kfac_over_sgd(use, **options)  # type: ignore[arg-type]
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train_through(use, resumed, 4, first=4)
    close(again, plain(8, **options)[0])


def test_stances_of_the_user_come_back() -> None:
    torch.compiler.set_stance("eager_on_recompile")
    try:
        model, other = small_net(), small_net()
        optimizer = kfac_over_sgd(model, factor_interval=2, inverse_interval=2)
        assert stance() == "force_eager"
        train(model, optimizer, steps(1))
        assert stance() == "eager_on_recompile", "the coming step has no factors"
        second = kfac_over_sgd(other)
        assert stance() == "force_eager", "another model's has"
        train(model, optimizer, steps(2, 1))
        assert stance() == "force_eager"
        del second
        gc.collect()
        assert stance() == "eager_on_recompile"
        train(model, optimizer, steps(1, 3))
        with torch.compiler.set_stance("default"):  # over the end of a step
            train(model, optimizer, steps(1, 4))
            assert stance() == "default"
        train(model, optimizer, steps(1, 5))
        train(model, optimizer, steps(1, 6))
        assert stance() == "eager_on_recompile"
    finally:
        torch.compiler.set_stance("default")


@pytest.mark.parametrize("way", [each for each in WAYS if each is not compile_block])
def test_a_stance_that_hides_calls_is_refused(way: Callable[[SmallNet, Any], Use]) -> None:
    model = small_net()
    optimizer = kfac_over_sgd(model)
    train(model, optimizer, steps(2))
    use, before = way(model, "aot_eager"), flat(model)
    with torch.compiler.set_stance("default"), pytest.raises(spdkfac.ConfigError, match="set no stance"):
        train_through(use, optimizer, 1, first=2)
    assert torch.equal(flat(model), before)


def test_describe_sees_compiled_blocks() -> None:
    model = small_net()
    model.third = torch.compile(model.third, backend="aot_eager")  # type: ignore[assignment]
    table = spdkfac.describe(torch.compile(model), (2, 6, 6))  # type: ignore[arg-type]
    assert table.to_json() == spdkfac.describe(small_net(), (2, 6, 6)).to_json()


def test_a_model_compiled_for_inference_is_trained_as_it_is() -> None:
    model = small_net()
    optimizer = kfac_over_sgd(model)
    compiled = torch.compile(model, backend="aot_eager")
    for step in range(3):
        train(model, optimizer, steps(1, step))
        model.eval()
        with torch.no_grad():
            compiled(next(steps(1))[0])
        model.train()
    assert torch.equal(flat(model), plain(3)[0])


class Conditional(SmallNet):
    """May leave one layer out."""

    whole = True

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = torch.tanh(self.second(torch.tanh(self.first(images))) * self.scale).flatten(1)
        return self.out(torch.tanh(self.third(features)) if self.whole else features[:, :12])


def test_a_layer_that_a_step_leaves_out_is_no_compiled_one() -> None:
    torch.manual_seed(7)
    model = Conditional().double()
    optimizer = kfac_over_sgd(model)
    train(model, optimizer, steps(1))
    with torch.no_grad(), torch.compiler.set_stance("default"):
        torch.compile(copy.copy(model).eval(), backend="aot_eager")(next(steps(1))[0])
    assert hasattr(model.third.weight, "_dynamo_static_input_type"), "compiled code knows it"
    model.train()
    model.whole = False
    for images, labels in steps(2, 1):
        optimizer.zero_grad(set_to_none=False)  # a gradient of zeros stays
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    assert optimizer.counters["steps"] == 3


class Standardised(nn.Linear):
    """Computes the weight that its operator gets, as convolutions of nfnet do."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        weight = (self.weight - self.weight.mean(1, keepdim=True)) / self.weight.std(1, keepdim=True)
        return nn.functional.linear(features, weight, self.bias)


def test_layers_that_compute_their_weight_are_no_compiled_ones() -> None:
    model = small_net()
    model.third = Standardised(8 * 3 * 3, 12).double()
    optimizer = kfac_over_sgd(model, log_level="error")
    train(model, optimizer, steps(1))
    with torch.no_grad(), torch.compiler.set_stance("default"):
        torch.compile(model.eval(), backend="aot_eager")(next(steps(1))[0])
    model.train()
    train(model, optimizer, steps(1, 1))
    assert hasattr(model.third.weight, "_dynamo_static_input_type")
    assert optimizer.counters["layers_without_factors"] == 2
    with torch.compiler.set_stance("default"), pytest.raises(spdkfac.ConfigError, match="first, second, out were"):
        train_through(compile_outside(model, "aot_eager"), optimizer, 1, first=2)
