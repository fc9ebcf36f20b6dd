# SPDX-License-Identifier: Apache-2.0
"""Mistakes in records: where, what stands there instead, the message behind `spdkfac: FILE:`."""

from __future__ import annotations

import copy
from typing import Any

DELETE = object()  # stands for a field that is taken out

AGAIN = "write the record again"
WROTE = "give a file that `spdkfac bench` wrote"
KINDS = ("write models, comm, inverse, iteration, breakdown, pipelining, placement, ablation, "
         "scaling, memory, step, accuracy, convergence or target")
CATEGORIES = ("write ff_bp, grad_comm, factor_comp, factor_comm, inverse_comp, inverse_comm or "
              "precondition")

# Files that hold no JSON object of a record at all.
FILES: list[tuple[bytes, str]] = [
    (b"", "file: is not JSON (\"line 1, Expecting value\"); " + WROTE),
    (b"{\n\"format\": }", "file: is not JSON (\"line 2, Expecting value\"); " + WROTE),
    (b"\xff\xfe", "file: is not UTF-8 (\"byte 0\"); " + WROTE),
    (b"[" * 100_000, "file: is nested too deeply (\"over 900 levels\"); " + WROTE),
    (b"{\"mode\": NaN}", "file: has a value that is not a number (\"NaN\"); " + AGAIN),
    (b"[" + b"9" * 5000 + b"]", "file: has a number that is too long (\"over 4000 digits\"); "
     + AGAIN),
    (b"[]", "record: must be an object ([]); write {…}"),
    (b"7", "record: must be an object (7); write {…}"),
    (b"{}", f"format: is needed (missing); {AGAIN}"),
]

Case = tuple[str, tuple[Any, ...], object, str]

