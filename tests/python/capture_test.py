# SPDX-License-Identifier: Apache-2.0
"""What counts as an example, and which passes count: factors against their definition."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from curvature import OPTIONS, joined_gradient, preconditioned, recorded
from devices import DEVICE
from nets import difference, flat, kfac_over_sgd
from torch import nn
from torch.utils.checkpoint import checkpoint

from spdkfac import ConfigError

pytestmark = [pytest.mark.skipif(DEVICE == "cuda", reason="formulas in double precision on the CPU"),
              pytest.mark.usefixtures("double_precision")]
EXAMPLES, STEPS, FEATURES, CLASSES = 6, 10, 4, 3


class Encoder(nn.Module):
    """An encoder layer, pooled over time, and a classifier."""

    def __init__(self, batch_first: bool, embed: bool = False) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embed = nn.Linear(FEATURES, FEATURES) if embed else nn.Identity()
        self.block = nn.TransformerEncoderLayer(FEATURES, 2, 5, dropout=0.0, batch_first=batch_first)
        self.head = nn.Linear(FEATURES, CLASSES)
        self.batch_first = batch_first

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        """Of [examples, steps, features], whatever the layer wants."""
        if not self.batch_first:
            sequences = sequences.transpose(0, 1)
        return self.head(self.block(self.embed(sequences)).mean(1 if self.batch_first else 0))


def sequences(examples: int = EXAMPLES, seed: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(examples, STEPS, FEATURES, generator=generator),
            torch.randint(CLASSES, (examples,), generator=generator))


def stepped(model: nn.Module, loss: Callable[[nn.Module], torch.Tensor], count: int = 1,
            **options: Any) -> torch.Tensor:
    """The parameters after some steps."""
    optimizer = kfac_over_sgd(model, **{**OPTIONS, **options})
    for _ in range(count):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()
    return flat(model)


def class_loss(model: nn.Module) -> torch.Tensor:
    inputs, labels = sequences()
    return nn.functional.cross_entropy(model(inputs), labels)


def square_loss(model: nn.Module) -> torch.Tensor:
    return model(sequences()[0]).square().sum(1).mean()


def expect_updates(model: nn.Module, loss: Callable[[nn.Module], torch.Tensor],
                   layers: list[str], count: int = EXAMPLES, *, terms: int | None = None,
                   partial: tuple[str, ...] = (), **options: Any) -> None:
    """The first update of these layers is what the definition of the factors says."""
    reference = copy.deepcopy(model)
    with recorded() as calls:
        loss(reference).backward()
    stepped(model, loss, **options)
    for name in layers:
        before, after = reference.get_submodule(name), model.get_submodule(name)
        a, g = calls.factors(before, count, terms, partial=name in partial)
        expected = preconditioned(a, g, joined_gradient(before))
        change = torch.cat([before.weight - after.weight]
                           + ([(before.bias - after.bias)[:, None]] if before.bias is not None
                              else []), dim=1)
        assert difference(change, expected) < 1e-9, name


# --- the number of examples ---


@pytest.mark.parametrize("embed", [False, True])
def test_batch_first_and_time_first_give_the_same_updates(embed: bool) -> None:
    first = stepped(Encoder(True, embed), class_loss, count=3)
    second = stepped(Encoder(False, embed), class_loss, count=3)
    assert difference(second, first) < 1e-9


def test_batch_first_and_time_first_agree_with_a_number_of_examples() -> None:
    updates = [stepped(Encoder(batch_first), square_loss, count=3, examples=EXAMPLES)
               for batch_first in (True, False)]
    assert difference(updates[1], updates[0]) < 1e-9


@pytest.mark.parametrize("batch_first", [True, False])
def test_layers_of_an_encoder_have_the_factors_of_their_definition(batch_first: bool) -> None:
    expect_updates(Encoder(batch_first), class_loss,
                   ["block.self_attn.out_proj", "block.linear1", "block.linear2", "head"])


class Windows(nn.Module):
    """As in Swin: tokens are regrouped as [examples · windows, tokens, features]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.embed = nn.Linear(FEATURES, FEATURES)
        self.inner = nn.Linear(FEATURES, FEATURES)
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        windows = torch.tanh(self.embed(inputs)).reshape(-1, 2, FEATURES)
        return self.head(torch.tanh(self.inner(windows)).reshape(inputs.shape).mean(1))


