# SPDX-License-Identifier: Apache-2.0
"""Training steps as CUDA graphs."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from .device_rates import DeviceRates
from .errors import ConfigError
from .optimizer import SPDKFACOptimizer
from .scaling import calls_from_scaler
from .together import parts_of

# Of a group: what steps read on the GPU, or what only schedulers and couple_momentum look at.
_NOT_RECORDED = {"params", "lr", "initial_lr", "peak_lr", "full_momentum"}
_CHANGES = 3  # without a replay between them, before a warning
_SCALED = ("kfac: steps with a GradScaler cannot be recorded, since the host decides whether they count; use "
           "torch.autocast(…, dtype=torch.bfloat16), which needs none, or train without RecordedSteps")


class RecordedSteps:
    """Training steps of one process as CUDA graphs: the host starts one graph instead of thousands of kernels.

        def step():
            optimizer.zero_grad()
            loss = loss_function(model(images), labels)
            loss.backward()
            optimizer.step()
            return loss

        steps = spdkfac.RecordedSteps(optimizer, step)
        for next_images, next_labels in loader:
            images.copy_(next_images)
            labels.copy_(next_labels)
            loss = steps.run()
            scheduler.step()

    `step` reads its batch from tensors made outside, which are written in place, calls `optimizer.step()` once and
    must not wait for the GPU. Each kind of step (with new factors, with new inverses, without) runs as it is when
    it comes first, is recorded when it comes again, and replayed from then on. Learning rates may change between
    runs; when anything else changes, such as damping or weight decay, steps are recorded again. On the CPU `step`
    is called each time.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, step: Callable[[], torch.Tensor | None]) -> None:
        """Records nothing yet.

        Args:
            optimizer: An SPDKFACOptimizer, or any optimizer of torch.
            step: Trains one step, and returns a tensor, such as the loss, or nothing.
        """
        if not isinstance(optimizer, torch.optim.Optimizer) or not callable(step):
            raise ConfigError(f"kfac: RecordedSteps({type(optimizer).__name__}, {type(step).__name__}); pass an "
                              "optimizer, then a function that trains a step with it")
        self._optimizer, self._step = optimizer, step
        self._kfac = optimizer if isinstance(optimizer, SPDKFACOptimizer) else None
        self._plain = optimizer if self._kfac is None else self._kfac.optimizer
        self._device = self._checked()
        self._records = self._device.type == "cuda"
        self._rates: DeviceRates | None = None
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._warm: set[int] = set()
        self._result: torch.Tensor | None = None
        self._starts_in_a_row = 0
        self.forget()
        # What is loaded is in other memory.
        forget = weakref.WeakMethod(self.forget)
        for each in {optimizer, *parts_of(self._plain)}:
            each.register_load_state_dict_post_hook(lambda _: _call_if_there(forget))
        if self._records:
            self._stream = torch.cuda.Stream(self._device)

    def _checked(self) -> torch.device:
        """The device of the parameters."""
        if self._kfac is not None:
            self._kfac._kfac.require_recordable()
            if self._kfac.scaler is not None and self._kfac.scaler.is_enabled():
                raise ConfigError(_SCALED)
        elif dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            raise ConfigError(f"kfac: steps of {dist.get_world_size()} ranks cannot run as CUDA graphs; run them "
                              "without, or train on one rank")
        devices: set[torch.device] = {p.device for group in self._plain.param_groups for p in group["params"]}
        if len(devices) != 1:
            raise ConfigError(f"kfac: RecordedSteps needs all parameters on one device (they are on "
                              f"{', '.join(sorted(map(str, devices))) or 'none'}); move the model there, or train "
                              "without RecordedSteps")
        return devices.pop()

    def forget(self) -> None:
        """Records all kinds of steps again, after a change that cannot be seen from here: of the model, of `step`."""
        self._recorded_for: dict[Any, Any] | None = None

    def run(self) -> torch.Tensor | None:
        """Trains a step; what `step` returned, on a GPU in one tensor that each run writes."""
        if not self._records:
            with self._watched():
                result = self._step()
            return None if result is None else result.detach()
        if self._kfac is not None and self._kfac._coupled is not None:
            self._kfac._coupled.apply()
        self._rates = self._rates_now()
        self._rates.write()
        variant = 0 if self._kfac is None else self._kfac._kfac.variant
        if variant not in self._warm:
            self._run_as_it_is(self._rates)
            self._warm.add(variant)
            return self._result
        recorded = variant in self._graphs
        if not recorded:
            self._graphs[variant] = self._record(self._rates)
        self._graphs[variant].replay()
        self._starts_in_a_row = 0
        if recorded and self._kfac is not None:
            self._kfac._kfac.count_replayed_step(variant)
            self._kfac._eager.want(self._kfac._kfac.wants_calls)
        return self._result

    def _values(self) -> dict[Any, Any]:
        """What a recording holds, by name: where it differs, steps are recorded again."""
        values: dict[Any, Any] = {}
        for index, group in enumerate(self._plain.param_groups):
            for key, value in group.items():
                if key not in _NOT_RECORDED:
                    values[index, key] = _comparable(value)
            values[index, "params"] = [(p.data_ptr(), p.requires_grad) for p in group["params"]]
        if self._rates is not None:
            values["lr"] = self._rates.numbers
        if self._kfac is not None:
            options = self._kfac._kfac.options
            values["damping"], values["kl_clip"] = options.damping, options.kl_clip
            values["intervals"] = options.factor_interval, options.inverse_interval
        return values

    def _rates_now(self) -> DeviceRates:
        """After anything but a rate has changed, others; what was recorded is forgotten then."""
        values = self._values()
        if self._rates is not None and values == self._recorded_for:
            return self._rates
        self._say_what_changes(values)
        self._graphs, self._warm = {}, set()
        self._rates = DeviceRates(self._plain, self._device)
        self._recorded_for = self._values()
        return self._rates

    def _say_what_changes(self, values: dict[Any, Any]) -> None:
        before = self._recorded_for
        if before is None:
            return
        self._starts_in_a_row += 1
        if self._starts_in_a_row == _CHANGES:
            names = sorted({key if isinstance(key, str) else key[1] for key, value in values.items()
                            if before.get(key) != value})
            warnings.warn(f"spdkfac: steps are recorded again after each change of {', '.join(names)}, so that they "
                          "run as without RecordedSteps; change it rarely", stacklevel=4)

    def _run_as_it_is(self, rates: DeviceRates) -> None:
        """On the stream that records: autograd's nodes that outlive a step stay on theirs."""
        now = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(now)
        with torch.cuda.stream(self._stream):
            self._train(rates)
        now.wait_stream(self._stream)

    def _record(self, rates: DeviceRates) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        pool = next((each.pool() for each in self._graphs.values()), None)  # one for all
        before = self._memory_of_state()
        try:
            # The outer one brings the stream back where the inner one fails.
            with torch.cuda.stream(torch.cuda.current_stream(self._device)), \
                 torch.cuda.graph(graph, pool=pool, stream=self._stream, capture_error_mode="thread_local"):
                self._train(rates)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"kfac: the step cannot be recorded ({str(error).splitlines()[0]}); it must not wait "
                              "for the GPU: take .item(), float(), printing and a GradScaler out of it") from error
        if self._memory_of_state() != before:
            raise ConfigError("kfac: the optimizer made new state while a step was recorded, since a parameter had "
                              "its first gradient; train a step with all parameters before")
        return graph

    def _memory_of_state(self) -> set[int]:
        return {value.data_ptr() for part in parts_of(self._plain) for entry in part.state.values()
                for value in entry.values() if isinstance(value, torch.Tensor)}

    def _train(self, rates: DeviceRates) -> None:
        """Calls `step`, with rates on the GPU; its result goes where all results go."""
        kfac = None if self._kfac is None else self._kfac._kfac
        torch.clear_autocast_cache()  # of an autocast around run(): casts are part of the step
        try:
            if kfac is not None:
                kfac.set_rate(rates.largest)
            with self._watched(), rates.in_place():
                result = self._step()
        finally:
            if kfac is not None:
                kfac.set_rate(None)
            torch.clear_autocast_cache()
        if result is not None:
            self._keep(result)

    def _keep(self, result: torch.Tensor) -> None:
        fits = isinstance(result, torch.Tensor) and result.device == self._device
        if fits and self._result is None:
            self._result = result.detach().clone()
        elif not fits or self._result is None or result.shape != self._result.shape:
            raise ConfigError(f"kfac: a recorded step returned {_described(result)}; return a tensor on "
                              f"{self._device} whose shape is always the same, or nothing")
        else:
            self._result.copy_(result.detach())

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """What replays could not repeat is an error when the step runs as it is."""
        calls = 0

        def before(*_: Any) -> None:
            nonlocal calls
            calls += 1
            if calls_from_scaler():
                raise ConfigError(_SCALED)

        hook = self._optimizer.register_step_pre_hook(before)
        try:
            yield
        finally:
            hook.remove()
        if self._kfac is not None and calls != 1:
            raise ConfigError(f"kfac: a recorded step called optimizer.step() {calls} times; call it once")


def _comparable(value: Any) -> Any:
    """A tensor's value is read by the work itself, or changes with its version."""
    if isinstance(value, torch.Tensor):
        return id(value), value._version
    return tuple(value) if isinstance(value, list) else value


def _described(result: Any) -> str:
    if not isinstance(result, torch.Tensor):
        return f"a {type(result).__name__}"
    return f"a tensor of shape {tuple(result.shape)} on {result.device}"


def _call_if_there(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    if (found := method()) is not None:
        found()
