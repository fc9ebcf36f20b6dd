# SPDX-License-Identifier: Apache-2.0
"""Plans and predictions: values that convert to and from the JSON formats of docs/formats.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from . import _data, _html, _plan
from .errors import ConfigError
from .intervals import OVER_STEPS, Interval, intervals_of

ValueT = TypeVar("ValueT", bound="_Value")


class _Value:
    """A value of the C++ library, which is its `core`."""

    core: Any
    _core_type: ClassVar[Any]

    def __init__(self, core: Any) -> None:
        self.core = core

    @classmethod
    def from_json(cls: type[ValueT], document: str | Mapping[str, Any],
                  where: str = "document") -> ValueT:
        """Reads JSON text or what json.load() made of it; `where` names it in errors."""
        text = document if isinstance(document, str) else json.dumps(document)
        return cls(cls._core_type.from_json(text, where))

    @classmethod
    def load(cls: type[ValueT], path: str | Path) -> ValueT:
        """Reads a file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read ({error}); check the path") from error
        return cls.from_json(text, str(path))

    def to_json(self) -> dict[str, Any]:
        """The document as json.load() would give it."""
        document: dict[str, Any] = json.loads(self.core.to_json())
        return document

    def save(self, path: str | Path) -> None:
        """Writes a file."""
        Path(path).write_text(self.core.to_json() + "\n", encoding="utf-8")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.to_json() == other.to_json()  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self.core.to_json())


class Model(_Value):
    """The layer table of a model (`spdkfac.model/1`)."""

    core: _plan.Model
    _core_type = _plan.Model

    @property
    def name(self) -> str:
        return self.core.name

    @property
    def batch(self) -> int:
        """Examples per step and rank."""
        return self.core.batch

    @property
    def parameters(self) -> int:
        return self.core.parameters

    @property
    def layers(self) -> list[_plan.Layer]:
        return self.core.layers

    def with_batch(self, batch: int) -> Model:
        document = self.to_json()
        document["batch"] = batch
        return Model.from_json(document, "model")

    def __str__(self) -> str:
        return self.core.text()

    def __repr__(self) -> str:
        return f"Model({self.name}, {len(self.layers)} layers, {self.parameters} parameters)"

    def _repr_html_(self) -> str:
        rows = [(layer.name, layer.kind, layer.d_a, layer.d_g, layer.positions, layer.parameters)
                for layer in self.layers]
        return _html.table(f"{self.name}: {len(rows)} layers, {self.parameters:,} parameters",
                           ("layer", "kind", "d_A", "d_G", "positions", "parameters"), rows)


class Cluster(_Value):
    """What a cluster costs (`spdkfac.cluster/1`)."""

    core: _plan.Cluster
    _core_type = _plan.Cluster
    _ELEMENTS: ClassVar[Sequence[int]] = (1 << 10, 1 << 16, 1 << 20, 1 << 24)

    @property
    def name(self) -> str:
        return self.core.name

    @property
    def world(self) -> int:
        """The number of ranks."""
        return self.core.world

    def for_world(self, world: int) -> Cluster:
        """The same cluster with another number of ranks."""
        return Cluster(self.core.for_world(world))

    def __repr__(self) -> str:
        return f"Cluster({self.name}, {self.world} ranks)"

    def _repr_html_(self) -> str:
        rows = [(elements, 1e3 * self.core.all_reduce_time(elements),
                 1e3 * self.core.broadcast_time(elements)) for elements in self._ELEMENTS]
        return _html.table(f"{self.name}: {self.world} ranks",
                           ("elements", "all-reduce ms", "broadcast ms"), rows)


