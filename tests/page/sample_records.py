# SPDX-License-Identifier: Apache-2.0
"""Records to draw: one or more of each experiment, always the same, with numbers like real ones."""

from __future__ import annotations

import json
import math
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CATEGORIES = ("ff_bp", "grad_comm", "factor_comp", "factor_comm", "inverse_comp", "inverse_comm",
              "precondition")
LABELS = {"sgd": "S-SGD", "d-kfac": "D-KFAC", "mpd-kfac": "MPD-KFAC", "spd-kfac": "SPD-KFAC",
          "auto": "auto"}
# The paper's Table III: seconds of D-KFAC, MPD-KFAC and SPD-KFAC on 64 GPUs.
PAPER = {"resnet50": (0.8525, 0.7635, 0.6755), "resnet152": (1.5807, 1.3933, 1.1689),
         "densenet201": (1.4964, 1.5340, 1.3615), "inception-v4": (1.1857, 1.1473, 0.9907)}
# Millions of parameters, layers, millions of elements of A and of G, in the paper's Table II.
PAPER_MODELS = {"resnet50": (25.6, 54, 62.3, 14.6), "resnet152": (60.2, 156, 162.0, 32.9),
                "densenet201": (20.0, 201, 131.0, 18.0), "inception-v4": (42.7, 150, 116.4, 4.7)}
# Of an iteration, the shares of its categories.
SHARES = {"sgd": (0.82, 0.18, 0, 0, 0, 0, 0), "d-kfac": (0.2, 0.03, 0.25, 0.2, 0.3, 0, 0.02),
          "mpd-kfac": (0.23, 0.03, 0.28, 0.23, 0.08, 0.13, 0.02),
          "spd-kfac": (0.33, 0.04, 0.41, 0.06, 0.09, 0.05, 0.02),
          "auto": (0.34, 0.04, 0.41, 0.05, 0.1, 0.04, 0.02)}


def wobble(number: int) -> float:
    """Between -1 and 1, without order, always the same."""
    return math.sin(12.9898 * number) * math.cos(4.1414 * number)


def record(experiment: str, mode: str, cluster: str = "", note: str = "", **body: object) -> dict:
    """The fields that all records have, and those of the experiment."""
    measured = mode != "simulated"
    return {"format": "spdkfac.record/1", "experiment": experiment, "mode": mode,
            "made": {"time": "2026-11-15T21:00:00Z", "version": "0.5.0", "commit": "018e0f8",
                     "host": "Intel(R) Xeon(R), 2 cores",
                     "device": "cpu, 1 thread" if measured else ""},
            "options": {"width": 0.25, "input": [3, 64, 64], "batch": 8, "steps": 10}
            if measured else {}, "cluster": cluster, "note": note, **body}


def breakdown(seconds: float, algorithm: str) -> dict[str, float]:
    return {name: seconds * share for name, share in zip(CATEGORIES, SHARES[algorithm]) if share}


def simulated(seconds: float, algorithm: str, messages: float = 0.21) -> dict:
    found = {"iteration": seconds, "breakdown": breakdown(seconds, algorithm),
             "sent_bytes": 59_640_000 + 1_000_000 * len(algorithm)}
    return found if algorithm == "sgd" else {**found, "factor_messages": messages * seconds}


def measured(seconds: float, algorithm: str, spread: float = 0.02, messages: float = 0.21) -> dict:
    samples = [seconds * (1 + spread * wobble(number)) for number in range(10)]
    return {"samples": samples, "median": seconds, "low": round(seconds * (1 - spread), 9),
            "high": round(seconds * (1 + spread), 9), "alike": [], **{name: value
            for name, value in simulated(seconds, algorithm, messages).items()
            if name != "iteration"}}


def run(model: str, world: int, algorithm: str, label: str = "", **more: object) -> dict:
    return {"model": model, "world": world, "algorithm": algorithm,
            "label": label or LABELS[algorithm], "paper": None, "forecast": None, "replay": None,
            "measured": None, **more}


