# SPDX-License-Identifier: Apache-2.0
"""The line that a user adds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch._compile import _disable_dynamo
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel

from . import _core
from . import state as kfac_state
from .arguments import check_arguments
from .errors import ConfigError
from .compiled import EagerCode
from .large_batch import BoundedWeights, CoupledMomentum, rescaled_layers
from .layers import CoveredLayers, covered_layers, reject_hidden
from .plan_choice import plan_options, plan_source
from .planning import Cluster, Model, Plan, as_plan
from .presets import Preset, options_of, preset_of
from .processes import communicator_of, others_send_too, own_group, share_first
from .rates import learning_rate, momentum_of
from .scaling import LossScale, calls_from_scaler, unscale
from .sharding import Shards
from .together import OtherName, parts_of, with_others
from .tuning import ChangeableOptions, SecondLook
from .updates import DirectUpdates, normalizes
from .wrapping import FirstPass, Gradients, data_parallel, reject_replaced, reject_sharded, sends_gradients, unwrapped

Examples = int | Literal["tokens"] | Callable[[torch.Tensor], int]


class SPDKFACOptimizer(ChangeableOptions, torch.optim.Optimizer):
    """Preconditions gradients with K-FAC, then lets the wrapped optimizer step.

        optimizer = SPDKFACOptimizer(torch.optim.SGD(model.parameters(), lr=0.003), model)

    The loss is a mean over the examples (`loss_reduction`). Make it after the model is on its device, in the thread
    that runs the forward passes. With torch.distributed all processes make it and call `step`,
    `state_dict` and `load_state_dict` equally often.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: nn.Module,
        *,
        preset: Preset | None = None,
        others: torch.optim.Optimizer | OtherName | None = None,
        algorithm: str = "spd-kfac",
        solver: Literal["inverse", "eigen", "ekfac", "adam"] = "inverse",
        damping: float | None = None,
        lm_damping: bool = False,
        damping_mode: Literal["relative", "pi", "plain"] | None = None,
        running_average: float | None = None,
        identity_start: bool = False,
        convention: Literal["kfc", "paper", "kfac-pytorch"] = "kfc",
        loss_reduction: Literal["mean", "sum"] = "mean",
        examples: Examples | None = None,
        kl_clip: float | None = None,
        graft: Literal["none", "sgd", "adam"] | None = None,
        interval: Literal["auto", "fixed", "adaptive"] | None = None,
        factor_interval: int | None = None,
        inverse_interval: int | None = None,
        refresh_change: float | None = None,
        spread_refreshes: bool = False,
        factor_rows: int | None = None,
        couple_momentum: bool = False,
        rescale_weights: bool | Iterable[str] = False,
        precision: Literal["tf32", "fp32", "bf16"] = "tf32",
        max_dimension: int = 8192,
        large_factors: Literal["diagonal", "blocks"] = "diagonal",
        memory_limit: int | None = None,
        patch_memory: int = 256 << 20,
        trace: bool = False,
        skip_layers: Iterable[str] = (),
        partial_layers: Iterable[str] = (),
        split: Mapping[str, int] | None = None,
        norms: bool = False,
        scaler: GradScaler | None = None,
        gradients: Gradients = "auto",
        process_group: dist.ProcessGroup | None = None,
        plan: Plan | str | Path | None = None,
        cluster: Cluster | str | Path | None = None,
        variant: Mapping[str, str | int] | None = None,
        profile_steps: int = 5,
        timeout: float = 60.0,
        model_name: str | None = None,
        log_level: str = "warning",
    ) -> None:
        """Wraps `optimizer`, which steps for `model`. The guide, docs/python.md, explains the options.

        Args:
            optimizer: A torch optimizer of the model's parameters; not LBFGS.
            model: The model, on its device, or a DistributedDataParallel of it.
            preset: `"mlp"`, `"cnn"`, `"cnn-large-batch"`, `"transformer"` or `"paper"`: chooses what is not given.
                None: by the model's layers.
            others: An optimizer for the parameters outside K-FAC's layers, or `"adamw"`, `"sgd"`. None: the wrapped one.
            algorithm: How ranks share the work: a name of `spdkfac.algorithms()`, or `"auto"`.
            solver: What multiplies gradients: damped inverses of the factors (`"inverse"`), of their product
                (`"eigen"`), of the gradient's second moments in its eigenvectors (`"ekfac"`), or Adam in these.
            damping: γ, added to the factors before they are inverted. None: by the preset.
            lm_damping: Let γ follow the loss; needs `graft="none"` and `step(closure)`.
            damping_mode: `"relative"` to each factor's mean diagonal, `"pi"` (divided by traces) or `"plain"`. None: by
                the preset.
            running_average: Weight of the old average of a factor. None: by the preset.
            identity_start: Whether averages start from the identity.
            convention: Scale of the factors.
            loss_reduction: What the loss is over the examples.
            examples: Examples of a pass: a number, `"tokens"`, or a function of the first input. None: dimension 0.
            kl_clip: Limit of an update, only with `graft="none"`; 0: none. None: by the preset.
            graft: Whose length an update has: Adam's step, the gradient (`"sgd"`), or K-FAC's own (`"none"`). None: by
                the preset.
            interval: `"auto"`: refreshes become rarer; `"adaptive"`: when factors have moved; `"fixed"`: as the next
                two say. None: by the preset.
            factor_interval: Steps between new factors, or the most. None: 10, or 1 with `"fixed"`.
            inverse_interval: Steps between new inverses, or the most. None: 100, or `factor_interval` with `"fixed"`.
            refresh_change: With `"adaptive"`, the relative change of a factor that renews inverses. None: 0.1.
            spread_refreshes: Spread new inverses over the steps that renew factors, so that no step is slow.
            factor_rows: Factors of layers with more rows come from a sample of so many. None or 0: from all.
            couple_momentum: Let SGD's momentum fall with the learning rate.
            rescale_weights: Scale weights back that outgrow their norm: True, or patterns of layer names.
            precision: Of K-FAC's products on a GPU.
            max_dimension: Rows above which a factor is not kept whole.
            large_factors: What is kept of such a factor: its diagonal, or blocks along it.
            memory_limit: Bytes that K-FAC may take on a rank. None: what is free.
            patch_memory: Bytes for the patches of a convolution.
            trace: Whether to keep a trace of each step, for `write_trace`.
            skip_layers: Regular expressions; layers whose names match are left out.
            partial_layers: Likewise: layers that see only some of the examples, as experts do.
            split: Layers whose outputs count as several layers, by name or regular expression, and into how many.
            norms: Whether norms are covered, too.
            scaler: The GradScaler that scales the loss.
            gradients: Who averages them over the ranks: `"own"`, `"averaged"` (someone else) or `"auto"`.
            process_group: The ranks that work together. None: all.
            plan: A plan, or the file of one, to follow instead of `algorithm`, `cluster` and `variant`.
            cluster: Costs to plan for: a `Cluster`, a bundled name or a file. None or `"measure"`: measured.
            variant: Fields of the algorithm to change.
            profile_steps: Timed steps after which the plan is made again; 0: never.
            timeout: Seconds that an operation between ranks may take.
            model_name: Name of the model in plans. None: its class.
            log_level: Which messages go to stderr.
        """
        check_arguments(locals())
        if not isinstance(optimizer, torch.optim.Optimizer) or not isinstance(model, nn.Module):
            raise ConfigError(f"kfac: SPDKFACOptimizer({type(optimizer).__name__}, {type(model).__name__}); pass an "
                              "optimizer of torch first, then the model")
        if isinstance(optimizer, (SPDKFACOptimizer, torch.optim.LBFGS)):
            raise ConfigError(f"kfac: {type(optimizer).__name__} cannot be wrapped; pass an optimizer "
                              "that steps once per batch, such as SGD or Adam")
        self.model = model
        module = unwrapped(model)
        reject_sharded(model)
        self._shards = Shards(model)
        self._shards.require_parts(optimizer)
        self._shards.require_possible(lm_damping=lm_damping, rescale_weights=rescale_weights, scaler=scaler)
        self.preset: str = preset or preset_of(module)
        options = options_of(self.preset, optimizer, {
            "solver": solver, "damping": damping, "lm_damping": lm_damping, "damping_mode": damping_mode,
            "running_average": running_average, "identity_start": identity_start, "convention": convention,
            "loss_reduction": loss_reduction, "graft": graft, "kl_clip": kl_clip, "interval": interval,
            "factor_interval": factor_interval, "inverse_interval": inverse_interval,
            "refresh_change": refresh_change, "spread_refreshes": spread_refreshes, "factor_rows": factor_rows,
            "precision": precision, "max_dimension": max_dimension, "large_factors": large_factors,
            "memory_limit": memory_limit, "patch_memory": patch_memory, "trace": trace,
        })
        options.set_examples(examples)
        options.validate()
        followed = None if plan is None else as_plan(plan)
        choice = plan_options(algorithm, variant, followed, cluster)
        group = own_group(process_group, timeout)
        with self._shards.in_place():
            self.layers: CoveredLayers = self._shards.marked(covered_layers(
                model, skip_layers=skip_layers, partial_layers=partial_layers, split=split, norms=norms))
            parameters = list(module.parameters())
        if not self.layers.tracked:
            raise ConfigError("kfac: the model has no trainable layer that K-FAC covers, such as Linear or "
                              f"Conv2d, with a weight of its own (it has {self.layers.uncovered_text() or 'nothing to train'})")
        self.optimizer = with_others(optimizer, others, self.layers.parameters())
        self.layers = self.layers.stepped_by(self.optimizer)
        self._coupled = CoupledMomentum(self.optimizer) if couple_momentum else None
        self._bounded = BoundedWeights(rescaled_layers(self.layers, rescale_weights))
        self.__setstate__({})  # the hooks of the base class; groups and state are the wrapped one's
        if self.layers.uncovered and (group is None or dist.get_rank(group) == 0):
            warnings.warn(f"spdkfac: K-FAC covers {self.layers.coverage:.1%} of the trained parameters; these "
                          f"keep their own gradient: {self.layers.uncovered_text()}", stacklevel=2)
        ddp = data_parallel(model)
        self._gradients: Gradients = self._shards.averaged(gradients)
        self._sends_gradients = group is not None and sends_gradients(self._gradients, ddp)
        watches = group is not None and ddp is None and not self._shards
        if self._shards:
            self._shards.require_group(1 if group is None else dist.get_world_size(group))
        elif group is not None and ddp is None:
            share_first(module, group)
        layers, name, plans = self.layers.tracked, model_name or type(module).__name__, plan_source(
            group, choice, followed, cluster)

        def make(sends: bool, options: _core.KfacOptions) -> tuple[_core.Communicator | None, _core.Preconditioner]:
            communicator = None if group is None else communicator_of(group, layers[0].weight.device, timeout)
            return communicator, _core.Preconditioner(
                layers, parameters, options, communicator=communicator, plans=plans,
                send_gradients=sends or group is None,
                messages_after_passes=group is not None and others_send_too(
                    module, dist.get_backend(group), averages_gradients=not sends),
                model_name=name, profile_steps=profile_steps, log_level=log_level)

        self._make, self._options = make, options
        self._device = layers[0].weight.device
        self._communicator, self._kfac = make(self._sends_gradients, options)
        # Who averages gradients may be known only when the first pass begins.
        self._first_pass = FirstPass(module, self._begin) if watches else None
        # Measuring the costs of messages sends some, too.
        self._sent_before = self._communicator.sent_bytes if self._communicator else 0.0
        self._updates: DirectUpdates | torch.optim.Optimizer = self.optimizer
        if "adam" in (options.graft, options.solver) and normalizes(optimizer) and choice.second_order:
            self._updates = DirectUpdates(self.optimizer, [layer.parameters for layer in self.layers.tracked])
        self._state_names = self._kfac.state_names
        self._second_order = choice.second_order
        self._second_look = SecondLook(module) if lm_damping else None
        self._synchronized = False
        self._first_step = True
        self._computed: set[int] = set()  # layers whose calls are never seen
        self._eager = EagerCode()
        self._eager.want(self._kfac.wants_calls)
        self._scale: LossScale | None = None
        self.scaler = scaler

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """With a scaler: it then calls step() always, with `found_inf`, so that a skipped batch is forgotten.

        Frameworks refuse to clip gradients where this is set, so it is not without a scaler.
        """
        return self.scaler is not None

    @property
    def scaler(self) -> GradScaler | None:
        """The GradScaler that scales the loss. It may be set later, before the first forward pass."""
        return None if self._scale is None else self._scale.scaler

    @scaler.setter
    def scaler(self, scaler: GradScaler | None) -> None:
        if scaler is not None and not hasattr(scaler, "get_scale"):
            raise ConfigError(f"kfac: scaler={scaler!r} is of type {type(scaler).__name__}; pass a "
                              "torch.amp.GradScaler")
        self._shards.require_possible(scaler=scaler)
        if scaler is not None or self._scale is not None:
            self._scale = LossScale(scaler, self.layers.parameters()[0])
            self._kfac.set_loss_scale(self._scale)

    def __getstate__(self) -> dict[str, Any]:  # type: ignore[override]
        raise ConfigError("kfac: the optimizer watches its model in this process, so it cannot be copied or pickled; "
                          "copy the model, make an optimizer for it, and load state_dict() of this one")

    # What LR schedulers, GradScaler and users read and change is the wrapped optimizer's own.
    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return self.optimizer.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        places = kfac_state.Places(self.layers, self.param_groups)
        if not places:
            return self.optimizer.state
        return kfac_state.StateView(self.optimizer.state, self._state_names, places,
                                    self.param_groups)

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        return self.optimizer.defaults

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the wrapped optimizer's. Passes whose gradients this throws away do not count for the factors either."""
        self.optimizer.zero_grad(set_to_none)
        self._kfac.gradients_zeroed()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds it to the wrapped optimizer; K-FAC's layers stay those of the model when this was made."""
        self.optimizer.add_param_group(param_group)
        own = {id(one) for one in self.layers.parameters()}
        added = {id(one) for one in parts_of(self.optimizer)[0].param_groups[-1]["params"]} - own
        late = [layer.name for layer in covered_layers(self.model).tracked
                if added & {id(one) for one in layer.parameters}]
        if late:
            warnings.warn(f"spdkfac: layers that were added or unfrozen later keep their own gradient: "
                          f"{', '.join(late)}; make the optimizer again to cover them", stacklevel=2)

    @_disable_dynamo
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Preconditions the gradients and updates the parameters.

        With `closure` it is called once before, and with lm_damping again after every fifth update. A batch that a
        GradScaler rejects is forgotten.
        """
        loss = None
        if self._second_look is not None:
            if closure is None:
                raise ConfigError("kfac: lm_damping evaluates the loss again after every fifth step; call "
                                  "step(closure) with a function that computes the loss and its gradients")
            self._second_look.remember(self._device)
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._first_step:
            self._require_known_scaler()
        if self._overflowed():
            self._kfac.discard()
        else:
            reject_hidden(self.layers, self._kfac.unseen_layers, self._computed)
            if self._coupled is not None:
                self._coupled.apply()
            rate = learning_rate(self.param_groups, self.kl_clip)
            momentum = momentum_of(self.optimizer, self._shards, self.kl_clip)
            with self._shards.whole_gradients():
                self._kfac.step(rate, *momentum)
            if self._first_step:
                self._require_calls()
                # torch.distributed.checkpoint may have made an empty step, which does not count.
                self._first_step = self._kfac.counters["steps"] == 0
            self._updates.step()
            self._bounded.apply()
            if self._second_look is not None and closure is not None and self._kfac.judges_damping:
                self._second_look.judge(closure, loss, self._kfac)
        self._synchronized = False
        if self._scale is not None:
            self._scale.forget()
        self._eager.want(self._kfac.wants_calls)
        return loss

    def synchronize(self) -> None:
        """Averages the gradients over the processes now, before step().

        Needed with several processes, without DistributedDataParallel, where something reads or
        changes gradients between backward() and step(): clipping, a GradScaler. Otherwise it does
        nothing.
        """
        self._kfac.synchronize()
        self._synchronized = True

    def discard(self) -> None:
        """Discards the batch since the last step; all ranks call it."""
        self._kfac.discard()
        self._synchronized = False

    def state_dict(self) -> dict[str, Any]:
        """The wrapped optimizer's state, with K-FAC's tensors in the entries of covered weights.

        With several processes all call it. The first one gets all tensors, in CPU memory; another
        process those that it keeps.
        """
        for before in self._optimizer_state_dict_pre_hooks.values():
            before(self)
        state = self.optimizer.state_dict()
        places = kfac_state.Places(self.layers, self.param_groups)
        entries = {number: dict(entry) for number, entry in state["state"].items()}
        for number, entry in kfac_state.entries_of(self._kfac.state(), places).items():
            entries.setdefault(number, {}).update(entry)
        state = {**state, "state": entries}
        for after in self._optimizer_state_dict_post_hooks.values():
            state = after(self, state) or state
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state that state_dict() returned, of the same model and options.

        What is wrong with it is a ConfigError, and then nothing is changed.
        """
        if before := self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = dict(state_dict)  # as torch does: hooks may change it
            for hook in before:
                state_dict = hook(self, state_dict) or state_dict
        kfac_state.load(state_dict, self.optimizer, self._kfac, self.layers)
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)
        self._eager.want(self._kfac.wants_calls)

    @property
    def counters(self) -> dict[str, int]:
        """What happened so far on this rank; docs/errors.md says what each counts."""
        return self._kfac.counters

    @property
    def memory(self) -> dict[str, int]:
        """Bytes that K-FAC holds between steps on this rank."""
        return self._kfac.memory

    @property
    def plan(self) -> Plan | None:
        """The plan that is followed; none before the first step. One process sends no messages."""
        plan = self._kfac.plan
        return None if plan is None else Plan.from_json(plan, "plan")

    @property
    def model_table(self) -> Model | None:
        """The layer table of the plan, with measured times once there are some; none alone."""
        planned = self._communicator is not None and self._kfac.plan is not None
        return Model.from_json(self._kfac.model, "model") if planned else None

    @property
    def sent_bytes(self) -> float:
        """Bytes that a rank has sent in training, averaged over the ranks; 0 on one rank."""
        return self._communicator.sent_bytes - self._sent_before if self._communicator else 0.0

    def write_trace(self, path: str | Path) -> None:
        """The last step for ui.perfetto.dev; needs `trace=True`."""
        if not self._options.trace:
            raise ConfigError("kfac: write_trace() needs trace=True; make the optimizer with it")
        Path(path).write_text(self._kfac.trace(), encoding="utf-8")

    @torch.no_grad()
    def _begin(self, ddp: DistributedDataParallel | None) -> None:
        """A first pass begins, in `ddp` or without: whoever has wrapped the model meanwhile is known now."""
        module = unwrapped(self.model)
        reject_replaced(module, self.layers.parameters())
        inside = ddp is not None and any(each is module for each in ddp.modules())
        sends = sends_gradients(self._gradients, ddp if inside else None)
        device = self.layers.tracked[0].weight.device
        if sends != self._sends_gradients or device != self._device:
            state = self._kfac.state() if self._kfac.counters["steps"] > 0 else None  # loaded
            now = self._kfac.options  # some may have been set since
            del self._kfac  # only one can watch the gradients
            self._communicator, self._kfac = self._make(sends, self._options)
            self._sends_gradients, self._device = sends, device
            if state is not None:
                self._kfac.load(*state)
            else:
                self._kfac.change(damping=now.damping, kl_clip=now.kl_clip, factor_interval=now.factor_interval,
                                  inverse_interval=now.inverse_interval)
            if self._scale is not None:
                self._kfac.set_loss_scale(self._scale)
            self._sent_before = self._communicator.sent_bytes if self._communicator else 0.0

    def _overflowed(self) -> bool:
        """Divides gradients that a GradScaler has not; whether it found an infinity or NaN."""
        found: torch.Tensor | None = getattr(self, "found_inf", None)
        if found is None:
            return False
        if self._sends_gradients and not self._synchronized:
            raise ConfigError("kfac: a GradScaler reads gradients that are not averaged yet; call "
                              "optimizer.synchronize() after backward(), before scaler.unscale_() "
                              "and scaler.step()")
        scale: torch.Tensor | None = getattr(self, "grad_scale", None)
        if scale is not None:
            unscale([p.grad for group in self.param_groups for p in group["params"]
                     if p.grad is not None], scale)
        return bool(found.item())

    def _require_known_scaler(self) -> None:
        if self.scaler is None and calls_from_scaler():
            raise ConfigError("kfac: a GradScaler calls step(), but was not passed, so G would be "
                              "computed from scaled losses; pass SPDKFACOptimizer(…, scaler=scaler), or set "
                              "optimizer.scaler = scaler before the first forward pass")

    def _require_calls(self) -> None:
        """Without this a first step that saw no layer would silently be first-order training."""
        if not self._second_order:
            return
        counters = self._kfac.counters
        if counters["factor_updates"] == 0 and counters["layers_without_factors"] > 0:
            raise ConfigError(
                "kfac: no call of any layer was seen in the first step, though they have gradients; "
                "run forward passes in training mode, in the thread that made the optimizer, with the "
                "parameters themselves as weights, and without torch.func.vmap and grad, and call "
                "backward(), not autograd.grad()"
            )