class Plan(_Value):
    """Who inverts which factor, and which tensors share a message (`spdkfac.plan/1`)."""

    core: _plan.Plan
    _core_type = _plan.Plan

    @property
    def algorithm(self) -> str:
        return self.core.algorithm

    @property
    def world(self) -> int:
        return self.core.world

    @property
    def digest(self) -> str:
        """Sixteen digits; plans with the same are the same, whatever was predicted for them."""
        return self.core.digest

    @property
    def messages(self) -> list[tuple[str, int]]:
        """The messages and their elements, in order."""
        return self.core.messages

    @property
    def owners(self) -> list[tuple[int, str, int, int | None]]:
        """Layer, side, dimension and owner of each factor, in order; None: everyone inverts it."""
        return self.core.owners

    def text(self, model: Model, cluster: Cluster, full: bool = False) -> str:
        """The plan as `spdkfac plan` prints it."""
        return self.core.text(model.core, cluster.core, full)

    def __repr__(self) -> str:
        return (f"Plan({self.digest}: {self.algorithm} of {self.core.model} for {self.world} "
                f"ranks, {len(self.messages)} messages)")

    def _repr_html_(self) -> str:
        loads: dict[int, list[int]] = {rank: [] for rank in range(self.world)}
        everyone = [dim for _, _, dim, owner in self.owners if owner is None]
        for _, _, dim, owner in self.owners:
            if owner is not None:
                loads[owner].append(dim)
        rows: list[tuple[object, ...]] = [("everyone", len(everyone), max(everyone, default=0))]
        rows += [(f"rank {rank}", len(dims), max(dims, default=0))
                 for rank, dims in loads.items() if dims]
        caption = (f"{self.algorithm} of {self.core.model} for {self.world} ranks: "
                   f"{len(self.messages)} messages, digest {self.digest}")
        return _html.table(caption, ("who", "factors inverted", "largest dimension"), rows)


class Prediction(_Value):
    """How long an iteration takes, and on what, by simulation (`spdkfac.prediction/2`)."""

    core: _plan.Prediction
    _core_type = _plan.Prediction

    @property
    def algorithm(self) -> str:
        return self.core.algorithm

    @property
    def world(self) -> int:
        return self.core.world

    @property
    def factor_interval(self) -> int:
        """Steps between new factors."""
        return self.core.factor_interval

    @property
    def inverse_interval(self) -> int:
        """Steps between new inverses."""
        return self.core.inverse_interval

    @property
    def iteration(self) -> float:
        """Seconds, averaged over a refresh cycle."""
        return self.core.iteration

    @property
    def slowest_step(self) -> float:
        """Seconds of the slowest step of a refresh cycle."""
        return self.core.slowest_step

    @property
    def breakdown(self) -> dict[str, float]:
        """Seconds of each part; communication counts where it is exposed."""
        return self.core.breakdown

    @property
    def bytes_per_worker(self) -> float:
        return self.core.bytes_per_worker

    @property
    def plan(self) -> Plan | None:
        """The plan of a full step; none in a prediction that was read from JSON."""
        plan = self.core.plan
        return Plan(plan) if plan.model else None

    def write_trace(self, path: str | Path) -> None:
        """The simulated full step for ui.perfetto.dev."""
        Path(path).write_text(self.core.trace(), encoding="utf-8")

    def __str__(self) -> str:
        return self.core.text()

    def __repr__(self) -> str:
        return (f"Prediction({self.algorithm} of {self.core.model} on {self.world} of "
                f"{self.core.cluster}: {1e3 * self.iteration:.1f} ms)")

    def _repr_html_(self) -> str:
        titles = _plan.category_titles()
        rows = [(titles[part], 1e3 * seconds, _html.bar(seconds / self.iteration))
                for part, seconds in self.breakdown.items()]
        caption = (f"{self.algorithm} of {self.core.model} on {self.world} ranks of "
                   f"{self.core.cluster}: {1e3 * self.iteration:.1f} ms per iteration")
        return _html.table(caption, ("part", "ms", ""), rows)


