# SPDX-License-Identifier: Apache-2.0
"""Reads records and checks them; what follows may rely on every field."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from .record_fields import BODIES, COMMON
from .schema import Problem


class RecordError(Exception):
    """A file that is no record; its text is the message for the user."""


@dataclass(frozen=True)
class Timing:
    """A simulated or measured iteration. Of a simulation, low and high are None."""

    seconds: float
    low: float | None
    high: float | None
    samples: tuple[float, ...]  # by step
    breakdown: dict[str, float]
    sent_bytes: float | None
    factor_messages: float | None
    inverse_loads: list[float]
    alike: tuple[str, ...]  # labels of runs that the samples cannot tell from this one


@dataclass(frozen=True)
class Run:
    model: str
    world: int
    algorithm: str
    label: str
    paper: float | None
    forecast: Timing | None  # before the run, from a layer table and a cost model
    replay: Timing | None  # a simulation fed with times of the same run
    measured: Timing | None
    owners: list[dict]

    @property
    def best(self) -> Timing | None:
        """What was measured, or else what is forecast."""
        return self.measured or self.forecast


@dataclass(frozen=True)
class Record:
    path: str
    experiment: str
    mode: str
    made: dict[str, str]
    options: dict
    cluster: str
    note: str
    body: dict
    runs: list[Run] = field(default_factory=list)

    @property
    def real(self) -> str:
        """What to call a time of this record that was not simulated."""
        return "emulated" if self.mode == "emulated" else "measured"


def timing(value: dict | None) -> Timing | None:
    if value is None:
        return None
    real = "median" in value
    return Timing(seconds=value["median"] if real else value["iteration"],
                  low=value["low"] if real else None, high=value["high"] if real else None,
                  samples=tuple(value.get("samples", [])), breakdown=value.get("breakdown", {}),
                  sent_bytes=value.get("sent_bytes"), factor_messages=value.get("factor_messages"),
                  inverse_loads=value.get("inverse_loads", []),
                  alike=tuple(value.get("alike", [])))


def run_of(value: dict) -> Run:
    return Run(model=value["model"], world=value["world"], algorithm=value["algorithm"],
               label=value["label"] or value["algorithm"], paper=value["paper"],
               forecast=timing(value["forecast"]), replay=timing(value["replay"]),
               measured=timing(value["measured"]), owners=value.get("owners") or [])


def refuse_constant(name: str) -> None:
    raise Problem("file", "has a value that is not a number", name, "write the record again")


def check(value: object) -> None:
    COMMON(value, "")
    BODIES[value["experiment"]](value, "")


def parse(text: str, name: str) -> Record:
    """The record of a JSON text; throws RecordError with a message of one line, after `name`."""
    try:
        try:
            value = json.loads(text, parse_constant=refuse_constant)
        except json.JSONDecodeError as error:
            raise Problem("file", "is not JSON", f"line {error.lineno}, {error.msg}",
                          "give a file that `spdkfac bench` wrote") from error
        except ValueError as error:
            raise Problem("file", "has a number that is too long", "over 4000 digits",
                          "write the record again") from error
        except RecursionError as error:
            raise Problem("file", "is nested too deeply", "over 900 levels",
                          "give a file that `spdkfac bench` wrote") from error
        check(value)
    except Problem as problem:
        raise refused(name, problem) from problem
    return Record(path=name, experiment=value["experiment"], mode=value["mode"],
                  made=value["made"], options=value["options"], cluster=value["cluster"],
                  note=value["note"], body=value,
                  runs=[run_of(run) for run in value.get("runs", [])])


def read(path: Path) -> Record:
    """The record of a file; throws RecordError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        problem = Problem("file", "cannot be read", error.strerror, "check its path")
        raise refused(str(path), problem) from error
    except UnicodeDecodeError as error:
        problem = Problem("file", "is not UTF-8", f"byte {error.start}",
                          "give a file that `spdkfac bench` wrote")
        raise refused(str(path), problem) from error
    return parse(text, str(path))


def refused(name: str, problem: Problem) -> RecordError:
    return RecordError(f"{' '.join(name.split())}: {problem}")