def test_layers_on_windows_count_the_examples_of_the_batch() -> None:
    expect_updates(Windows(), class_loss, ["embed", "inner", "head"])


class Table(nn.Module):
    """As in Swin v2: a small network makes a table of biases from constant coordinates."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(10)
        self.embed = nn.Linear(FEATURES, FEATURES)
        self.biases = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, FEATURES))
        self.head = nn.Linear(FEATURES, CLASSES)
        self.register_buffer("coordinates", torch.randn(7, 2))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head((self.embed(inputs) + self.biases(self.coordinates).mean(0)).tanh().mean(1))


def test_a_table_from_constants_has_its_rows_as_examples() -> None:
    table = ("biases.0", "biases.2")
    expect_updates(Table(), class_loss, ["embed", *table, "head"], partial=table, terms=EXAMPLES)


class Branches(nn.Module):
    """A second branch on an input of its own, or on a parameter."""

    def __init__(self, side: torch.Tensor | nn.Parameter) -> None:
        super().__init__()
        torch.manual_seed(12)
        self.embed = nn.Linear(FEATURES, FEATURES)
        self.side = nn.Linear(2, FEATURES)
        self.head = nn.Linear(FEATURES, CLASSES)
        if isinstance(side, nn.Parameter):
            self.table = side
        self.held = [side]  # a list hides a plain tensor from the model

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head((self.embed(inputs) + self.side(self.held[0]).flatten(0, -2).mean(0)).tanh().mean(1))


def test_a_table_that_is_a_parameter_has_its_rows_as_examples() -> None:
    expect_updates(Branches(nn.Parameter(torch.randn(7, 2))), class_loss, ["embed", "side", "head"],
                   partial=("side",), terms=EXAMPLES)


def test_a_grid_for_all_examples_has_its_rows_as_examples() -> None:
    expect_updates(Branches(torch.randn(1, 7, 2)), class_loss, ["embed", "side", "head"], partial=("side",),
                   terms=EXAMPLES)


class Queries(nn.Module):
    """As in a Perceiver: the first call of a pass is on learned queries."""

    def __init__(self, rows: int, kind: str) -> None:
        super().__init__()
        torch.manual_seed(13)
        self.queries = nn.Linear(FEATURES, FEATURES)
        self.keys, self.head = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, CLASSES)
        latents = torch.randn(rows, FEATURES)
        if kind == "buffer":
            self.register_buffer("latents", latents)
        else:
            self.latents = nn.Parameter(latents)
        self.kind = kind

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        latents = self.latents.unsqueeze(0) if self.kind == "reshaped" else self.latents
        if self.kind == "normalised":
            latents = nn.functional.layer_norm(latents, (FEATURES,))
        queries, keys = self.queries(latents), self.keys(inputs)
        return self.head((torch.softmax(queries @ keys.transpose(1, 2), -1) @ keys).mean(1))


@pytest.mark.parametrize("kind", ["parameter", "buffer", "reshaped", "normalised"])
@pytest.mark.parametrize("rows", [7, 2 * EXAMPLES])  # both are other than the examples of the batch
def test_queries_before_the_examples_do_not_count_as_examples(rows: int, kind: str) -> None:
    expect_updates(Queries(rows, kind), class_loss, ["queries", "keys", "head"], partial=("queries",),
                   terms=EXAMPLES)


class Looked(nn.Module):
    """Tokens are looked up in a parameter: they are examples."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(14)
        self.embed = nn.Embedding(9, FEATURES)
        self.inner, self.head = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.inner(self.embed(tokens))).mean(1))


def test_what_is_looked_up_in_a_table_are_examples() -> None:
    tokens = torch.arange(EXAMPLES * STEPS).reshape(EXAMPLES, STEPS) % 9
    labels = torch.arange(EXAMPLES) % CLASSES
    expect_updates(Looked(), lambda model: nn.functional.cross_entropy(model(tokens), labels),
                   ["inner", "head"])