class Comparison(Sequence[Prediction]):
    """Predictions to compare, at one pair of intervals or at several."""

    def __init__(self, predictions: Iterable[Prediction]) -> None:
        self._predictions = list(predictions)

    @classmethod
    def from_json(cls, documents: str | Sequence[Mapping[str, Any]]) -> Comparison:
        values = json.loads(documents) if isinstance(documents, str) else documents
        return cls(Prediction.from_json(value) for value in values)

    def to_json(self) -> list[dict[str, Any]]:
        return [prediction.to_json() for prediction in self._predictions]

    def to_csv(self) -> str:
        return _plan.comparison_csv([one.core for one in self._predictions])

    def at(self, factor_interval: int, inverse_interval: int) -> Comparison:
        """Those at these intervals."""
        return Comparison(one for one in self._predictions
                          if (one.factor_interval, one.inverse_interval) == (factor_interval, inverse_interval))

    def best(self) -> Prediction:
        """The shortest iteration among those at the first one's intervals; see at()."""
        first = self._predictions[0]
        return min(self.at(first.factor_interval, first.inverse_interval), key=lambda one: one.iteration)

    def __len__(self) -> int:
        return len(self._predictions)

    def __getitem__(self, index: Any) -> Any:
        return self._predictions[index]

    def __str__(self) -> str:
        return _plan.comparison_text([one.core for one in self._predictions])

    def _repr_html_(self) -> str:
        slowest = max((one.iteration for one in self._predictions), default=0.0)
        rows = [(one.algorithm, one.world, f"{one.factor_interval}/{one.inverse_interval}",
                 1e3 * one.iteration, one.bytes_per_worker / 1e6,
                 1e3 * one.core.exposed_communication, _html.bar(one.iteration / slowest))
                for one in self._predictions]
        return _html.table("Forecast iterations, averages of a refresh cycle",
                           ("algorithm", "ranks", "intervals", "ms", "sent MB",
                            "exposed communication ms", ""), rows)


def algorithms(all_methods: bool = False) -> dict[str, str]:
    """The named algorithms and what they are; with `all_methods` also those that are for forecasts only."""
    return {name: summary for name, _, summary in _plan.algorithms(all_methods)}


def model(name_or_path: str | Path) -> Model:
    """A layer table that comes with the package (such as `resnet50`), or that of a file."""
    return Model.from_json(*_data.text("models", name_or_path))


def cluster(name_or_path: str | Path) -> Cluster:
    """A cost model that comes with the package (such as `paper-64x2080ti`), or that of a file."""
    return Cluster.from_json(*_data.text("clusters", name_or_path))


def as_model(given: Model | str | Path) -> Model:
    return given if isinstance(given, Model) else model(given)


def as_cluster(given: Cluster | str | Path) -> Cluster:
    return given if isinstance(given, Cluster) else cluster(given)


def as_plan(given: Plan | str | Path) -> Plan:
    return given if isinstance(given, Plan) else Plan.load(given)


def plan(model: Model | str | Path, cluster: Cluster | str | Path, *, world: int | None = None,
         algorithm: str = "spd-kfac", batch: int | None = None, factor_interval: int | None = None,
         inverse_interval: int | None = None, interval: Interval = "fixed", over_steps: int = OVER_STEPS,
         spread_refreshes: bool = False, **variant: str | int) -> Plan:
    """Plans who inverts which factor and which tensors share a message.

    Args:
        model: A layer table, a bundled name or a file.
        cluster: A cost model, a bundled name or a file.
        world: Number of ranks. None: the cluster's.
        algorithm: A name of `algorithms()`.
        batch: Examples per rank. None: the model's.
        factor_interval: Steps between new factors, or the most.
        inverse_interval: Steps between new inverses, or the most.
        interval: `"auto"` and `"adaptive"`: intervals grow, as in training.
        over_steps: The first steps that growing intervals are averaged over.
        spread_refreshes: Each step that renews factors renews the inverses of some layers, as in training.
        **variant: Fields of the algorithm to change, such as `fusion="optimal"` (docs/cli.md).
    """
    one = _simulate_one(as_model(model), as_cluster(cluster), world, algorithm, batch,
                        intervals_of(factor_interval, inverse_interval, interval, over_steps, spread_refreshes),
                        variant, _plan.SimulationOptions({}, 0.0, 0))
    assert one.plan is not None
    return one.plan


