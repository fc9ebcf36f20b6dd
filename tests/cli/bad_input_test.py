#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Damaged model, cluster and plan files, and flags that contradict each other.

Every row of bad_input_cases.py ends with exit code 2, nothing on stdout and exactly its message on
stderr. What the parser of flags says in its own words is in errors_test.py.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any

from bad_input_cases import (BUNDLED, CLUSTER, CLUSTER_CASES, FILES, FLAG_CASES, MISFIT_CASES,
                             MODEL, MODEL_CASES, PLAN_CASES, Change)

PROGRAM = os.environ["SPDKFAC"]
USAGE_MISTAKE = 2


class BadInputTest(unittest.TestCase):
    maxDiff = None

    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.write("model.json", MODEL)
        self.write("cluster.json", CLUSTER)

    def write(self, name: str, document: Any) -> None:
        text = document if isinstance(document, str) else json.dumps(document)
        (self.folder / name).write_text(text, encoding="utf-8")

    def damage(self, name: str, document: Any, change: Change | str) -> None:
        if isinstance(change, str):
            self.write(name, change)
        else:
            damaged = copy.deepcopy(document)
            change(damaged)
            self.write(name, damaged)

    def run_program(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        done = subprocess.run([PROGRAM, *arguments], cwd=self.folder, stdin=subprocess.DEVNULL,
                              env=os.environ | environment, capture_output=True, text=True,
                              timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr

    def assert_mistake(self, arguments: list[str], message: str, **environment: str) -> None:
        self.assertEqual(self.run_program(*arguments, **environment),
                         (USAGE_MISTAKE, "", f"spdkfac: {message}\n"))

    def plan_of(self, algorithm: str) -> Any:
        code, _, stderr = self.run_program("plan", *FILES, "--algorithm", algorithm, "--out",
                                           "plan.json")
        self.assertEqual((code, stderr), (0, ""))
        return json.loads((self.folder / "plan.json").read_text(encoding="utf-8"))

    def test_valid_files_are_accepted(self) -> None:
        for algorithm in sorted({case.algorithm for case in PLAN_CASES}):
            self.plan_of(algorithm)
            code, _, stderr = self.run_program("simulate", *FILES, "--plan", "plan.json")
            self.assertEqual((code, stderr), (0, ""), algorithm)

    def test_names_of_cases_are_distinct(self) -> None:
        for cases in (MODEL_CASES, CLUSTER_CASES + MISFIT_CASES, PLAN_CASES, FLAG_CASES):
            names = [case.name for case in cases]
            self.assertEqual(len(names), len(set(names)))

    def test_model_files(self) -> None:
        for case in MODEL_CASES:
            with self.subTest(case.name):
                self.damage("model.json", MODEL, case.change)
                self.assert_mistake(["simulate", *FILES], f"model.json: {case.message}")

    def test_cluster_files(self) -> None:
        for case in CLUSTER_CASES:
            with self.subTest(case.name):
                self.damage("cluster.json", CLUSTER, case.change)
                self.assert_mistake(["plan", *FILES], f"cluster.json: {case.message}")

    def test_clusters_that_do_not_fit_the_model(self) -> None:
        for case in MISFIT_CASES:
            with self.subTest(case.name):
                self.damage("cluster.json", CLUSTER, case.change)
                self.assert_mistake(["simulate", *FILES, "--world", "2"], case.message)

    def test_plan_files(self) -> None:
        plans = {case.algorithm: self.plan_of(case.algorithm) for case in PLAN_CASES}
        for case in PLAN_CASES:
            with self.subTest(case.name):
                self.damage("plan.json", plans[case.algorithm], case.change)
                self.assert_mistake(["simulate", *FILES, "--plan", "plan.json"],
                                    f"plan.json: {case.message}")

    def test_flags(self) -> None:
        for case in FLAG_CASES:
            with self.subTest(case.name):
                self.assert_mistake(case.arguments, case.message)

    def test_paths_that_cannot_be_read(self) -> None:
        self.plan_of("sgd")
        (self.folder / "folder").mkdir()
        for path, problem in (
                ("folder", "is a directory; give the path of a file"),
                ("absent.json", "cannot be opened (No such file or directory); check the path"),
                ("model.json/x", "cannot be opened (Not a directory); check the path")):
            for flag in ("--model-file", "--cluster-file", "--plan"):
                with self.subTest(flag=flag, path=path):
                    given = [*FILES, "--plan", "plan.json"]
                    given[given.index(flag) + 1] = path
                    self.assert_mistake(["simulate", *given], f"{path}: {problem}")

    def test_paths_that_cannot_be_written(self) -> None:
        (self.folder / "folder").mkdir()
        before = sorted(self.folder.rglob("*"))
        remedy = "check the folder, its permissions and its free space"
        for path, reason in (("absent/x.json", "No such file or directory"),
                             ("folder", "Is a directory"),
                             ("model.json/x", "Not a directory"),
                             ("/dev/full", "No space left on device")):
            for command in (["plan", *FILES, "--out"], ["simulate", *FILES, "--trace"]):
                with self.subTest(command=command[0], path=path):
                    self.assert_mistake([*command, path],
                                        f"{path}: cannot be written ({reason}); {remedy}")
                    self.assertEqual(sorted(self.folder.rglob("*")), before)

    def test_a_mistake_leaves_the_output_as_it_was(self) -> None:
        self.write("plan.json", "before")
        self.write("cluster.json", "{}")
        self.assert_mistake(["plan", *FILES, "--out", "plan.json"],
                            'cluster.json: missing field "format"; add it')
        self.assertEqual((self.folder / "plan.json").read_text(encoding="utf-8"), "before")

    def test_data_that_is_not_there(self) -> None:
        message = ("data: nowhere has no folders models and clusters (from SPDKFAC_DATA); install "
                   "spdkfac with its data, or set SPDKFAC_DATA to the data folder of the sources")
        for arguments in (["models"], ["clusters"], ["simulate", *BUNDLED]):
            with self.subTest(arguments=arguments):
                self.assert_mistake(arguments, message, SPDKFAC_DATA="nowhere")


if __name__ == "__main__":
    unittest.main()