@pytest.mark.parametrize("with_gradient", [False, True])
def test_a_second_branch_whose_rows_examples_do_not_divide_names_the_layer(
        with_gradient: bool) -> None:
    # 7 rows of data that are no multiple of 6 examples: nobody knows what they are.
    side = torch.randn(7, 2)
    if with_gradient:
        side = side.requires_grad_() * 1.0
    with pytest.raises((ConfigError, RuntimeError), match="layer side has 7 rows in a pass of 6"):
        stepped(Branches(side), class_loss)


@pytest.mark.parametrize("shape", [(0, FEATURES), (0, STEPS, FEATURES), (STEPS, 0, FEATURES)])
def test_an_empty_batch_changes_nothing(shape: tuple[int, ...]) -> None:
    """As the last one of a rank may be: factors are those of the batches around it."""
    updates = []
    for empty in (False, True):
        model = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.Tanh(), nn.Linear(FEATURES, CLASSES))
        for number, parameter in enumerate(model.parameters()):
            nn.init.constant_(parameter, 0.1 * (number + 1))
        optimizer = kfac_over_sgd(model, **OPTIONS)
        for step in range(3):
            inputs = sequences(seed=step)[0]
            if len(shape) == 2:
                inputs = inputs[:, 0]
            if empty and step != 1:  # before the first batch, too
                optimizer.zero_grad()
                model(torch.empty(shape)).square().sum().backward()
                optimizer.step()
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
        updates.append(flat(model))
        assert optimizer.counters["layers_without_factors"] == 0
        assert optimizer.counters["factor_updates"] == 3 * 4
    assert torch.equal(*updates)


class Tokens(nn.Module):
    """A class for each token."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.first = nn.Linear(FEATURES, FEATURES)
        self.last = nn.Linear(FEATURES, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.first(inputs)))


def token_loss(model: nn.Module) -> torch.Tensor:
    labels = torch.arange(EXAMPLES * STEPS) % CLASSES
    return nn.functional.cross_entropy(model(sequences()[0]).reshape(-1, CLASSES), labels)


@pytest.mark.parametrize(("examples", "count"), [
    (None, EXAMPLES), ("tokens", EXAMPLES * STEPS), (EXAMPLES * STEPS, EXAMPLES * STEPS),
    (lambda inputs: inputs.shape[0] * inputs.shape[1], EXAMPLES * STEPS)])
def test_token_losses_have_as_many_terms_as_the_option_says(examples: Any, count: int) -> None:
    expect_updates(Tokens(), token_loss, ["first", "last"], count, examples=examples)


def test_a_number_of_examples_that_does_not_divide_rows_names_the_layer() -> None:
    with pytest.raises((ConfigError, RuntimeError),
                       match=r"layer embed .* 60 rows.* 7 examples.*examples=.*partial_layers="):
        stepped(Windows(), class_loss, examples=7)
    for bad in (0, "words", 1.5):
        with pytest.raises((ConfigError, RuntimeError), match="examples="):
            stepped(Windows(), class_loss, examples=bad)


class Experts(nn.Module):
    """Two experts, each for some of the examples."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(8)
        self.first = nn.Linear(FEATURES, FEATURES)
        self.experts = nn.ModuleList(nn.Linear(FEATURES, FEATURES) for _ in range(2))
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(inputs))
        taken = torch.arange(len(inputs)) % 3 == 0
        mixed = torch.empty_like(hidden)
        mixed[taken] = self.experts[0](hidden[taken])
        mixed[~taken] = self.experts[1](hidden[~taken])
        return self.head(torch.tanh(mixed))


def expert_loss(model: nn.Module) -> torch.Tensor:
    inputs, labels = sequences()
    return nn.functional.cross_entropy(model(inputs[:, 0]), labels)


def test_experts_count_their_own_rows() -> None:
    experts = ("experts.0", "experts.1")
    expect_updates(Experts(), expert_loss, ["first", *experts, "head"], partial=experts,
                   terms=EXAMPLES, partial_layers=[r"^experts\."])
    with pytest.raises((ConfigError, RuntimeError), match=r"layer experts\.0 .* 2 rows.*6 examples"):
        stepped(Experts(), expert_loss)


