#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Help, version, manual page, completion, and the shape and width of what the program prints."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "page"))
import sample_records  # noqa: E402

PROGRAM = os.environ["SPDKFAC"]
BUNDLED = ["--model", "resnet50", "--cluster", "paper-64x2080ti"]
VERBS = ["plan", "simulate", "advise", "models", "clusters", "algorithms", "report", "help",
         "completion", "calibrate", "describe", "train", "bench"]
PAGE_WIDTH = 100


def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=60, check=False, env=os.environ | more)


class HelpTest(unittest.TestCase):
    maxDiff = None

    def output(self, *arguments: str) -> str:
        done = run(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
        return done.stdout

    def in_folder(self) -> Path:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        return Path(temporary.name)

    def test_help_lists_every_verb(self) -> None:
        text = self.output("--help")
        for verb in VERBS:
            self.assertRegex(text, rf"(?m)^  {verb} +\w")
        self.assertEqual(self.output("help"), text)
        self.assertEqual(self.output("-h"), text)

    def test_no_arguments_print_the_help_and_are_a_mistake(self) -> None:
        done = run()
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, self.output("--help"))

    def test_help_of_a_verb_is_its_help_flag(self) -> None:
        for verb in VERBS:
            with self.subTest(verb):
                text = self.output("help", verb)
                self.assertEqual(text, self.output(verb, "--help"))
                self.assertIn(f"Usage: spdkfac {verb}", text)

    def test_help_fits_the_page_and_shows_ranges_in_words(self) -> None:
        for verb in VERBS:
            text = self.output(verb, "--help")
            for line in text.splitlines():
                self.assertLessEqual(len(line), PAGE_WIDTH, line)
            self.assertNotRegex(text, r"INT in \[|Excludes:|\{[a-z]| (INT|UINT|FLOAT|TEXT)\b(?! +Title)")
        text = " ".join(self.output("simulate", "--help").split())
        self.assertIn("--world P Number of ranks (default: the cluster's); from 1 to 16384", text)
        self.assertIn("--algorithm NAME A name from 'spdkfac algorithms', or auto; repeatable "
                      "(default: spd-kfac)", text)
        self.assertIn("one of none, bulk, naive, pipelined", text)
        self.assertIn("--jitter SHARE Vary the time of each task by up to this share (default 0); "
                      "from 0 to 0.99", text)

    def test_only_simulate_takes_several_models(self) -> None:
        self.assertIn("or 'all'; repeatable", self.output("simulate", "--help"))
        for verb in ("plan", "advise"):
            text = self.output(verb, "--help")
            self.assertNotIn("repeatable", text)
            self.assertNotIn("'all'", text)

    def test_version_says_what_was_built(self) -> None:
        text = self.output("--version")
        self.assertRegex(text, r"\Aspdkfac \d+\.\d+\.\d+\ncommit \S+\nLibTorch (none|\d\S*)\n"
                               r"CUDA (none|\d\S*)\nMPI (none|\d\S*)\nNCCL (none|yes)\n\Z")
        self.assertEqual(self.output("-V"), text)

    def test_manual_page_has_every_verb_and_flag(self) -> None:
        page = self.output("help", "--man")
        self.assertTrue(page.startswith(".TH SPDKFAC 1\n.SH NAME\nspdkfac \\- "))
        for verb in VERBS:
            self.assertIn(f"\n.SS {verb}\n", page)
            for flag in re.findall(r"(?m)^  (--[\w-]+)", self.output(verb, "--help")):
                self.assertIn(flag.replace("-", "\\-"), page)
        if shutil.which("groff"):
            done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-z"], input=page, text=True,
                                  capture_output=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def complete(self, *words: str) -> list[str]:
        script = self.output("completion", "bash")
        line = " ".join(f"'{word}'" for word in words)
        done = subprocess.run(
            ["bash", "--norc", "-c", f"{script}\nCOMP_WORDS=({line}) COMP_CWORD={len(words) - 1}\n"
             "_spdkfac\nprintf '%s\\n' \"${COMPREPLY[@]}\""],
            capture_output=True, text=True, check=True)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_bash_completes_verbs_flags_and_values(self) -> None:
        self.assertEqual(self.complete("spdkfac", "si"), ["simulate"])
        self.assertEqual(self.complete("spdkfac", "plan", "--fac"),
                         ["--factor-schedule", "--factor-reduce", "--factor-interval"])
        self.assertEqual(self.complete("spdkfac", "plan", "--placement", "b"),
                         ["balanced", "blocks"])
        self.assertEqual(self.complete("spdkfac", "advise", "--cluster", "pap"),
                         ["paper-64x2080ti"])
        self.assertEqual(self.complete("spdkfac", "simulate", "--world", "4", "--co"),
                         ["--compare"])
        self.assertEqual(self.complete("spdkfac", "simulate", "--world", ""), [])
        self.assertEqual(self.complete("spdkfac", "plan", "--algorithm", "mu"), ["muon"])
        self.assertEqual(self.complete("spdkfac", "advise", "--algorithm", "mu"), [])

    def test_other_shells_have_completion(self) -> None:
        self.assertTrue(self.output("completion", "zsh").startswith("#compdef spdkfac\n"))
        self.assertIn("-l factor-schedule -d 'When factors are sent' -x -a 'none bulk naive "
                      "pipelined'\n", self.output("completion", "fish"))
        self.assertEqual(run("completion", "tcsh").returncode, 2)

    def test_sizes_have_units(self) -> None:
        plans = {size: self.output("plan", *BUNDLED, "--fusion", "bucket", "--threshold-bytes",
                                   size, "--json")
                 for size in ("26214400", "25MiB", "25mib", "25600KiB", "26214400B", "25MB")}
        self.assertEqual(len(set(plans.values())), 2)
        for size, plan in plans.items():
            self.assertEqual(json.loads(plan)["options"]["threshold_bytes"],
                             25_000_000 if size == "25MB" else 25 * 2**20, size)

    def test_lists_are_arrays_and_single_things_objects(self) -> None:
        for arguments in (["simulate", *BUNDLED], ["simulate", *BUNDLED, "--compare"],
                          ["models"], ["clusters"], ["algorithms"]):
            self.assertIsInstance(json.loads(self.output(*arguments, "--json")), list, arguments)
        for arguments in (["plan", *BUNDLED], ["advise", *BUNDLED, "--world", "2"],
                          ["models", "resnet50"], ["clusters", "paper-64x2080ti"]):
            self.assertIsInstance(json.loads(self.output(*arguments, "--json")), dict, arguments)
        names = {one["name"] for one in json.loads(self.output("algorithms", "--json"))}
        self.assertLess({"sgd", "spd-kfac", "auto"}, names)

    def test_fields_name_their_units(self) -> None:
        prediction, = json.loads(self.output("simulate", *BUNDLED, "--json"))
        parts = prediction["breakdown_seconds"]
        self.assertAlmostEqual(sum(parts.values()), prediction["iteration_seconds"])
        self.assertEqual(prediction["iteration_seconds"], prediction["full_step_seconds"])
        row, = csv.DictReader(io.StringIO(self.output("simulate", *BUNDLED, "--csv")))
        for name, value in row.items():
            if name.endswith("_seconds"):
                self.assertRegex(value, r"\A\d+\.\d{9}\Z", name)
        self.assertAlmostEqual(float(row["iteration_seconds"]), prediction["iteration_seconds"])
        self.assertEqual(int(row["bytes_per_worker"]), round(prediction["bytes_per_worker"]))

    def test_averages_are_told_from_full_steps(self) -> None:
        rare = ["--model", "resnet50", "--cluster", "h200-400g-64", "--world", "8",
                "--factor-interval", "10", "--inverse-interval", "100"]
        self.assertRegex(self.output("simulate", *rare), r" ms per iteration on average; a full "
                         r"step takes [\d.]+ ms\n(.|\n)*of a rank's time in a full step\n")
        table = self.output("simulate", *rare, "--compare")
        self.assertIn("  10/100: averages ─", table)
        self.assertIn("  full step ─", table)
        both = self.output("simulate", *rare[:-4], "--compare")
        self.assertIn("  1/1: every step is full ─", both)
        self.assertIn("  10/100: averages ─", both)
        prediction, = json.loads(self.output("simulate", *rare, "--json"))
        self.assertLess(prediction["iteration_seconds"], prediction["full_step_seconds"])

    def test_out_writes_what_is_printed_for_programs(self) -> None:
        folder = self.in_folder()
        for arguments, flag, name in ((["simulate", *BUNDLED], "--json", "p.json"),
                                      (["simulate", *BUNDLED], "--csv", "p.csv"),
                                      (["advise", *BUNDLED, "--world", "2"], "--json", "a.json"),
                                      (["models"], "--json", "m.json"),
                                      (["models", "resnet50"], "--json", "m1.json"),
                                      (["clusters", "h200-400g-64"], "--json", "c.json"),
                                      (["algorithms"], "--json", "n.json")):
            text = self.output(*arguments, "--out", str(folder / name))
            self.assertEqual(text, self.output(*arguments))
            self.assertEqual((folder / name).read_text(encoding="utf-8"),
                             self.output(*arguments, flag))

    def test_tables_fit_the_page(self) -> None:
        rare = ["--factor-interval", "10", "--inverse-interval", "100"]
        for arguments in (["algorithms"], ["models"], ["clusters"], ["clusters", "paper-64x2080ti"],
                          ["plan", *BUNDLED], ["plan", *BUNDLED, "--algorithm", "owner-blocks"],
                          ["plan", *BUNDLED, *rare], ["simulate", *BUNDLED, "--compare"],
                          ["simulate", *BUNDLED, "--compare", "--all-methods"],
                          ["simulate", *BUNDLED, "--compare", "--all-methods", *rare],
                          ["plan", *BUNDLED, "--algorithm", "kaisa-hybrid"],
                          ["advise", *BUNDLED], ["advise", *BUNDLED, *rare]):
            for line in self.output(*arguments).splitlines():
                self.assertLessEqual(len(line), PAGE_WIDTH, line)

    def test_wide_shows_more_columns(self) -> None:
        for arguments, title in ((["algorithms"], "fusion"),
                                 (["simulate", *BUNDLED, "--compare"], "inverse min ms"),
                                 (["advise", *BUNDLED, "--world", "2"], "examples/s")):
            self.assertNotRegex(self.output(*arguments), rf"  {title}  ")
            self.assertRegex(self.output(*arguments, "--wide"), rf"  {title}  ")

    def test_report_without_plotly_says_how_to_get_it(self) -> None:
        folder = self.in_folder()
        (folder / "r.json").write_text(json.dumps(sample_records.models()), encoding="utf-8")
        python = folder / "python"  # without packages
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n', encoding="utf-8")
        python.chmod(0o755)
        done = run("report", str(folder / "r.json"), "--out", str(folder / "p.html"),
                   SPDKFAC_PYTHON=str(python))
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertRegex(done.stderr, r"\Aspdkfac: report: the Python package \w+ is missing "
                                      r"\(.*\); pip install plotly numpy, or set SPDKFAC_PYTHON .*\n\Z")


if __name__ == "__main__":
    unittest.main()
