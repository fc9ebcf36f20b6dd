#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads damaged states into SPDKFACOptimizer, for some seconds.

    state_fuzz.py [--seed S] [--seconds N | --cases N]

Case i has the seed S+i. A finding is printed and ends the run with exit code 1. Every case is named on
stderr before it runs, so that the last line is the one of a crash.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
import time
import traceback
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

import torch
from damaged_states import DamagedStates

BASES = ("momentum", "plain", "adam")
FRESH = 200  # cases after which new optimizers are made, so that a case depends on few others


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--cases", type=int, default=0)
    options = parser.parse_args()
    faulthandler.enable()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    end = time.monotonic() + options.seconds
    cases = refused = 0
    optimizers: dict[str, DamagedStates] = {}
    while cases < options.cases if options.cases else time.monotonic() < end:
        seed = options.seed + cases
        if cases % FRESH == 0:
            optimizers.clear()
        dice = random.Random(seed)
        name = dice.choice(BASES)
        print(f"state_fuzz: seed {seed}: {name}", file=sys.stderr, flush=True)
        try:
            if name not in optimizers:
                optimizers[name] = DamagedStates(name)
            refused += optimizers[name].refuses(dice)
        except Exception:
            traceback.print_exc(file=sys.stdout)
            print(f"finding: states seed {seed}: {name}: see above")
            return 1
        cases += 1
    print(f"states: {cases} cases from seed {options.seed}; {refused} states of Python refused, "
          f"{cases - refused} loaded")
    return 0


if __name__ == "__main__":
    sys.exit(main())