def dims(model: str) -> tuple[list[int], list[int]]:
    layers = json.loads((ROOT / "data" / "models" / f"{model}.json").read_text())["layers"]
    return [layer["d_a"] for layer in layers], [layer["d_g"] for layer in layers]


def simulated_iteration() -> dict:
    runs = []
    for model, (d, mpd, spd) in PAPER.items():
        runs.append(run(model, 64, "sgd", forecast=simulated(0.4 * spd, "sgd")))
        for algorithm, paper in (("d-kfac", d), ("mpd-kfac", mpd), ("spd-kfac", spd)):
            guess = paper * (1 + 0.06 * wobble(len(runs)))
            runs.append(run(model, 64, algorithm, paper=paper,
                            forecast=simulated(guess, algorithm)))
    return record("iteration", "simulated", "paper-64x2080ti", runs=runs)


# Algorithm, replayed and measured seconds: the last two are replayed in the wrong order, and the
# samples can tell them apart. Forecasts are a tenth longer than replays.
ON_FOUR_RANKS = (("sgd", 0.11, 0.115), ("d-kfac", 0.37, 0.3625), ("mpd-kfac", 0.31, 0.325),
                 ("spd-kfac", 0.27, 0.276), ("auto", 0.272, 0.26))


def measured_iteration() -> dict:
    runs = [run("resnet50", 4, algorithm, forecast=simulated(1.1 * guess, algorithm),
                replay=simulated(guess, algorithm), measured=measured(seconds, algorithm))
            for algorithm, guess, seconds in ON_FOUR_RANKS]
    return record("iteration", "measured", "link-4", runs=runs,
                  traces=[trace("resnet50", 4, "spd-kfac", 0.27, 0.276),
                          trace("resnet50", 4, "d-kfac", 0.37, 0.3625)])


def trace_events(world: int, total: float, layers: int, pipelined: bool, seed: int) -> list[list]:
    """An iteration of every rank: forward, backward and factors, messages beside or behind them."""
    events: list[list] = []
    for rank in range(world):
        now, free = 0.0, 0.0
        step = 0.7 * total / (4 * layers)

        def compute(category: str, name: str, length: float) -> None:
            nonlocal now
            events.append([rank, "compute", category, name, now, length])
            now += length

        def send(category: str, name: str, length: float) -> None:
            nonlocal free
            start = max(now, free)
            events.append([rank, "channel", category, name, start, length])
            free = start + length

        for layer in range(2 * layers):
            back = layer >= layers
            number = 2 * layers - 1 - layer if back else layer
            jitter = 1 + 0.3 * wobble(seed + 31 * rank + layer)
            compute("ff_bp", f"{'backward' if back else 'forward'} layer {number}", step * jitter)
            compute("factor_comp", f"factor_{'g' if back else 'a'} {number}", step * jitter * 0.8)
            if pipelined and layer % 4 == 3:
                send("factor_comm", f"all_reduce factors {number}..{number + 3}", 1.4 * step)
            if back and number % 8 == 0:
                send("grad_comm", f"all_reduce gradients {number}..{number + 7}", 0.8 * step)
        if not pipelined:
            send("factor_comm", "all_reduce factors", 0.2 * total)
        now = max(now, free)
        for place in range(4):
            compute("inverse_comp", f"inverse {4 * rank + place}", 0.02 * total)
            send("inverse_comm", f"broadcast inverse {4 * rank + place}", 0.012 * total)
        now = max(now, free)
        compute("precondition", "precondition", 0.02 * total)
    stretch = total / max(start + length for *_, start, length in events)
    return [[*event[:4], stretch * event[4], stretch * event[5]] for event in events]