# Experiment, the path to a field, its new value, and the message.
FIELDS: list[Case] = [
    ("iteration", ("format",), "spdkfac.plan/1",
     f"format: is not spdkfac.record/1 (\"spdkfac.plan/1\"); {WROTE}"),
    ("iteration", ("experiment",), "coffee", f"experiment: is unknown (\"coffee\"); {KINDS}"),
    ("iteration", ("experiment",), 3, f"experiment: is unknown (3); {KINDS}"),
    ("iteration", ("mode",), "fast",
     "mode: is unknown (\"fast\"); write simulated, measured or emulated"),
    ("iteration", ("made",), None, "made: must be an object (null); write {…}"),
    ("iteration", ("made", "host"), DELETE, f"made.host: is needed (missing); {AGAIN}"),
    ("iteration", ("made", "time"), 5, "made.time: must be a text (5); write it in quotes"),
    ("iteration", ("options",), [], "options: must be an object ([]); write {…}"),
    ("iteration", ("cluster",), None, "cluster: must be a text (null); write it in quotes"),
    ("iteration", ("note",), DELETE, f"note: is needed (missing); {AGAIN}"),
    ("iteration", ("runs",), DELETE, f"runs: is needed (missing); {AGAIN}"),
    ("iteration", ("runs",), {}, "runs: must be a list ({}); write […]"),
    ("iteration", ("runs", 0), 1, "runs[0]: must be an object (1); write {…}"),
    ("iteration", ("runs", 1, "model"), DELETE, f"runs[1].model: is needed (missing); {AGAIN}"),
    ("iteration", ("runs", 1, "world"), 0, "runs[1].world: must be a whole number of at least 1 "
     "(0); write the number of ranks"),
    ("iteration", ("runs", 1, "world"), True, "runs[1].world: must be a whole number of at least 1 "
     "(true); write the number of ranks"),
    ("iteration", ("runs", 1, "paper"), -0.5,
     "runs[1].paper: must be a number of at least 0 (-0.5); write seconds"),
    ("iteration", ("runs", 1, "replay"), DELETE,
     f"runs[1].replay: is needed (missing); {AGAIN}"),
    ("iteration", ("runs", 1, "replay", "iteration"), "fast",
     "runs[1].replay.iteration: must be a number of at least 0 (\"fast\"); write seconds"),
    ("iteration", ("runs", 1, "replay", "breakdown", "ff_bp"), None,
     "runs[1].replay.breakdown.ff_bp: must be a number of at least 0 (null); write seconds"),
    ("iteration", ("runs", 1, "measured", "median"), DELETE,
     f"runs[1].measured.median: is needed (missing); {AGAIN}"),
    ("iteration", ("runs", 1, "measured", "low"), 9,
     f"runs[1].measured.median: must lie between low and high ([9, 0.3625, 0.36975]); {AGAIN}"),
    ("iteration", ("runs", 1, "measured", "samples", 2), "x",
     "runs[1].measured.samples[2]: must be a number of at least 0 (\"x\"); write seconds"),
    ("iteration", ("traces", 0, "replay", 5), [0, "compute", "ff_bp", "x", 0],
     "traces[0].replay[5]: must be a list of 6 values ([0, \"compute\", \"ff_bp\", \"x\", 0]); "
     "write […]"),
    ("iteration", ("traces", 0, "replay", 5), [0, "channel", "grad_comm", "x", 0, 1, 1.5],
     "traces[0].replay[5][6]: must be a whole number of at least 0 (1.5); "
     "write the elements of the message"),
    ("iteration", ("traces", 0, "measured", 5, 1), "wire",
     "traces[0].measured[5][1]: is unknown (\"wire\"); write compute or channel"),
    ("iteration", ("traces", 0, "measured", 5, 2), "tea",
     f"traces[0].measured[5][2]: is unknown (\"tea\"); {CATEGORIES}"),
    ("iteration", ("traces", 0, "measured", 5, 5), -1,
     "traces[0].measured[5][5]: must be a number of at least 0 (-1); write seconds"),
    ("iteration", ("traces", 0, "measured", 5, 2), [],
     f"traces[0].measured[5][2]: is unknown ([]); {CATEGORIES}"),
    ("iteration", ("traces", 0, "measured", 5, 0), 10 ** 7,
     "traces[0].measured[5][0]: must be at most 1000000 (10000000); count from 0"),
    ("iteration", ("runs", 0, "replay", "iteration"), 10 ** 20, "runs[0].replay.iteration: "
     "is over 1e+18 (100000000000000000000); write seconds"),
    ("placement", ("runs", 0, "owners", 0, "side"), "b",
     "runs[0].owners[0].side: is unknown (\"b\"); write a or g"),
    ("placement", ("runs", 0, "owners", 0, "dim"), 0, "runs[0].owners[0].dim: must be a whole "
     "number of at least 1 (0); write the dimension of the factor"),
    ("models", ("models",), DELETE, f"models: is needed (missing); {AGAIN}"),
    ("models", ("models", 0, "dims_a", 3), "wide", "models[0].dims_a[3]: must be a whole number of "
     "at least 1 (\"wide\"); write the dimension of the factor"),
    ("comm", ("curves", 0, "unit"), "miles",
     "curves[0].unit: is unknown (\"miles\"); write elements or dim"),
    ("comm", ("curves", 0, "points", 0), [1], "curves[0].points[0]: must be a list of 2 values "
     "([1]); write […]"),
    ("comm", ("curves", 0, "fits", 0, "used"), 1,
     "curves[0].fits[0].used: must be true or false (1); write true or false"),
    ("inverse", ("threshold",), "few", "threshold: must be a whole number of at least 1 (\"few\"); "
     "write the dimension of the factor"),
    ("step", ("seconds", "sgd"), 0.1, "seconds.sgd: must be a list (0.1); write […]"),
    ("step", ("parts_ms",), DELETE, f"parts_ms: is needed (missing); {AGAIN}"),
    ("accuracy", ("accuracy", 0, "layers", 0, "error"), "large",
     "accuracy[0].layers[0].error: must be a number of at least 0 (\"large\"); write a count"),
    ("memory", ("memory", 0, "ranks"), [],
     "memory[0].ranks: must have at least 1 entries ([]); add them"),
    ("memory", ("memory", 0, "ranks", 0, "factors"), -1,
     "memory[0].ranks[0].factors: must be a number of at least 0 (-1); write bytes"),
    ("convergence", ("convergence", 0, "points", 0, "loss"), "low",
     "convergence[0].points[0].loss: must be a number (\"low\"); write a number"),
    ("convergence", ("convergence", 0, "label"), 4,
     "convergence[0].label: must be a text (4); write it in quotes"),
    ("target", ("target", 0, "value"), DELETE, f"target[0].value: is needed (missing); {AGAIN}"),
    ("target", ("target", 0, "optimizers", 1, "seconds", "median"), "soon",
     "target[0].optimizers[1].seconds.median: must be a number of at least 0 (\"soon\"); write a count"),
    ("target", ("target", 0, "lines", 0, "points", 0, "metric"), -1,
     "target[0].lines[0].points[0].metric: must be a number of at least 0 (-1); write a count"),
]


def broken(case: Case, records: dict[str, dict]) -> dict:
    """The sample record of a case with its mistake."""
    experiment, path, value, _ = case
    made = copy.deepcopy(records[experiment])
    inner = made
    for step in path[:-1]:
        inner = inner[step]
    if value is DELETE:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return made