# --- which passes count ---


def test_a_sum_loss_is_an_option() -> None:
    def sum_loss(model: nn.Module) -> torch.Tensor:
        inputs, labels = sequences()
        return nn.functional.cross_entropy(model(inputs), labels, reduction="sum")

    expect_updates(Windows(), sum_loss, ["embed", "inner", "head"], EXAMPLES, terms=1,
                   loss_reduction="sum")
    with pytest.raises(ConfigError, match="loss_reduction=median"):
        stepped(Windows(), class_loss, loss_reduction="median")


def test_two_backward_passes_through_one_graph_are_refused() -> None:
    model = Windows()
    optimizer = kfac_over_sgd(model, **OPTIONS)
    loss = class_loss(model)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match=r"second backward pass.*add the losses"):
        (2 * loss).backward()
    del optimizer


def test_gradients_of_another_scalar_do_not_count() -> None:
    def with_penalty(model: nn.Module, probe: bool) -> torch.Tensor:
        inputs, labels = sequences()
        inputs.requires_grad_()
        outputs = model(inputs)
        if probe:  # neither accumulates into a weight
            torch.autograd.grad(outputs.square().sum(), inputs, retain_graph=True)
            torch.autograd.grad(outputs.sum(), model.head.weight, retain_graph=True)
        return nn.functional.cross_entropy(outputs, labels)

    plain = stepped(Windows(), lambda model: with_penalty(model, False), count=2)
    probed = stepped(Windows(), lambda model: with_penalty(model, True), count=2)
    assert torch.equal(probed, plain)
    expect_updates(Windows(), lambda model: with_penalty(model, True), ["embed", "inner", "head"])


def test_a_gradient_penalty_reaches_g_with_the_pass_that_accumulates() -> None:
    def penalty(model: nn.Module) -> torch.Tensor:
        inputs, labels = sequences()
        inputs.requires_grad_()
        outputs = model(inputs)
        slope, = torch.autograd.grad(outputs.sum(), inputs, create_graph=True)
        return nn.functional.cross_entropy(outputs, labels) + slope.square().sum() / EXAMPLES

    expect_updates(Windows(), penalty, ["embed", "inner", "head"])


def test_a_graph_that_is_kept_over_a_step_is_refused() -> None:
    model = Windows()
    optimizer = kfac_over_sgd(model, **OPTIONS)
    kept = model.embed(sequences()[0])
    class_loss(model).backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match=r"earlier step.*detach"):
        model.head(kept.mean(1)).square().mean().backward()


