# SPDX-License-Identifier: Apache-2.0
"""RecordedSteps beside plain loops. On the CPU there is nothing to record, so what happens there on a GPU is played."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from devices import DEVICE
from nets import Batch, SmallNet, batch, difference, flat, kfac_over_sgd, loss_of, small_net
from torch import nn

import spdkfac
from spdkfac.recorded import RecordedSteps

STEPS = 30
ON_GPU = DEVICE == "cuda"
# Recorded steps of SGD have their rate in 32 bits.
TOLERANCE = 1e-5 if ON_GPU else 0.0


class Run:
    """A network in training on what `images` and `labels` hold at the moment."""

    def __init__(self, make: Callable[[nn.Module], torch.optim.Optimizer]) -> None:
        self.model: SmallNet = small_net()
        self.optimizer = make(self.model)
        self.images, self.labels = batch(0)
        self.calls = 0

    def take(self, data: Batch) -> None:
        self.images.copy_(data[0])
        self.labels.copy_(data[1])

    def step(self) -> torch.Tensor:
        self.calls += 1
        self.optimizer.zero_grad()
        loss = loss_of(self.model, (self.images, self.labels))
        loss.backward()
        self.optimizer.step()
        return loss


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)


def two_groups(model: nn.Module) -> torch.optim.Optimizer:
    first, *others = model.parameters()
    return torch.optim.SGD([{"params": [first], "lr": 0.02}, {"params": others}], lr=0.1, nesterov=True, momentum=0.9)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def kfac_alone(model: nn.Module) -> torch.optim.Optimizer:
    return kfac_over_sgd(model, factor_interval=2, inverse_interval=6)


def quiet(optimizer: torch.optim.Optimizer, model: nn.Module, **options: Any) -> spdkfac.SPDKFACOptimizer:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="spdkfac: K-FAC covers")
        return spdkfac.SPDKFACOptimizer(optimizer, model, **{"interval": "fixed", "factor_interval": 2,
                                                             "inverse_interval": 6, **options})


def kfac_over(make: Callable[[nn.Module], torch.optim.Optimizer],
              **options: Any) -> Callable[[nn.Module], torch.optim.Optimizer]:
    return lambda model: quiet(make(model), model, **options)


OPTIMIZERS = {
    "sgd": sgd,
    "two_groups": two_groups,
    "adamw": adamw,
    "kfac_with_kl_clip": kfac_alone,
    "kfac_grafted_on_sgd": kfac_over(sgd),
    "kfac_grafted_on_adamw": kfac_over(adamw),
    "kfac_with_growing_intervals": kfac_over(sgd, interval="auto", factor_interval=2, inverse_interval=6),
    "kfac_and_adamw_for_others": kfac_over(sgd, others="adamw"),
}


def train_both(plain: Run, recorded: Run, steps: RecordedSteps, count: int = STEPS,
               change: Callable[[torch.optim.Optimizer], None] | None = None) -> list[tuple[float, float]]:
    """With a rate that changes in each step, and something else before step 15; both losses of each step."""
    schedules = [torch.optim.lr_scheduler.LambdaLR(run.optimizer, lambda step: 1 / (1 + 0.1 * step))
                 for run in (plain, recorded)]
    losses = []
    for number in range(count):
        if number == 15 and change is not None:
            for run in (plain, recorded):
                change(run.optimizer)
        for run in (plain, recorded):
            run.take(batch(number))
        expected, loss = plain.step(), steps.run()
        assert loss is not None
        losses.append((float(expected.detach()), float(loss)))
        for schedule in schedules:
            schedule.step()
    return losses


def assert_same(plain: Run, recorded: Run, tolerance: float = TOLERANCE) -> None:
    assert difference(flat(recorded.model), flat(plain.model)) <= tolerance
    expected, state = plain.optimizer.state_dict(), recorded.optimizer.state_dict()
    assert state["state"].keys() == expected["state"].keys()
    for number, entry in expected["state"].items():
        assert state["state"][number].keys() == entry.keys()
        for key, value in entry.items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(state["state"][number][key].cpu(), value.cpu(),
                                           rtol=100 * tolerance, atol=10 * tolerance)
    for group, other in zip(state["param_groups"], expected["param_groups"], strict=True):
        assert {**group, "capturable": None} == {**other, "capturable": None}
    if isinstance(plain.optimizer, spdkfac.SPDKFACOptimizer):
        assert isinstance(recorded.optimizer, spdkfac.SPDKFACOptimizer)
        assert recorded.optimizer.counters == plain.optimizer.counters


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_trains_as_a_plain_loop(name: str) -> None:
    plain, recorded = Run(OPTIMIZERS[name]), Run(OPTIMIZERS[name])

    def change(optimizer: torch.optim.Optimizer) -> None:
        if isinstance(optimizer, spdkfac.SPDKFACOptimizer):
            optimizer.damping *= 2
        else:
            optimizer.param_groups[0]["weight_decay"] = 0.02

    steps = RecordedSteps(recorded.optimizer, recorded.step)
    for expected, loss in train_both(plain, recorded, steps, change=change):
        assert loss == pytest.approx(expected, rel=10 * TOLERANCE, abs=0)
    assert_same(plain, recorded)
    if not ON_GPU:
        assert recorded.calls == STEPS
    elif name in ("sgd", "two_groups", "adamw"):
        assert recorded.calls == 4, "as it is, and recorded; again after the change"
    else:
        assert recorded.calls < STEPS


def test_returns_one_tensor_on_a_gpu() -> None:
    run = Run(sgd)
    steps = RecordedSteps(run.optimizer, run.step)
    results = [steps.run() for _ in range(4)]
    assert all(one is not None and not one.requires_grad for one in results)
    assert (results[0] is results[3]) == ON_GPU
    assert RecordedSteps(run.optimizer, lambda: run.step() and None).run() is None


def test_continues_beside_steps_as_they_are_and_after_a_state_was_loaded() -> None:
    plain, recorded = Run(kfac_alone), Run(kfac_alone)
    steps = RecordedSteps(recorded.optimizer, recorded.step)
    train_both(plain, recorded, steps, 14)
    for run in (plain, recorded):  # the last batch of an epoch
        run.optimizer.zero_grad()
        loss_of(run.model, batch(50, examples=3)).backward()
        run.optimizer.step()
        model, state = copy.deepcopy(run.model.state_dict()), copy.deepcopy(run.optimizer.state_dict())
        run.step()
        run.model.load_state_dict(model)
        run.optimizer.load_state_dict(state)
    train_both(plain, recorded, steps, 14)
    assert_same(plain, recorded)


@pytest.mark.skipif(not ON_GPU, reason="autocast of a GPU")
@pytest.mark.parametrize("around", [False, True])
def test_records_bfloat16(around: bool) -> None:
    def make_step(run: Run) -> Callable[[], torch.Tensor]:
        def step() -> torch.Tensor:
            run.optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = loss_of(run.model, (run.images, run.labels))
            loss.backward()
            run.optimizer.step()
            return loss
        return step

    plain, recorded = Run(kfac_over(sgd)), Run(kfac_over(sgd))
    for run in (plain, recorded):
        run.images = run.images.float()
        run.model.float()
        run.optimizer = kfac_over(sgd)(run.model)
    plain_step, steps = make_step(plain), RecordedSteps(recorded.optimizer, make_step(recorded))
    for number in range(14):
        for run in (plain, recorded):
            run.take(batch(number, dtype=torch.float32))
        plain_step()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=around):  # its cache must not reach into a recording
            steps.run()
    assert difference(flat(recorded.model), flat(plain.model)) < 0.05


class Played(RecordedSteps):
    """What happens on a GPU, played on the CPU: a graph is the step once more, with the rates of its groups."""

    def __init__(self, optimizer: torch.optim.Optimizer, step: Callable[[], torch.Tensor | None]) -> None:
        super().__init__(optimizer, step)
        self._records = True
        self.recordings = 0

    def _run_as_it_is(self, rates: Any) -> None:
        self._train(rates)

    def _record(self, rates: Any) -> Any:
        self.recordings += 1

        class Graph:
            def replay(inner) -> None:  # noqa: N805
                self._train(rates)

        return Graph()


class Eager(Played):
    """Never replays, so that K-FAC counts its own steps."""

    def run(self) -> torch.Tensor | None:
        self._warm = set()
        return super().run()


needs_cpu = pytest.mark.skipif(ON_GPU, reason="plays a GPU on the CPU")


@needs_cpu
def test_a_changed_rate_is_followed_and_nothing_is_recorded_again() -> None:
    for make in (sgd, two_groups):
        plain, recorded = Run(make), Run(make)
        steps = Played(recorded.optimizer, recorded.step)
        train_both(plain, recorded, steps)
        assert steps.recordings == 1
        assert_same(plain, recorded, 1e-6)
        assert isinstance(recorded.optimizer.param_groups[0]["lr"], float)


@needs_cpu
@pytest.mark.parametrize("options", [{}, {"couple_momentum": True}, {"preset": "cnn"}])
def test_kfac_goes_by_the_rate_of_the_gpu(options: dict[str, Any]) -> None:
    def make(model: nn.Module) -> torch.optim.Optimizer:
        return kfac_over_sgd(model, interval="fixed", factor_interval=2, inverse_interval=6, **options)

    plain, recorded = Run(make), Run(make)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="spdkfac: steps are recorded again")  # coupled momentum
        train_both(plain, recorded, Eager(recorded.optimizer, recorded.step))
    assert_same(plain, recorded, 1e-5)


@needs_cpu
def test_a_rate_of_zero_counts_as_a_step() -> None:
    run = Run(kfac_alone)
    steps = Eager(run.optimizer, run.step)
    before = flat(run.model)
    run.optimizer.param_groups[0]["lr"] = 0.0
    steps.run()
    assert torch.equal(flat(run.model), before)
    assert isinstance(run.optimizer, spdkfac.SPDKFACOptimizer)
    assert run.optimizer.counters["steps"] == 1


@needs_cpu
def test_records_again_what_a_recording_holds() -> None:
    run = Run(sgd)
    steps = Played(run.optimizer, run.step)

    def recordings_after(change: Callable[[], Any]) -> int:
        change()
        before = steps.recordings
        for _ in range(3):
            steps.run()
        return steps.recordings - before

    group = run.optimizer.param_groups[0]
    assert recordings_after(lambda: None) == 1
    assert recordings_after(lambda: None) == 0
    assert recordings_after(lambda: group.update(lr=0.3)) == 0
    assert recordings_after(lambda: group.update(weight_decay=0.1)) == 1
    assert recordings_after(lambda: group.update(momentum=0.5)) == 1
    assert recordings_after(lambda: run.model.first.weight.requires_grad_(False)) == 1
    assert recordings_after(lambda: run.optimizer.load_state_dict(run.optimizer.state_dict())) == 1
    assert recordings_after(steps.forget) == 1


@needs_cpu
def test_records_again_for_each_rate_of_an_optimizer_that_needs_a_number() -> None:
    def make(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adagrad(model.parameters(), lr=0.05)

    plain, recorded = Run(make), Run(make)
    steps = Played(recorded.optimizer, recorded.step)
    with pytest.warns(UserWarning, match="recorded again after each change of lr"):
        train_both(plain, recorded, steps, 6)
    assert steps.recordings == 0
    assert_same(plain, recorded, 0.0)


@needs_cpu
def test_damping_of_kfac_is_recorded_again() -> None:
    run = Run(kfac_over(sgd, factor_interval=1))
    optimizer = run.optimizer
    assert isinstance(optimizer, spdkfac.SPDKFACOptimizer)
    steps = Eager(optimizer, run.step)
    steps.run()
    first = steps._rates
    steps.run()
    assert steps._rates is first
    optimizer.damping *= 2
    steps.run()
    assert steps._rates is not first


@needs_cpu
def test_a_replayed_step_counts_as_the_recorded_one() -> None:
    run = Run(kfac_over(sgd, factor_interval=1, inverse_interval=1))
    assert isinstance(run.optimizer, spdkfac.SPDKFACOptimizer)
    for _ in range(2):
        run.step()
    before = run.optimizer.counters
    core = run.optimizer._kfac
    core.count_replayed_step(core.variant)
    replayed = run.optimizer.counters
    run.step()
    after = run.optimizer.counters
    assert {name: after[name] - replayed[name] for name in after} == {
        name: replayed[name] - before[name] for name in after}
    assert replayed["steps"] == 3 and replayed["inverse_updates"] > before["inverse_updates"]


@needs_cpu
def test_a_rate_must_not_change_inside_a_step() -> None:
    run = Run(sgd)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(run.optimizer, 0.5)

    def step() -> None:
        run.step()
        scheduler.step()

    with pytest.raises(spdkfac.ConfigError, match=r"scheduler\.step\(\) after steps\.run\(\)"):
        Played(run.optimizer, step).run()
    assert isinstance(run.optimizer.param_groups[0]["lr"], float)


@needs_cpu
def test_results_have_one_shape() -> None:
    run = Run(sgd)
    shapes = iter([(), (2,)])

    def step() -> torch.Tensor:
        run.step()
        return torch.zeros(next(shapes))

    steps = Played(run.optimizer, step)
    steps.run()
    with pytest.raises(spdkfac.ConfigError, match=r"a tensor of shape \(2,\) on cpu"):
        steps.run()


@pytest.mark.parametrize("options, text", [
    ({"interval": "adaptive"}, "adaptive intervals"),
    ({"spread_refreshes": True}, "spread_refreshes"),
    ({"lm_damping": True, "graft": "none"}, "lm_damping"),
    ({"trace": True}, "options.trace"),
    ({"solver": "ekfac"}, "solver=ekfac"),
    ({"scaler": torch.amp.GradScaler(DEVICE)}, "GradScaler"),
])
def test_refuses_what_the_host_decides(options: dict[str, Any], text: str) -> None:
    if options.get("interval") == "adaptive":
        options = {**options, "factor_interval": None, "inverse_interval": None}
    run = Run(kfac_over(sgd, **options))
    with pytest.raises(spdkfac.ConfigError, match=text):
        RecordedSteps(run.optimizer, run.step)


def test_refuses_a_scaler_in_a_loop_without_kfac() -> None:
    run = Run(sgd)
    scaler = torch.amp.GradScaler(DEVICE)

    def step() -> None:
        run.optimizer.zero_grad()
        scaler.scale(loss_of(run.model, (run.images, run.labels))).backward()
        scaler.step(run.optimizer)
        scaler.update()

    with pytest.raises(spdkfac.ConfigError, match="GradScaler"):
        RecordedSteps(run.optimizer, step).run()


def test_names_other_mistakes() -> None:
    run = Run(kfac_alone)
    with pytest.raises(spdkfac.ConfigError, match="pass an optimizer, then a function"):
        RecordedSteps(run.model, run.step)  # type: ignore[arg-type]
    with pytest.raises(spdkfac.ConfigError, match="called optimizer.step\\(\\) 2 times"):
        RecordedSteps(run.optimizer, lambda: (run.step(), run.step())[0]).run()


@pytest.mark.skipif(not ON_GPU, reason="waits for a GPU")
def test_a_step_that_waits_is_refused_and_the_stream_comes_back() -> None:
    run = Run(sgd)
    before = torch.cuda.current_stream()

    def step() -> None:
        print(float(run.step()))

    steps = RecordedSteps(run.optimizer, step)
    steps.run()
    with pytest.raises(spdkfac.ConfigError, match="must not wait for the GPU"):
        steps.run()
    assert torch.cuda.current_stream() == before
    with pytest.raises(spdkfac.ConfigError, match="on cpu; return a tensor on cuda"):
        RecordedSteps(run.optimizer, lambda: run.step().cpu()).run()
