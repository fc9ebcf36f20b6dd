# SPDX-License-Identifier: Apache-2.0
"""The command line of the bench: what does a training step cost in Python, with which optimizer?"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

import measuring
import optimizers
import results
from measuring import Job, Place
from mistake import Mistake, installed
from models import MODELS, Model, model_named
from optimizers import Optimizer
from results import Row
from table import table

FAILED, USAGE_MISTAKE = 1, 2
MODES = ("eager", "compiled")
PRECISIONS = ("tf32", "bf16", "fp32")
LONG = 20  # steps of an interval that makes a turn long
RECOMPILATIONS = 64  # each variant brings a model of its own to the code that torch.compile knows


def parser() -> argparse.ArgumentParser:
    cuda = torch.cuda.is_available()
    made = argparse.ArgumentParser(prog="steps", description=__doc__, allow_abbrev=False)
    add = made.add_argument
    add("--models", default="resnet50" if cuda else "small-cnn,small-transformer",
        help=f"with commas between: {', '.join(MODELS)}")
    add("--batch", type=int, help="examples of a step, instead of the model's own number")
    add("--optimizers", default="base,kfac",
        help=f"with commas between: {', '.join(optimizers.KINDS)}, base (the model's own of the first two), "
             "and those of --variant")
    add("--variant", action="append", default=[], metavar="NAME=KIND:{…}",
        help="another optimizer, such as 'ekfac=kfac:{\"solver\": \"ekfac\"}'; may be repeated")
    add("--intervals", default="1/1,10/100", metavar="F/I,…",
        help="of K-FAC: steps between new factors, and between new inverses")
    add("--modes", default="eager", help=f"with commas between: {', '.join(MODES)}")
    add("--backend", default="inductor", help="of torch.compile")
    add("--precision", choices=PRECISIONS, help="default: tf32 on a GPU, fp32 on a CPU; bf16 is by autocast")
    add("--channels-last", action="store_true", help="images and their models, but not for kfac-pytorch")
    add("--steps", type=int, default=20, help="of a turn, at least: turns are whole intervals of inverses")
    add("--rounds", type=int, help="turns of each variant; default: 2 where an interval is long, else 5")
    add("--warm-up", type=int, help="steps before each turn; default: an interval of inverses and 5 more")
    add("--memory", action="store_true", help="also the peak in the timed steps, on a GPU")
    add("--device", choices=("cpu", "cuda"), default="cuda" if cuda else "cpu")
    add("--threads", type=int, help="of the CPU; default: torch's own choice")
    add("--json", "--out", dest="json", type=Path, metavar="FILE", help="write all figures")
    return made


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def check(options: argparse.Namespace) -> None:
    for name in ("batch", "steps", "rounds", "warm_up", "threads"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise Mistake(f"--{name.replace('_', '-')}: is too small ({value}); give at least 1")
    for mode in options.modes.split(","):
        if mode not in MODES:
            raise Mistake(f"--modes: unknown mode ({mode}); give one of {', '.join(MODES)}")
    if options.device == "cuda" and not torch.cuda.is_available():
        raise Mistake("--device: no GPU is there (cuda); pass --device cpu")
    if options.device == "cpu" and options.precision == "tf32":
        raise Mistake("--precision: is of a GPU (tf32); pass fp32 or bf16")
    if options.json and not options.json.parent.is_dir():
        raise Mistake(f"{options.json}: its folder is not there ({options.json.parent}); make it first")


def those_installed(models: Sequence[Model], chosen: Sequence[Optimizer]) -> tuple[list[Model], list[Optimizer]]:
    """The others are left out, and that is said."""
    missing = {one.name: one.package for one in models if one.package and not installed(one.package)}
    missing |= {one.name: package for one in chosen
                if (package := optimizers.PACKAGES.get(one.kind)) and not installed(package)}
    for name, package in missing.items():
        say(f"{name} is left out: the Python package {package.split('.')[0]} is not installed")
    left = ([one for one in models if one.name not in missing], [one for one in chosen if one.name not in missing])
    if not all(left):
        raise Mistake(f"--{'optimizers' if left[0] else 'models'}: nothing is left to measure "
                      f"({', '.join(missing)}); install what is missing, or choose others")
    return left


def jobs_of(model: Model, mode: str, chosen: Sequence[Optimizer], options: argparse.Namespace) -> list[Job]:
    return [Job(model, options.batch or model.batch, mode, one, measuring.turn_steps(one, options.steps),
                options.warm_up or measuring.warm_up_steps(one))
            for one in optimizers.for_model(chosen, model.first_order)]


def measured(jobs: Sequence[Job], place: Place, rounds: int, memory: bool) -> list[Row]:
    """All variants of a model in one mode, in turns. One that fails has no further turns."""
    torch.compiler.reset()
    rows, hooked = [Row(job) for job in jobs], False
    for number in range(1, rounds + 1):
        for row in rows:
            if row.error:
                continue
            if hooked != row.job.optimizer.hooks:  # torch.compile would take code of a model without its hooks
                torch.compiler.reset()
                hooked = row.job.optimizer.hooks
            begin, verdict = time.perf_counter(), ""
            try:
                row.turns.append(measuring.take_turn(row.job, place, memory))
            except Exception as error:  # the others still count
                row.turns, row.error = [], results.one_line(error)
                verdict = f", FAILED: {row.error}"
            measuring.free()
            say(f"{row.job.text}: round {number} of {rounds}, {time.perf_counter() - begin:.1f} s{verdict}")
    for row in rows:
        if row.trouble:
            say(f"{row.job.text}: not all steps are whole ones: {row.trouble}")
    return rows


def set_up(options: argparse.Namespace) -> Place:
    """For all variants alike."""
    if options.threads:
        torch.set_num_threads(options.threads)
    precision = options.precision or ("tf32" if options.device == "cuda" else "fp32")
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
    torch.backends.cudnn.allow_tf32 = precision != "fp32"
    torch.backends.cudnn.benchmark = True
    if "compiled" in options.modes:
        from torch._dynamo import config
        config.recompile_limit = RECOMPILATIONS
    return Place(torch.device(options.device), precision, options.channels_last, options.backend)


def go(options: argparse.Namespace) -> int:
    check(options)
    models = [model_named(name) for name in dict.fromkeys(options.models.split(","))]
    chosen = optimizers.chosen(options.optimizers, options.variant, options.intervals)
    models, chosen = those_installed(models, chosen)
    place, memory = set_up(options), options.memory and options.device == "cuda"
    if options.memory and not memory:
        say("memory is not measured on a CPU")
    long = any(one.intervals and one.intervals.inverses > LONG for one in chosen)
    rounds = options.rounds or (2 if long else 5)
    made, groups = results.environment(place), list[list[Row]]()
    print(f"{made['device']}, torch {made['torch']}, {place.precision}"
          f"{', channels last' if place.channels_last else ''}; steps in ms, {rounds} turns of each variant")
    for model in models:
        for mode in dict.fromkeys(options.modes.split(",")):
            rows = measured(jobs_of(model, mode, chosen, options), place, rounds, memory)
            groups.append(rows)
            print("\n" + table(rows, f"{model.name}, batch {rows[0].job.batch}, {mode}", memory), flush=True)
            if options.json:  # now, so that what is there stays if a later model ends the process
                results.write(options.json, groups, made, {
                    "precision": place.precision, "channels_last": place.channels_last, "rounds": rounds,
                    "backend": place.backend})
    return FAILED if any(row.error for rows in groups for row in rows) else 0


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        return go(options)
    except Mistake as mistake:
        say(f"steps: {mistake}")
        return USAGE_MISTAKE