def simulate(model: Model | str | Path, cluster: Cluster | str | Path, *, world: int | None = None,
             algorithm: str | Plan = "spd-kfac", batch: int | None = None,
             factor_interval: int | None = None, inverse_interval: int | None = None,
             interval: Interval = "fixed", over_steps: int = OVER_STEPS, spread_refreshes: bool = False,
             slow: Mapping[int, float] | None = None, jitter: float = 0.0, seed: int = 0,
             **variant: str | int) -> Prediction:
    """Predicts an iteration of an algorithm or of a plan.

    Args:
        model: A layer table, a bundled name or a file.
        cluster: A cost model, a bundled name or a file.
        world: Number of ranks. None: the cluster's.
        algorithm: A name of `algorithms()`, or a plan.
        batch: Examples per rank. None: the model's.
        factor_interval: Steps between new factors, or the most.
        inverse_interval: Steps between new inverses, or the most.
        interval: `"auto"` and `"adaptive"`: intervals grow, as in training.
        over_steps: The first steps that growing intervals are averaged over.
        spread_refreshes: Each step that renews factors renews the inverses of some layers, as in training.
        slow: Ranks that compute more slowly, with how many times as long they take.
        jitter: Share by which the time of each task varies, from 0 to 1.
        seed: Of the jitter.
        **variant: Fields of the algorithm to change, such as `fusion="optimal"` (docs/cli.md).
    """
    simulation = _plan.SimulationOptions(dict(slow or {}), jitter, seed)
    table, costs = as_model(model), as_cluster(cluster)
    if not isinstance(algorithm, Plan):
        return _simulate_one(table, costs, world, algorithm, batch,
                             intervals_of(factor_interval, inverse_interval, interval, over_steps, spread_refreshes),
                             variant, simulation)
    if batch is not None:
        table = table.with_batch(batch)
    if variant or world is not None:
        raise ConfigError("simulate: a plan determines world and variants; pass it without them")
    return Prediction(_plan.predict_plan(table.core, costs.core, algorithm.core, simulation))


def compare(model: Model | str | Path, cluster: Cluster | str | Path, *, world: int | None = None,
            algorithms: Iterable[str] | None = None, batch: int | None = None,
            factor_interval: int | None = None, inverse_interval: int | None = None,
            interval: Interval = "fixed", over_steps: int = OVER_STEPS, spread_refreshes: bool = False,
            all_methods: bool = False) -> Comparison:
    """Forecasts several algorithms.

    Without intervals twice: renewing everything in every step, and factors every 10 and inverses
    every 100 steps.

    Args:
        model: A layer table, a bundled name or a file.
        cluster: A cost model, a bundled name or a file.
        world: Number of ranks. None: the cluster's.
        algorithms: Their names. None: all.
        batch: Examples per rank. None: the model's.
        factor_interval: Steps between new factors, or the most.
        inverse_interval: Steps between new inverses, or the most.
        interval: `"auto"` and `"adaptive"`: intervals grow, as in training.
        over_steps: The first steps that growing intervals are averaged over.
        spread_refreshes: Each step that renews factors renews the inverses of some layers, as in training.
        all_methods: Also KAISA, DP-KFAC, Shampoo, SOAP and Muon, which are for forecasts only.
    """
    names = _plan.compared_algorithms(all_methods) if algorithms is None else list(algorithms)
    given = interval != "fixed" or factor_interval is not None or inverse_interval is not None
    intervals: list[tuple[int | None, int | None]] = [(factor_interval, inverse_interval)]
    if not given:
        intervals = [*_plan.compared_intervals()]
    return Comparison(
        simulate(model, cluster, world=world, algorithm=name, batch=batch, factor_interval=factors,
                 inverse_interval=inverses, interval=interval, over_steps=over_steps,
                 spread_refreshes=spread_refreshes)
        for factors, inverses in intervals for name in names)


def _simulate_one(table: Model, costs: Cluster, world: int | None, algorithm: str,
                  batch: int | None, intervals: tuple[int, int, int, bool],
                  variant: Mapping[str, str | int],
                  simulation: _plan.SimulationOptions) -> Prediction:
    options = _plan.PlanOptions(algorithm, json.dumps(dict(variant)))
    if batch is not None:
        table = table.with_batch(batch)
    return Prediction(_plan.predict(table.core, costs.core, costs.world if world is None else world, options,
                                    *intervals, simulation))
