# SPDX-License-Identifier: Apache-2.0
"""The demonstration: tuned optimizers train in turn until they reach a target. One seed, nothing is tuned."""

from __future__ import annotations

import training
from progress import Progress
from results import Result
from search import Entry, Outcome
from tasks import task_named
from training import Place, Plan
from tuned import RACES, Race

SEED = 1


def run(race: Race, place: Place, progress: Progress) -> Result:
    task = task_named(race.task)
    progress.say(f"{task.name}: to a {task.metric} of {race.target:g}")
    entries = []
    for contestant in race.contestants:
        plan = Plan(task, contestant.optimizer, contestant.setting, contestant.steps, SEED, race.target)
        done = training.run(plan, place, progress.going)
        progress.ended(done)
        entries.append(Entry(contestant.optimizer, [done], 0))
    longest = max(contestant.steps for contestant in race.contestants)
    return Result.of(Outcome(task, race.target, None, longest, entries), {})


def run_all(place: Place, progress: Progress) -> list[Result]:
    return [run(race, place, progress) for race in RACES]
