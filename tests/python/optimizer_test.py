# SPDX-License-Identifier: Apache-2.0
"""SPDKFACOptimizer in one process."""

from __future__ import annotations

import copy
import inspect
import io
import warnings

import pytest
import torch
from nets import (SmallNet, batch, difference, flat, joined, kfac_over_sgd, loss_of, same_bits,
                  small_net, steps, train)
from torch import nn

import spdkfac
from spdkfac import _core


def test_defaults_are_those_of_the_library() -> None:
    signature = inspect.signature(spdkfac.SPDKFACOptimizer.__init__).parameters
    options = _core.KfacOptions()
    for field in ("identity_start", "convention", "loss_reduction", "precision", "patch_memory", "trace",
                  "norms", "max_dimension", "large_factors"):
        assert signature[field].default == getattr(options, field), field
    for field in ("damping", "damping_mode", "running_average", "kl_clip", "graft", "factor_interval",
                  "inverse_interval"):
        assert signature[field].default is None, f"{field} is the preset's"
        assert getattr(_core.kfac_preset("paper"), field) == getattr(options, field), field


def test_loss_falls_faster_than_with_the_optimizer_alone() -> None:
    images, labels = batch(0, examples=64, dtype=torch.float32)
    losses = {}
    for kfac in (False, True):
        model = small_net(torch.float32)
        optimizer = (kfac_over_sgd(model, kl_clip=0.01) if kfac
                     else torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
        for _ in range(30):
            train(model, optimizer, [(images, labels)])
        losses[kfac] = float(loss_of(model, (images, labels)))
    assert losses[True] < 0.5 * losses[False]


def test_is_an_optimizer_and_shares_groups_with_the_wrapped_one() -> None:
    model = small_net()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer = spdkfac.SPDKFACOptimizer(sgd, model)
    assert isinstance(optimizer, torch.optim.Optimizer)
    assert optimizer.param_groups is sgd.param_groups
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    train(model, optimizer, steps(1))
    scheduler.step()
    assert sgd.param_groups[0]["lr"] == 0.05
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    train(model, optimizer, steps(2))
    assert len(calls) == 2


def test_the_learning_rate_of_the_groups_is_what_clipping_uses() -> None:
    data = batch(0)
    change = []
    for lr in (10.0, 20.0):
        model = small_net()
        before = flat(model)
        train(model, kfac_over_sgd(model, lr=lr, momentum=0), [data])
        change.append(flat(model) - before)
    # The clipped update has length √κ in the metric, whatever the rate; only covered layers are.
    covered = slice(8, None)  # behind `scale`
    assert difference(change[0][covered], change[1][covered]) < 1e-9


def test_closure_is_called_once() -> None:
    data = batch(0)
    models = [small_net(), small_net()]
    train(models[0], kfac_over_sgd(models[0]), [data])
    optimizer = kfac_over_sgd(models[1])
    losses = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        losses.append(loss_of(models[1], data))
        losses[-1].backward()
        return losses[-1]

    assert optimizer.step(closure) is losses[0] and len(losses) == 1
    assert same_bits(*models)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_wraps_optimizers_of_torch(name: str) -> None:
    model = small_net()
    data = batch(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer = spdkfac.SPDKFACOptimizer(
            getattr(torch.optim, name)(model.parameters(), lr=1e-2), model)
    before = float(loss_of(model, data))
    train(model, optimizer, [data] * 5)
    assert float(loss_of(model, data)) < before


def test_state_goes_on_bit_for_bit_after_loading() -> None:
    options = {"factor_interval": 2, "inverse_interval": 4}
    whole = small_net(torch.float32)
    optimizer = kfac_over_sgd(whole, **options)
    train(whole, optimizer, steps(5, dtype=torch.float32))
    saved = io.BytesIO()
    torch.save({"model": whole.state_dict(), "optimizer": optimizer.state_dict()}, saved)
    train(whole, optimizer, steps(5, first=5, dtype=torch.float32))

    saved.seek(0)
    state = torch.load(saved, weights_only=True)
    resumed = small_net(torch.float32)
    resumed.load_state_dict(state["model"])
    again = kfac_over_sgd(resumed, **options)
    again.load_state_dict(state["optimizer"])
    assert again.counters["steps"] == 5
    train(resumed, again, steps(5, first=5, dtype=torch.float32))
    assert same_bits(whole, resumed)


def test_states_of_other_options_or_of_plain_optimizers_are_refused() -> None:
    model = small_net()
    optimizer = kfac_over_sgd(model)
    train(model, optimizer, steps(1))
    with pytest.raises(spdkfac.ConfigError, match="other options"):
        kfac_over_sgd(model, damping=0.5).load_state_dict(optimizer.state_dict())
    with pytest.raises(spdkfac.ConfigError, match="nothing of K-FAC"):
        optimizer.load_state_dict(optimizer.optimizer.state_dict())


def test_accumulated_batches_equal_the_joined_one() -> None:
    parts = [[batch(step, part) for part in range(3)] for step in range(3)]
    whole, pieces = small_net(), small_net()
    train(whole, kfac_over_sgd(whole), (joined(part) for part in parts))
    optimizer = kfac_over_sgd(pieces)
    for part in parts:
        optimizer.zero_grad()
        for data in part:
            (loss_of(pieces, data) / len(part)).backward()
        optimizer.step()
    assert difference(flat(pieces), flat(whole)) < 1e-9


def test_gradients_may_be_clipped_before_the_step() -> None:
    # Preconditioning is linear, so halved gradients give half of the update (without kl_clip).
    updates = []
    for scale in (1.0, 0.5):
        model = small_net()
        before = flat(model)
        optimizer = kfac_over_sgd(model, kl_clip=0)
        loss_of(model, batch(0)).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
        torch.nn.utils.clip_grad_norm_(model.parameters(), scale * float(norm))
        optimizer.step()
        updates.append(flat(model) - before)
    assert difference(2 * updates[1], updates[0]) < 1e-5  # clip_grad_norm_ adds 1e-6 to the norm


def test_evaluation_passes_do_not_count() -> None:
    models = [small_net(), small_net()]
    optimizers = [kfac_over_sgd(model) for model in models]
    for data in steps(3):
        train(models[0], optimizers[0], [data])
        with torch.no_grad():
            models[1](data[0])
        models[1].eval()
        models[1](batch(99)[0])
        models[1].train()
        train(models[1], optimizers[1], [data])
    assert same_bits(*models)


def test_channels_last_gives_the_same_up_to_rounding() -> None:
    models = [small_net(), small_net().to(memory_format=torch.channels_last)]
    for model in models:
        train(model, kfac_over_sgd(model),
              ((images.contiguous(memory_format=torch.channels_last)
                if model is models[1] else images, labels) for images, labels in steps(3)))
    assert difference(flat(models[1]), flat(models[0])) < 1e-9


def test_frozen_layers_stay_and_are_no_part_of_it() -> None:
    model = small_net()
    for parameter in (*model.first.parameters(), model.out.bias):
        parameter.requires_grad_(False)
    before = copy.deepcopy(model)
    optimizer = kfac_over_sgd(model)
    assert optimizer.layers.names == ["second", "third", "out"]
    train(model, optimizer, steps(3))
    assert torch.equal(model.first.weight, before.first.weight)
    assert torch.equal(model.out.bias, before.out.bias)
    assert not torch.equal(model.out.weight, before.out.weight)


def test_uncovered_layers_are_listed_once_by_name() -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.PReLU(4), nn.Flatten(),
                          nn.Linear(4 * 16, 4))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        optimizer = spdkfac.SPDKFACOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
        train(model, optimizer, steps(2, dtype=torch.float32))
    texts = [str(each.message) for each in said if "spdkfac" in str(each.message)]
    assert texts == ["spdkfac: K-FAC covers 96.6% of the trained parameters; these keep their own gradient: "
                     "PReLU: 2"]


def test_skipped_layers_keep_their_gradient() -> None:
    model = small_net()
    optimizer = kfac_over_sgd(model, skip_layers=["^third$", "o.t"])
    assert optimizer.layers.names == ["first", "second"]


class Tied(nn.Module):
    """Two Linear layers of one weight; optionally an Embedding has it, too."""

    def __init__(self, embedding: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 5)
        self.left = nn.Linear(5, 5)
        self.right = nn.Linear(5, 5)
        self.right.weight = self.left.weight
        self.out = nn.Linear(5, 4)
        if embedding:
            self.embedding.weight = self.left.weight

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(self.right(torch.tanh(self.left(self.embedding(numbers))))))


