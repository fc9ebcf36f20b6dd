#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records with random damage are refused with one line, or drawn; nothing else happens.

Skipped (exit code 77) without the package plotly.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import random
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Iterator

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python/spdkfac"))

from page import records  # noqa: E402  (without spdkfac, which needs torch)
import sample_records as sample  # noqa: E402

SKIPPED = 77
CASES = 500
SEED = 1
FIRST_ENTRIES = 6  # of a list, that are damaged
INSTEAD = (None, 0, -1, 1, 1e-12, 1e17, 1e300, 5e-324, 10 ** 400, True, "", "x", [], [[]], {})

Place = tuple[object, ...]


def places(value: object, path: Place = ()) -> Iterator[Place]:
    """The paths to all values in a record, of long lists only the first ones."""
    inner = value.items() if isinstance(value, dict) else (
        enumerate(value[:FIRST_ENTRIES]) if isinstance(value, list) else ())
    for step, entry in inner:
        yield (*path, step)
        yield from places(entry, (*path, step))


def damage(record: dict, path: Place, choice: random.Random) -> None:
    """Takes a value out, or puts another in its place; does nothing if it is gone already."""
    inner = record
    try:
        for step in path[:-1]:
            inner = inner[step]
        old = inner[path[-1]]
        if choice.random() < 0.3:
            del inner[path[-1]]
        elif choice.random() < 0.5:
            inner[path[-1]] = copy.deepcopy(choice.choice(INSTEAD))
        else:  # often still a record: nothing of the same kind
            inner[path[-1]] = [] if isinstance(old, list) else None if isinstance(old, dict) else 0
    except (KeyError, IndexError, TypeError):
        pass


class DamageTest(unittest.TestCase):
    def test_damaged_records(self) -> None:
        from page import document
        whole = sample.all_records()
        paths = {name: list(places(record)) for name, record in whole.items()}
        choice = random.Random(SEED)
        drawn = refused = 0
        with tempfile.TemporaryDirectory() as folder:
            for case in range(CASES):
                name = choice.choice(sorted(whole))
                record = copy.deepcopy(whole[name])
                for _ in range(choice.choice((1, 1, 2, 5))):
                    damage(record, choice.choice(paths[name]), choice)
                path = Path(folder) / "record.json"
                path.write_text(json.dumps(record), encoding="utf-8")
                with self.subTest(case=case, record=name):
                    try:
                        found = records.read(path)
                    except records.RecordError as error:
                        refused += 1
                        self.assertRegex(str(error), r"^\S+: [^\n]+ \([^\n]+\); [^\n]+$")
                        continue
                    drawn += 1
                    self.assertIn("</html>", document.make([found], "damaged"))
        self.assertGreater(min(drawn, refused), CASES // 10)


if __name__ == "__main__":
    if importlib.util.find_spec("plotly") is None:
        print("skipped: no Python package plotly; run tools/setup.sh --torch")
        sys.exit(SKIPPED)
    unittest.main()
