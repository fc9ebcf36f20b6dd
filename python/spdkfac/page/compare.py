# SPDX-License-Identifier: Apache-2.0
"""What the times of runs say about each other: who is faster, by how much, and was it foreseen."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass

from .palette import run_colours
from .records import Run, Timing
from .words import and_list, duration, percent, times

NO_SECOND_ORDER = ("sgd", "s-sgd")


def groups(runs: list[Run]) -> dict[tuple[str, int], list[Run]]:
    """The runs that may be compared with each other: by model and world, in their order."""
    found: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        found.setdefault((run.model, run.world), []).append(run)
    return found


def colours(runs: list[Run]) -> list[str]:
    """The colour of each of the runs of one chart."""
    return run_colours([(run.algorithm, run.label) for run in runs])


def find(runs: list[Run], algorithm: str) -> Run | None:
    return next((run for run in runs if run.algorithm == algorithm), None)


def alike(one: Run, other: Run) -> bool:
    """Whether the samples cannot tell which of two measured runs is faster, as the record has it."""
    return bool(one.measured and other.measured and other.label in one.measured.alike)


@dataclass(frozen=True)
class SpeedUp:
    """How many times as fast `run` is as `over`, in times of one kind."""

    run: Run
    over: Run
    factor: float
    differs: bool
    forecast: bool
    paper: float | None


def speed_up(run: Run | None, over: Run | None) -> SpeedUp | None:
    """From measured times where both have them, or else from forecasts."""
    if run is None or over is None:
        return None
    real = bool(run.measured and over.measured)
    pair = (run.measured, over.measured) if real else (run.forecast, over.forecast)
    if pair[0] is None or pair[1] is None or pair[0].seconds == 0:
        return None
    paper = over.paper / run.paper if run.paper and over.paper else None
    factor = pair[1].seconds / pair[0].seconds
    return SpeedUp(run, over, factor, not (real and alike(run, over)), not real, paper)


def speed_up_text(found: SpeedUp, name: str) -> str:
    more = ", forecast" if found.forecast else ""
    more += f"; the paper has {times(found.paper)}" if found.paper else ""
    if not found.differs:
        return (f"{found.run.label} against {found.over.label} ({name}{more}): the difference "
                f"is not significant ({times(found.factor)}).")
    return (f"{found.run.label} is {times(found.factor)} as fast as {found.over.label} "
            f"({name}{more}).")


def comparable(runs: list[Run]) -> list[tuple[Run, Timing]]:
    """The runs with times of one kind: all that were measured, or else all forecasts."""
    measured = [(run, run.measured) for run in runs if run.measured]
    return measured or [(run, run.forecast) for run in runs if run.forecast]


def fastest(runs: list[Run]) -> tuple[list[Run], Timing] | None:
    """The fastest second-order run, those that do not differ from it behind it, and its time."""
    times_of = [pair for pair in comparable(runs) if pair[0].algorithm not in NO_SECOND_ORDER]
    if not times_of:
        return None
    times_of.sort(key=lambda pair: pair[1].seconds)
    best = times_of[0]
    ties = [run for run, _ in times_of[1:] if alike(best[0], run)]
    return [best[0], *ties], best[1]


def fastest_text(runs: list[Run], real: str) -> str | None:
    found = fastest(runs)
    if found is None:
        return None
    (best, *ties), timing = found
    kind = "forecast" if timing.low is None else real
    text = f"Fastest second-order algorithm: {best.label} with {duration(timing.seconds)} ({kind})"
    if ties:
        names = and_list(run.label for run in ties)
        text += f"; the difference to {names} is not significant"
    return text + "."


SIMULATIONS = {"replay": "Replays", "forecast": "Forecasts"}


def errors(runs: list[Run], source: str) -> list[tuple[Run, float]]:
    """Replays or forecasts against measurements: the error relative to what was measured."""
    return [(run, getattr(run, source).seconds / run.measured.seconds - 1) for run in runs
            if getattr(run, source) and run.measured and run.measured.seconds > 0]


def mean_error(runs: list[Run], source: str) -> float | None:
    found = errors(runs, source)
    return statistics.fmean(abs(error) for _, error in found) if found else None


def error_texts(runs: list[Run], real: str) -> list[str]:
    texts = []
    for source, name in SIMULATIONS.items():
        found = errors(runs, source)
        if not found:
            continue
        worst, error = max(found, key=lambda pair: abs(pair[1]))
        text = f"{name} are {percent(mean_error(runs, source))} off on average"
        if len(found) > 1:
            way = "more" if error > 0 else "less"
            text += f", at worst {percent(abs(error))} ({worst.label}, {way} than {real})"
        texts.append(text + ".")
    return texts


def misordered(runs: list[Run], source: str) -> list[tuple[Run, Run]]:
    """Pairs simulated in the other order than measured, where the measured times do differ."""
    known = [run for run in runs if getattr(run, source) and run.measured]
    wrong = []
    for one, other in itertools.combinations(known, 2):
        simulated = getattr(one, source).seconds - getattr(other, source).seconds
        measured = one.measured.seconds - other.measured.seconds
        if simulated * measured < 0 and not alike(one, other):
            wrong.append((one, other))
    return wrong


def order_texts(runs: list[Run], real: str) -> list[str]:
    texts = []
    for source, name in SIMULATIONS.items():
        if sum(1 for run in runs if getattr(run, source) and run.measured) < 2:
            continue
        wrong = [f"{one.label} / {other.label}" for one, other in misordered(runs, source)]
        texts.append(f"{name} have another order than {real} for {and_list(wrong)}." if wrong
                     else f"{name} have the order of the algorithms as {real}.")
    return texts


@dataclass(frozen=True)
class Hiding:
    """Factor communication of a run: how long in all, how much of it computation does not hide."""

    run: Run
    messages: float
    exposed: float
    iteration: float
    forecast: bool

    @property
    def hidden_share(self) -> float:
        return max(0.0, 1 - self.exposed / self.messages)


def hiding(run: Run | None) -> Hiding | None:
    timing = run.best if run else None
    if timing is None or not timing.factor_messages or "factor_comm" not in timing.breakdown:
        return None
    return Hiding(run, timing.factor_messages, timing.breakdown["factor_comm"], timing.seconds,
                  run.measured is None)


def hiding_text(found: Hiding) -> str:
    share = found.exposed / found.iteration if found.iteration else 0.0
    kind = " (forecast)" if found.forecast else ""
    if found.exposed == 0:
        return f"{found.run.label} hides all factor communication{kind}."
    return (f"{found.run.label} hides {percent(found.hidden_share)} of factor communication; the "
            f"exposed rest is {duration(found.exposed)} of {duration(found.iteration)} "
            f"({percent(share)}){kind}.")