def test_a_weight_shared_by_linear_layers_is_one_layer() -> None:
    model = Tied(embedding=False).double()
    optimizer = kfac_over_sgd(model)
    assert optimizer.layers.names == ["embedding", "left", "out"]
    numbers, labels = torch.arange(5), torch.tensor([0, 1, 2, 3, 0])
    before = float(nn.functional.cross_entropy(model(numbers), labels))
    for _ in range(10):
        train(model, optimizer, [(numbers, labels)])
    assert float(nn.functional.cross_entropy(model(numbers), labels)) < before


def test_a_weight_shared_with_an_embedding_is_a_linear_layer() -> None:
    optimizer = kfac_over_sgd(Tied(embedding=True))
    assert optimizer.layers.names == ["left", "out"]
    assert optimizer.layers.uncovered == {"Linear": ["left", "right"]}  # their biases differ


@pytest.mark.parametrize(("options", "message"), [
    ({"damping": -1}, "damping=-1; pass a finite number"),
    ({"damping_mode": "sqrt"}, "damping_mode=sqrt; pass one of plain, pi"),
    ({"convention": "x"}, "convention=x; pass one of kfc, paper, kfac-pytorch"),
    ({"running_average": 1.0}, "running_average=1"),
    ({"factor_interval": 0}, "factor_interval=0"),
    ({"algorithm": "nonsense"}, "nonsense"),
    ({"variant": {"fusion": "never"}}, "fusion"),
    ({"variant": {"colour": "red"}}, "colour"),
    ({"plan": "missing.json"}, "missing.json: cannot be read"),
    ({"log_level": "loud"}, "loud"),
    ({"damping": "small"}, r"damping='small' is of type str; pass one as the default, 0\.01"),
    ({"factor_interval": 1.5}, r"factor_interval=1\.5 is of type float"),
    ({"skip_layers": "conv"}, r"skip_layers='conv' is one string; pass a list"),
    ({"skip_layers": ["("]}, r"skip_layers has what is no regular expression"),
    ({"skip_layers": ["first", "frist"]}, r"skip_layers='frist' matches no layer"),
    ({"partial_layers": ["experts"]}, r"partial_layers='experts' matches no layer"),
    ({"others": 5}, r"others=5; pass an optimizer, or one of adamw, sgd"),
])
def test_mistakes_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(spdkfac.ConfigError, match=message):
        kfac_over_sgd(SmallNet(), **options)