def trace(model: str, world: int, algorithm: str, guess: float, real: float) -> dict:
    pipelined = algorithm == "spd-kfac"
    return {"model": model, "world": world, "algorithm": algorithm, "label": LABELS[algorithm],
            "forecast": trace_events(world, 1.1 * guess, 54, pipelined, 3),
            "replay": trace_events(world, guess, 54, pipelined, 1),
            "measured": trace_events(world, real, 54, pipelined, 7)}


def many_events(number: int, ranks: int = 8) -> list[list]:
    """So many events, each a little longer or shorter than 10 microseconds."""
    lanes = ("compute", "channel")
    per_lane = number // (2 * ranks)
    return [[rank, lane, CATEGORIES[(place + rank) % 7], f"event {place}", 1e-5 * place,
             9e-6 * (1 + 0.1 * wobble(place))]
            for rank in range(ranks) for lane in lanes for place in range(per_lane)]


def breakdowns() -> dict:
    runs = [run(model, 64, algorithm, replay=simulated(seconds, algorithm),
                measured=measured(1.04 * seconds, algorithm))
            for model, times in PAPER.items()
            for algorithm, seconds in zip(("d-kfac", "mpd-kfac", "spd-kfac"), times)]
    return record("breakdown", "emulated", "paper-64x2080ti",
                  "One rank of 64 is real; the other 63 and the link between them are pretended.",
                  runs=runs)


def pipelining() -> dict:
    schedules = (("naive", "Naive", 0.30), ("lw-none", "LW w/o TF", 0.24),
                 ("lw-threshold", "LW w/ TTF", 0.12), ("sp-otf", "SP w/ OTF", 0.05))
    runs = []
    for model, seconds in (("resnet50", 0.7), ("densenet201", 1.4)):
        for algorithm, label, exposed in schedules:
            parts = {"ff_bp": 0.4 * seconds, "factor_comp": 0.25 * seconds,
                     "factor_comm": exposed * seconds}
            of_all = {"breakdown": parts, "factor_messages": 0.36 * seconds}
            total = sum(parts.values())
            runs.append(run(model, 4, algorithm, label, replay={"iteration": total, **of_all},
                            measured={"samples": [], "median": 1.03 * total, "low": total,
                                      "high": 1.06 * total, **of_all}))
    return record("pipelining", "measured", "link-4", runs=runs)


def placement() -> dict:
    dims_a, dims_g = dims("resnet50")
    factors = [(layer, side, dim) for side, some in (("a", dims_a), ("g", dims_g))
               for layer, dim in enumerate(some)]
    runs = []
    for algorithm in ("d-kfac", "mpd-kfac", "spd-kfac"):
        loads, owners = [0.0] * 8, []
        order = (sorted(factors, key=lambda factor: -factor[2]) if algorithm == "spd-kfac"
                 else factors)
        for place, (layer, side, dim) in enumerate(order):
            owner: int | None = None
            if algorithm == "mpd-kfac":
                owner = place % 8
            elif algorithm == "spd-kfac" and dim > 512:
                owner = loads.index(min(loads))
            for rank in range(8) if owner is None else [owner]:
                loads[rank] += 3e-4 + 4e-12 * dim ** 3
            owners.append({"layer": layer, "side": side, "dim": dim, "owner": owner})
        runs.append(run("resnet50", 8, algorithm, owners=owners,
                        forecast={**simulated(0.7, algorithm), "inverse_loads": loads}))
    return record("placement", "simulated", "paper-64x2080ti", runs=runs)


def ablation() -> dict:
    variants = (("d-kfac", "-Pipe-LBP", 0.36), ("pipe", "+Pipe-LBP", 0.31),
                ("lbp", "-Pipe+LBP", 0.318), ("spd-kfac", "+Pipe+LBP", 0.276))
    runs = [run("resnet50", 4, algorithm, label, replay=simulated(0.97 * seconds, "spd-kfac"),
                measured=measured(seconds, "spd-kfac", 0.03))
            for algorithm, label, seconds in variants]
    return record("ablation", "measured", "link-4", runs=runs)


