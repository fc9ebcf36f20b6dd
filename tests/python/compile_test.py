# SPDX-License-Identifier: Apache-2.0
"""torch.compile hides the calls of layers: a step is right, or a ConfigError before it changes anything."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from nets import SmallNet, flat, kfac_over_sgd, small_net, steps, train
from torch import nn

import spdkfac

Use = Callable[[torch.Tensor], torch.Tensor]


def compile_forward(model: SmallNet, backend: str) -> Use:
    model.third.forward = torch.compile(model.third.forward, backend=backend)  # type: ignore[method-assign]
    return model


def compile_block(model: SmallNet, backend: str) -> Use:
    model.third.compile(backend=backend)
    return model


def put_back(model: SmallNet, backend: str) -> Use:
    model.third = torch.compile(model.third, backend=backend)  # type: ignore[assignment]
    return model


def compile_in_place(model: SmallNet, backend: str) -> Use:
    model.compile(backend=backend)
    return model


def compile_outside(model: SmallNet, backend: str) -> Use:
    return torch.compile(model, backend=backend)


def compile_caller(model: SmallNet, backend: str) -> Use:
    return torch.compile(lambda images: model(images), backend=backend)


def compile_function(model: SmallNet, backend: str) -> Use:
    """Compiled code that takes a layer's weight without its module."""
    third = torch.compile(
        lambda features: nn.functional.linear(features, model.third.weight, model.third.bias),
        backend=backend)
    model.third.forward = lambda features: third(features)  # type: ignore[method-assign]
    return model


WAYS = [compile_forward, compile_block, put_back, compile_in_place, compile_outside, compile_caller,
        compile_function]


@pytest.fixture(autouse=True)
def forget_compiled() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def plain(count: int, **options: object) -> torch.Tensor:
    model = small_net()
    train(model, kfac_over_sgd(model, **options), steps(count))
    return flat(model)


def train_through(use: Use, optimizer: torch.optim.Optimizer, count: int, first: int) -> None:
    for images, labels in steps(count, first):
        optimizer.zero_grad()
        nn.functional.cross_entropy(use(images), labels).backward()
        optimizer.step()


@pytest.mark.parametrize("backend", ["aot_eager", "eager"])
@pytest.mark.parametrize("way", WAYS)
def test_compiled_after_good_steps(way: Callable[[SmallNet, str], Use], backend: str) -> None:
    model = small_net()
    optimizer = kfac_over_sgd(model)
    train(model, optimizer, steps(2))
    use = way(model, backend)
    before = flat(model)
    try:
        train_through(use, optimizer, 1, first=2)
    except spdkfac.ConfigError as error:
        assert "torch.compile" in str(error) and "compile it for inference only" in str(error)
        assert torch.equal(flat(model), before)
    else:  # its calls were seen
        assert torch.equal(flat(model), plain(3))
        # Dynamo compiles nothing of a call of one of torch's own layers.
        assert backend == "eager" or way is compile_block


@pytest.mark.parametrize("way", WAYS)
def test_compiled_before_the_first_step(way: Callable[[SmallNet, str], Use]) -> None:
    model = small_net()
    optimizer = kfac_over_sgd(model)
    use = way(model, "aot_eager")
    before = flat(model)
    with pytest.raises(spdkfac.ConfigError, match="torch.compile"):
        train_through(use, optimizer, 1, first=0)
    assert torch.equal(flat(model), before)


@pytest.mark.parametrize("way", [compile_forward, compile_block, put_back, compile_in_place])
def test_compiled_before_the_optimizer_is_made(way: Callable[[SmallNet, str], Use]) -> None:
    model = small_net()
    way(model, "aot_eager")
    with pytest.raises(spdkfac.ConfigError, match="torch.compile"):
        kfac_over_sgd(model)


def test_steps_without_new_factors_may_be_compiled() -> None:
    model = small_net()
    optimizer = kfac_over_sgd(model, factor_interval=2, inverse_interval=2)
    train(model, optimizer, steps(1))
    use = compile_outside(model, "aot_eager")
    train_through(use, optimizer, 1, first=1)
    torch.testing.assert_close(flat(model), plain(2, factor_interval=2, inverse_interval=2),
                               rtol=1e-12, atol=1e-14)
    with pytest.raises(spdkfac.ConfigError, match="first, second, third, out are compiled"):
        train_through(use, optimizer, 1, first=2)


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
    assert torch.equal(flat(model), plain(3))


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
    with torch.no_grad():
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
    with torch.no_grad():
        torch.compile(model.eval(), backend="aot_eager")(next(steps(1))[0])
    model.train()
    train(model, optimizer, steps(1, 1))
    assert hasattr(model.third.weight, "_dynamo_static_input_type")
    assert optimizer.counters["layers_without_factors"] == 2
    with pytest.raises(spdkfac.ConfigError, match="first, second, out are compiled"):
        train_through(compile_outside(model, "aot_eager"), optimizer, 1, first=2)
