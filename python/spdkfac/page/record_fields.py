# SPDX-License-Identifier: Apache-2.0
"""The fields of a record, as docs/records.md has them."""

from __future__ import annotations

from .palette import CATEGORIES
from .schema import (Check, Problem, any_object, boolean, fields, is_number, list_of, number, one_of,
                     or_null, text, tuple_of, values_of, whole)

FORMAT = "spdkfac.record/1"
RUN_EXPERIMENTS = ("iteration", "breakdown", "pipelining", "placement", "ablation", "scaling")
EXPERIMENTS = ("models", "comm", "inverse", *RUN_EXPERIMENTS, "memory", "step", "accuracy",
               "convergence", "target")
MODES = ("simulated", "measured", "emulated")
LANES = ("compute", "channel")
MOST_RANKS = 1_000_000
CATEGORY_NAMES = tuple(CATEGORIES)

seconds = number(0, "write seconds")
size = number(0, "write bytes")
amount = number(0, "write a count")
plain_number = number(None, "write a number")
world = whole(1, "write the number of ranks", MOST_RANKS)
rank = whole(0, "count from 0", MOST_RANKS)
index = whole(0, "count from 0")
dimension = whole(1, "write the dimension of the factor", 1_000_000_000)


def record_format(value: object, field: str) -> None:
    if value != FORMAT:
        raise Problem(field, f"is not {FORMAT}", value, "give a file that `spdkfac bench` wrote")


def interval(value: object, field: str) -> None:
    """The measured times: the median lies in its interval."""
    MEASURED(value, field)
    if not value["low"] <= value["median"] <= value["high"]:
        raise Problem(f"{field}.median", "must lie between low and high",
                      [value["low"], value["median"], value["high"]], "write the record again")


BREAKDOWN = fields({}, {name: seconds for name in CATEGORIES})
DETAILS: dict[str, Check] = {"breakdown": BREAKDOWN, "sent_bytes": size,
                             "factor_messages": seconds, "inverse_loads": list_of(seconds)}
SIMULATED = fields({"iteration": seconds}, DETAILS)
MEASURED = fields({"median": seconds, "low": seconds, "high": seconds},
                  {"samples": list_of(seconds), "alike": list_of(text), **DETAILS})
OWNER = fields({"layer": index, "side": one_of("a", "g"), "dim": dimension,
                "owner": or_null(rank)})
WHO: dict[str, Check] = {"model": text, "world": world, "algorithm": text, "label": text}
RUN = fields({**WHO, "paper": or_null(seconds), "forecast": or_null(SIMULATED),
              "replay": or_null(SIMULATED), "measured": or_null(interval)},
             {"owners": or_null(list_of(OWNER))})

EVENT = tuple_of(rank, one_of(*LANES), one_of(*CATEGORY_NAMES), text, seconds, seconds)
elements = whole(0, "write the elements of the message")


def events(value: object, field: str) -> None:
    """Events by the million: a quick look first, the exact one only at the event that fails it."""
    if not isinstance(value, list):
        raise Problem(field, "must be a list", value, "write […]")
    for place, event in enumerate(value):
        if type(event) is list and len(event) == 7:  # a message may say how much it carries
            elements(event[6], f"{field}[{place}][6]")
            event = event[:6]
        if not (type(event) is list and len(event) == 6 and type(event[0]) is int
                and 0 <= event[0] <= MOST_RANKS
                and event[1] in LANES and event[2] in CATEGORY_NAMES and type(event[3]) is str
                and is_number(event[4]) and is_number(event[5])
                and event[4] >= 0 and event[5] >= 0):
            EVENT(event, f"{field}[{place}]")


TRACE = fields(WHO, {"forecast": or_null(events), "replay": or_null(events),
                     "measured": or_null(events)})

PAPER_MODEL = fields({}, {"parameters": amount, "layers": amount, "a_elements": amount,
                          "g_elements": amount})
MODEL = fields({"name": text, "parameters": amount, "layers": amount, "batch": amount,
                "a_elements": amount, "g_elements": amount, "dims_a": list_of(dimension),
                "dims_g": list_of(dimension), "paper": or_null(PAPER_MODEL)})

POINT = tuple_of(number(0, "write a size"), seconds)
FIT = fields({"form": text, "text": text, "r2": or_null(plain_number),
              "mean_residual": or_null(plain_number), "curve": list_of(POINT)},
             {"used": boolean})
CURVE = fields({"name": text, "unit": one_of("elements", "dim"), "points": list_of(POINT),
                "fits": list_of(FIT)})

MEMORY = fields({**WHO, "ranks": list_of(fields({"factors": size, "inverses": size,
                                                 "buffers": size}), minimum=1)})
CONVERGENCE = fields({
    "label": text, "seed": index, "settings": text,
    "points": list_of(fields({"step": index, "seconds": seconds, "loss": or_null(plain_number),
                              "accuracy": or_null(plain_number)}))})

SPREAD = fields({"low": or_null(amount), "median": or_null(amount), "high": or_null(amount)})
TARGET = fields({
    "task": text, "metric": text, "value": plain_number, "set_by": or_null(text), "budget": index,
    "optimizers": list_of(fields({
        "label": text, "first_order": boolean, "settings": text, "trials": index, "seeds": index,
        "reached": index, "steps": SPREAD, "seconds": SPREAD, "steps_ratio": or_null(amount),
        "seconds_ratio": or_null(amount), "step_seconds": or_null(seconds)})),
    "lines": list_of(fields({
        "label": text, "seed": index, "settings": text,
        "points": list_of(fields({"step": index, "seconds": seconds, "metric": or_null(amount)}))}))})

STEP = fields({"seconds": values_of(list_of(seconds)), "parts_ms": values_of(amount),
               "calls_alone_ms": values_of(amount)},
              {"kfac": text, "peak_bytes": fields({"sgd": size, "kfac": size})})
ACCURACY = fields({"precision": text, "error": amount,
                   "layers": list_of(fields({"name": text, "error": amount}))})

MADE = fields({"time": text, "version": text, "commit": text, "host": text, "device": text})
COMMON = fields({"format": record_format, "experiment": one_of(*EXPERIMENTS),
                 "mode": one_of(*MODES), "made": MADE, "options": any_object, "cluster": text,
                 "note": text},
                {"traces": list_of(TRACE)})

# What a record has besides, by its experiment.
BODIES: dict[str, Check] = {
    **{name: fields({"runs": list_of(RUN)}) for name in RUN_EXPERIMENTS},
    "models": fields({"models": list_of(MODEL)}),
    "comm": fields({"curves": list_of(CURVE)}),
    "inverse": fields({"curves": list_of(CURVE)}, {"threshold": or_null(dimension)}),
    "memory": fields({"memory": list_of(MEMORY)}),
    "step": STEP,
    "accuracy": fields({"accuracy": list_of(ACCURACY)}),
    "convergence": fields({"convergence": list_of(CONVERGENCE)}),
    "target": fields({"target": list_of(TARGET)}),
}