def scaling() -> dict:
    runs = []
    for model, base in (("resnet50", 0.3), ("inception-v4", 0.5)):
        for world in (1, 2, 4, 8, 16, 32, 64, 128):
            growth = math.log2(world) / 7
            for algorithm, slope in (("sgd", 0.1), ("d-kfac", 1.9), ("mpd-kfac", 1.6),
                                     ("spd-kfac", 1.1)):
                seconds = (0.4 if algorithm == "sgd" else 1.0) * base + slope * base * growth
                runs.append(run(model, world, algorithm, forecast=simulated(seconds, algorithm),
                                measured=measured(1.05 * seconds, algorithm, 0.04)
                                if world <= 4 else None))
    return record("scaling", "measured", "link-4", "Beyond 4 ranks there are only forecasts.",
                  runs=runs)


def curve(name: str, unit: str, sizes: list[int], first: float, each: float, power: float) -> dict:
    def exact(size: float) -> float:
        return first + each * size ** power
    points = [[size, exact(size) * (1 + 0.08 * wobble(place))] for place, size in enumerate(sizes)]
    fits = [{"form": "affine" if power == 1 else "cubic", "text": f"α {1e3 * first:.2g} ms",
             "r2": 0.9971, "mean_residual": 0.041, "used": True,
             "curve": [[size, exact(size)] for size in sizes]},
            {"form": "exponential", "text": "the paper’s form", "r2": 0.912, "mean_residual": 0.31,
             "used": False, "curve": [[size, exact(size) * (1.4 - 0.5 * place / len(sizes))]
                                      for place, size in enumerate(sizes)]}]
    return {"name": name, "unit": unit, "points": points, "fits": fits}


def comm() -> dict:
    sizes = [2 ** power for power in range(8, 25)]
    return record("comm", "measured", "link-4", curves=[
        curve("all_reduce", "elements", sizes, 5e-4, 1.6e-8, 1),
        curve("broadcast", "elements", sizes, 3e-4, 8e-9, 1)])


def inverse() -> dict:
    sizes = [64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096]
    return record("inverse", "measured", "link-4", threshold=512, curves=[
        curve("inverse", "dim", sizes, 2e-4, 1.1e-11, 3),
        curve("broadcast", "dim", sizes, 6e-4, 4e-9, 2)])