class Checkpointed(nn.Module):
    """Blocks that are computed again in the backward pass."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        torch.manual_seed(9)
        self.embed = nn.Linear(FEATURES, FEATURES)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(FEATURES, 2, 5, dropout=0.0, batch_first=True)
            for _ in range(2))
        self.head = nn.Linear(FEATURES, CLASSES)
        self.mode = mode

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.mode == "all":  # no layer has a call outside
            inputs.requires_grad_()
            hidden = checkpoint(self.embed, inputs, use_reentrant=True)
            hidden = checkpoint(self.blocks[0], hidden, use_reentrant=True)
            hidden = checkpoint(self.blocks[1], hidden, use_reentrant=True)
            return checkpoint(self.head, hidden.mean(1), use_reentrant=True)
        hidden = self.embed(inputs)
        if self.mode == "nested":
            hidden = checkpoint(self.outer, hidden, use_reentrant=False)
        else:
            for block in self.blocks:
                hidden = self.run(block, hidden)
        return self.head(hidden.mean(1))

    def outer(self, hidden: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            hidden = checkpoint(block, hidden, use_reentrant=False)
        return hidden

    def run(self, block: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
        if self.mode == "none":
            return block(hidden)
        return checkpoint(block, hidden, use_reentrant=self.mode == "reentrant")


@pytest.mark.parametrize("mode", ["not reentrant", "reentrant", "nested", "all"])
def test_activation_checkpointing_changes_nothing(mode: str) -> None:
    plain = stepped(Checkpointed("none"), class_loss, count=3)
    again = stepped(Checkpointed(mode), class_loss, count=3)
    assert difference(again, plain) < 1e-12


def test_an_activation_in_place_changes_nothing() -> None:
    class Perceptron(nn.Module):
        def __init__(self, inplace: bool) -> None:
            super().__init__()
            torch.manual_seed(4)
            self.layers = nn.Sequential(nn.Linear(FEATURES, 7), nn.ReLU(inplace), nn.Linear(7, 5),
                                        nn.ReLU(inplace), nn.Linear(5, CLASSES))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.layers(inputs).mean(1)

    apart, in_place = (stepped(Perceptron(inplace), class_loss, count=3) for inplace in (False, True))
    assert difference(in_place, apart) < 1e-12
    expect_updates(Perceptron(False), class_loss, ["layers.0", "layers.2", "layers.4"])


def test_a_bias_without_a_gradient_is_left_alone() -> None:
    class Half(Windows):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            hidden = nn.functional.linear(inputs, self.embed.weight)  # its bias is not used
            return self.head(torch.tanh(hidden).mean(1))

    model = Half()
    before = model.embed.bias.detach().clone()
    stepped(model, class_loss, count=2)
    assert torch.equal(model.embed.bias, before)
    assert bool(flat(model).isfinite().all())


# --- gradients that were thrown away ---


def discriminator() -> nn.Module:
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(FEATURES, 5), nn.Tanh(), nn.Linear(5, 1))


def generator() -> nn.Module:
    torch.manual_seed(12)
    return nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, FEATURES))


def bce(scores: torch.Tensor, target: float) -> torch.Tensor:
    return nn.functional.binary_cross_entropy_with_logits(scores, torch.full_like(scores, target))


def trained_discriminator(*, through_it: bool, clear: str) -> tuple[torch.Tensor, int]:
    """After some iterations; the generator's loss goes through it, or through a copy."""
    judge, maker = discriminator(), generator()
    optimizer = kfac_over_sgd(judge, **{**OPTIONS, "lr": 0.05})
    other = torch.optim.SGD(maker.parameters(), lr=0.05)
    noise = torch.Generator().manual_seed(13)
    for _ in range(4):
        if clear == "module":
            judge.zero_grad()
        else:
            optimizer.zero_grad(set_to_none=clear != "zeros")
        real = torch.randn(EXAMPLES, FEATURES, generator=noise)
        fake = maker(torch.randn(EXAMPLES, 2, generator=noise))
        (bce(judge(real), 1) / 2).backward()
        (bce(judge(fake.detach()), 0) / 2).backward()
        optimizer.step()
        other.zero_grad()
        bce((judge if through_it else copy.deepcopy(judge))(fake), 1).backward()
        other.step()
    return flat(judge), optimizer.counters["factor_updates"]


@pytest.mark.parametrize("clear", ["module", "optimizer", "zeros"])
def test_a_generators_pass_is_not_in_the_discriminators_factors(clear: str) -> None:
    parameters, updates = trained_discriminator(through_it=True, clear=clear)
    expected, expected_updates = trained_discriminator(through_it=False, clear=clear)
    assert difference(parameters, expected) < 1e-12
    assert updates == expected_updates


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_thrown_away_behind_the_forward_pass_are_refused(set_to_none: bool) -> None:
    judge = discriminator()
    optimizer = kfac_over_sgd(judge, **OPTIONS)
    inputs = torch.randn(EXAMPLES, FEATURES)
    bce(judge(inputs), 1).backward()
    loss = bce(judge(inputs), 0)
    optimizer.zero_grad(set_to_none=set_to_none)
    with pytest.raises(RuntimeError, match=r"zero_grad\(\) before the forward pass"):
        loss.backward()


def test_zero_grad_between_forward_and_backward_is_as_good_as_before() -> None:
    def updated(late: bool) -> torch.Tensor:
        model = Windows()
        optimizer = kfac_over_sgd(model, **OPTIONS)
        for _ in range(3):
            if not late:
                optimizer.zero_grad()
            loss = class_loss(model)
            if late:
                optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return flat(model)

    assert torch.equal(updated(True), updated(False))