def test_models_and_optimizers_that_cannot_be_are_named() -> None:
    with pytest.raises(ValueError, match="no trainable layer that K-FAC covers"):
        kfac_over_sgd(nn.BatchNorm2d(3))
    model = small_net()
    with pytest.raises(spdkfac.ConfigError, match="LBFGS cannot be wrapped"):
        spdkfac.SPDKFACOptimizer(torch.optim.LBFGS(model.parameters()), model)
    with pytest.raises(spdkfac.ConfigError, match="cannot be wrapped"):
        spdkfac.SPDKFACOptimizer(kfac_over_sgd(model), model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(spdkfac.ConfigError, match=r"SPDKFACOptimizer\(\w+, SGD\); pass an optimizer of torch first"):
        spdkfac.SPDKFACOptimizer(model, optimizer)  # type: ignore[arg-type]
    with pytest.raises(spdkfac.ConfigError, match="no parameter of a covered layer; make it from the parameters of"):
        spdkfac.SPDKFACOptimizer(optimizer, small_net())
    with pytest.raises(spdkfac.ConfigError, match="layer 0 is on the meta device; make the optimizer after to_empty"):
        kfac_over_sgd(nn.Sequential(nn.Linear(3, 2, device="meta")))


def test_layers_that_come_later_are_named() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    first = [*model[1].parameters(), *model[3].parameters()]
    optimizer = spdkfac.SPDKFACOptimizer(torch.optim.SGD(first, lr=0.1), model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.add_param_group({"params": model[2].parameters()})  # as it was said at the start
    model[0].requires_grad_(True)
    model.append(nn.Linear(2, 2))
    with pytest.warns(UserWarning, match="added or unfrozen later keep their own gradient: 0, 4; make the optimizer"):
        optimizer.add_param_group({"params": [*model[0].parameters(), *model[4].parameters()]})
    before = [parameter.detach().clone() for parameter in model.parameters()]
    model(torch.randn(3, 4)).square().mean().backward()
    optimizer.step()
    assert all(not torch.equal(*pair) for pair in zip(model.parameters(), before, strict=True))


def test_a_layer_that_changes_its_shape_is_named() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    _watching = kfac_over_sgd(model)
    model[1].weight.data, model[1].bias.data = torch.randn(3, 4), torch.zeros(3)
    with pytest.raises(RuntimeError, match=r"layer 1 is \[3, 4\], but was \[2, 4\] when the optimizer was made"):
        model(torch.randn(3, 4))


def test_first_order_algorithm_is_the_wrapped_optimizer() -> None:
    models = [small_net(), small_net()]
    train(models[0], torch.optim.SGD(models[0].parameters(), lr=0.05, momentum=0.9), steps(3))
    train(models[1], kfac_over_sgd(models[1], algorithm="sgd"), steps(3))
    assert same_bits(*models)


def test_a_discarded_batch_leaves_no_trace() -> None:
    models = [small_net(), small_net()]
    optimizers = [kfac_over_sgd(model) for model in models]
    loss_of(models[1], batch(50)).backward()
    optimizers[1].discard()
    for model, optimizer in zip(models, optimizers, strict=True):
        train(model, optimizer, steps(2))
    assert difference(flat(models[1]), flat(models[0])) < 1e-12


def test_two_optimizers_in_one_process_do_not_disturb_each_other() -> None:
    alone, first, second = small_net(), small_net(), small_net()
    train(alone, kfac_over_sgd(alone), steps(3))
    optimizers = [kfac_over_sgd(first), kfac_over_sgd(second)]
    for data in steps(3):
        train(first, optimizers[0], [data])
        train(second, optimizers[1], [data])
    assert same_bits(alone, first) and same_bits(alone, second)


def test_counters_memory_and_trace(tmp_path: object) -> None:
    model = small_net()
    optimizer = kfac_over_sgd(model, trace=True)
    train(model, optimizer, steps(2))
    assert optimizer.counters["steps"] == 2
    assert optimizer.counters["factor_updates"] == 2 * 2 * 4
    assert optimizer.memory["factors"] > 0
    assert optimizer.plan is not None and not optimizer.plan.messages
    assert optimizer.model_table is None and optimizer.sent_bytes == 0
    optimizer.write_trace(f"{tmp_path}/trace.json")


def test_nothing_is_left_behind_when_the_optimizer_goes() -> None:
    model = small_net()
    train(model, kfac_over_sgd(model), steps(1))
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), steps(1))
    train(model, kfac_over_sgd(model), steps(1))