def models() -> dict:
    found = []
    for name, (parameters, layers, a, g) in PAPER_MODELS.items():
        dims_a, dims_g = dims(name)
        found.append({
            "name": name, "parameters": 1e6 * parameters, "layers": len(dims_a), "batch": 32,
            "a_elements": sum(dim * (dim + 1) // 2 for dim in dims_a),
            "g_elements": sum(dim * (dim + 1) // 2 for dim in dims_g),
            "dims_a": dims_a, "dims_g": dims_g,
            "paper": {"parameters": 1e6 * parameters, "layers": layers, "a_elements": 1e6 * a,
                      "g_elements": 1e6 * g}})
    return record("models", "simulated", models=found)


def memory() -> dict:
    entries = []
    for algorithm, share in (("d-kfac", 1.0), ("mpd-kfac", 0.3), ("spd-kfac", 0.35)):
        ranks = [{"factors": 307_000_000, "buffers": 64_000_000 + 4_000_000 * rank,
                  "inverses": int(307_000_000 * share * (1 + 0.1 * wobble(rank)))}
                 for rank in range(4)]
        entries.append({"model": "resnet50", "world": 4, "algorithm": algorithm,
                        "label": LABELS[algorithm], "ranks": ranks})
        entries.append({"model": "resnet50", "world": 64, "algorithm": algorithm,
                        "label": LABELS[algorithm], "ranks": ranks * 16})
    return record("memory", "measured", "link-4", memory=entries)


def step() -> dict:
    seconds = {name: [base * (1 + 0.02 * wobble(number)) for number in range(20)]
               for name, base in (("sgd", 0.1), ("capture", 0.101), ("kfac", 0.15),
                                  ("kfac traced", 0.152))}
    return record("step", "measured", seconds=seconds, kfac="0123456789abcdef",
                  parts_ms={"ff_bp": 100.0, "factor_comp": 20.0, "inverse_comp": 25.0},
                  calls_alone_ms={"factor_comp": 18.0, "inverse_comp": 21.0})


def accuracy() -> dict:
    return record("accuracy", "measured", accuracy=[
        {"precision": name, "error": error,
         "layers": [{"name": f"layer {number}", "error": error * (1 + 0.5 * wobble(number))}
                    for number in range(20)]}
        for name, error in (("fp32", 1e-6), ("tf32", 4e-4), ("bf16", 5e-3))])


def convergence() -> dict:
    lines = []
    optimizers = (("K-FAC", 0.011, 0.055), ("Adam", 0.0062, 0.03), ("SGD", 0.005, 0.028))
    for label, rate, second in optimizers:
        for seed in (2, 3, 4):
            points = [{"step": step, "seconds": second * step,
                       "loss": 0.22 + 2.1 * math.exp(-rate * step) + 0.02 * wobble(step + seed),
                       "accuracy": 0.915 - 0.8 * math.exp(-rate * step)
                       + 0.006 * wobble(step + 7 * seed)} for step in range(20, 801, 20)]
            lines.append({"label": label, "seed": seed, "settings": "lr 0.005, damping 0.01",
                          "points": points})
    return record("convergence", "measured", convergence=lines)


def target_row(label: str, steps: list[int], second: float, first_order: bool) -> dict:
    reached = steps[1] < 400
    spread = ({"low": float(steps[0] + 3), "median": float(steps[1]), "high": float(steps[2] - 3)}
              if reached else {"low": float(steps[0]), "median": None, "high": None})
    in_seconds = {end: value and second * value for end, value in spread.items()}
    return {"label": label, "first_order": first_order, "settings": "lr 0.01, 400 steps",
            "trials": 16, "seeds": 3, "reached": 3 if reached else 1, "steps": spread,
            "seconds": in_seconds, "steps_ratio": steps[1] / 306 if reached else None,
            "seconds_ratio": second * steps[1] / 6.12 if reached else None, "step_seconds": None}


def target() -> dict:
    optimizers = (("SGD", [390, 400, 400], 0.02, True), ("AdamW", [300, 306, 312], 0.02, True),
                  ("K-FAC", [90, 96, 102], 0.04, False))
    lines = [{"label": label, "seed": seed, "settings": "lr 0.01, 400 steps",
              "points": [{"step": last * part // 10, "seconds": second * last * part / 10,
                          "metric": 1.2 * math.exp(1 - part / 10)} for part in range(1, 11)]}
             for label, steps, second, _ in optimizers for seed, last in enumerate(steps, 1)]
    lines[0]["points"][-1]["metric"] = None  # diverged
    rows = [target_row(*optimizer) for optimizer in optimizers]
    return record("target", "measured", target=[
        {"task": "gpt", "metric": "test loss", "value": 1.2, "set_by": "AdamW", "budget": 400,
         "optimizers": rows, "lines": lines}])


def all_records() -> dict[str, dict]:
    """By the name of the file."""
    made = {"iteration-simulated": simulated_iteration(), "iteration": measured_iteration()}
    for function in (breakdowns, pipelining, placement, ablation, scaling, comm, inverse, models,
                     memory, step, accuracy, convergence, target):
        made[function.__name__] = function()
    return made


def write(folder: Path, records: dict[str, dict]) -> list[Path]:
    paths = []
    for name, value in records.items():
        paths.append(folder / f"{name}.json")
        paths[-1].write_text(json.dumps(value), encoding="utf-8")
    return paths
