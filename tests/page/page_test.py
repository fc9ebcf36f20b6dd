#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page that the package spdkfac.page writes: its sections, its words, and what it refuses.

Skipped (exit code 77) without the package plotly.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import re
import subprocess
import sys
import tempfile
import time
import unittest
from html.parser import HTMLParser
from pathlib import Path

import malformed_cases
import sample_records as sample

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python/spdkfac"))

from page import command  # noqa: E402  (without spdkfac, which needs torch)

PROGRAM = ROOT / "python/spdkfac/page"
USAGE_MISTAKE = 2
SKIPPED = 77
MOST_BYTES = 30_000_000
MOST_SECONDS = 60
SECTIONS = ("summary", "iteration", "timeline", "breakdown", "pipelining", "placement", "ablation",
            "scaling", "fits", "models", "memory", "step", "accuracy", "convergence", "target")
# Which sections one record of each experiment gives, besides the summary.
SECTIONS_OF = {"iteration": {"iteration", "timeline", "breakdown"}, "comm": {"fits"},
               "inverse": {"fits"}, "breakdowns": {"breakdown"},
               "iteration-simulated": {"iteration", "breakdown"}}


class Page(HTMLParser):
    """What a browser would see: sections, charts, and the text of each element that counts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.sections: list[str] = []
        self.plots: list[str] = []
        self.tags: set[str] = set()
        self.loads: list[str] = []
        self.text = ""
        self.skipped = 0
        # Scripts have megabytes that the parser reads slowly.
        self.feed(re.sub(r"(<script\b[^>]*>).*?(</script>)", r"\1\2", html, flags=re.S))
        self.text = re.sub(r"\s+", " ", self.text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.tags.add(tag)
        if tag in ("script", "style"):
            self.skipped += 1
        if tag == "section":
            self.sections.append(found["id"] or "")
        if "plot" in (found.get("class") or "").split():
            self.plots.append(found["id"] or "")
        self.loads += [found[name] or "" for name in ("src", "href") if name in found]

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self.skipped -= 1

    def handle_data(self, data: str) -> None:
        if not self.skipped:
            self.text += data + (" " if data.strip() else "")


def charts_of(html: str) -> list[dict]:
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', html, re.S)
    return json.loads(found.group(1))


class PageTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.out = self.folder / "page.html"

    def run_program(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """In this process: plotly takes a second to load."""
        out, err = io.StringIO(), io.StringIO()
        words = [str(argument) for argument in arguments]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = command.main(words)
            except SystemExit as left:
                code = left.code
        return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())

    def make(self, records: dict[str, dict], *more: str) -> tuple[Page, str]:
        done = self.run_program(*sample.write(self.folder, records), "--out", self.out, *more)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        html = self.out.read_text(encoding="utf-8")
        page = Page(html)
        self.assertEqual(page.plots, [f"chart-{number}" for number in range(len(charts_of(html)))])
        return page, html

    def assert_says(self, page: Page, sentence: str) -> None:
        self.assertIn(sentence, page.text.replace("\u00a0", " "))


class ContentTest(PageTest):
    def test_the_folder_runs_as_a_program(self) -> None:
        subprocess.run([sys.executable, PROGRAM, "--out", self.out], stdin=subprocess.DEVNULL, check=True,
                       timeout=300)
        self.assertIn("summary", Page(self.out.read_text(encoding="utf-8")).sections)

    def test_no_records_give_a_page_that_says_so(self) -> None:
        page, html = self.make({})
        self.assertEqual(page.sections, ["summary"])
        self.assert_says(page, "No records were given, so there is nothing to show.")
        self.assertLess(len(html), 100_000)  # without plotly

    def test_empty_records_give_a_page_that_says_so(self) -> None:
        empty = {"iteration": sample.record("iteration", "measured", runs=[]),
                 "models": sample.record("models", "simulated", models=[]),
                 "comm": sample.record("comm", "measured", curves=[]),
                 "memory": sample.record("memory", "measured", memory=[]),
                 "convergence": sample.record("convergence", "measured", convergence=[]),
                 "target": sample.record("target", "measured", target=[]),
                 "traces": sample.record("placement", "measured", runs=[], traces=[])}
        page, _ = self.make(empty)
        self.assertEqual(page.sections, ["summary"])
        self.assert_says(page, "The records are empty")

    def test_all_records_give_all_sections_once(self) -> None:
        page, html = self.make(sample.all_records(), "--title", "A <title>")
        self.assertEqual(page.sections, list(SECTIONS))
        self.assertIn("<title>A &lt;title&gt;</title>", html)
        self.assertEqual(html.count("* plotly.js v"), 1)
        outside = [address for address in page.loads if not address.startswith(("#", "data:"))]
        self.assertEqual(outside, [])
        for word in ("simulated", "measured", "emulated"):
            self.assertIn(f'<span class="badge {word}"', html)

    def test_options_are_words_and_no_json(self) -> None:
        record = sample.all_records()["iteration"]
        record["options"] = {"settings": [{"model": "resnet50", "input": [3, 64, 64],
                                           "channels_last": False, "note": ""}],
                             "algorithms": ["D-KFAC", "auto"], "profile_steps": 5}
        page, _ = self.make({"iteration": record})
        self.assert_says(page, "model resnet50, input 3×64×64, channels last no")
        self.assert_says(page, "D-KFAC; auto")
        self.assert_says(page, "profile steps")

    def test_each_experiment_alone(self) -> None:
        for name, record in sample.all_records().items():
            with self.subTest(record=name):
                page, _ = self.make({name: record})
                self.assertEqual(set(page.sections), {"summary"} | SECTIONS_OF.get(name, {name}))
                self.assertTrue(page.plots)
                for fact in ("018e0f8", "2026-11-15T21:00:00Z", "Intel(R) Xeon(R), 2 cores"):
                    self.assert_says(page, fact)

    def test_runs_with_nothing_measured_or_simulated(self) -> None:
        runs = [sample.run("tiny", 1, "spd-kfac"), sample.run("tiny", 1, "d-kfac", paper=1.5),
                sample.run("tiny", 1, "sgd", forecast={"iteration": 0.0}),
                sample.run("tiny", 1, "auto", measured={"median": 0, "low": 0, "high": 0})]
        for experiment in ("iteration", "breakdown", "pipelining", "placement", "ablation",
                           "scaling"):
            for number in range(1, len(runs) + 1):
                with self.subTest(experiment=experiment, runs=number):
                    self.make({"r": sample.record(experiment, "measured", runs=runs[:number])})

    def test_tiny_records_of_the_others(self) -> None:
        curve = {"name": "all_reduce", "unit": "elements", "points": [[0, 0.0], [1, 0.1]],
                 "fits": [{"form": "affine", "text": "", "r2": None, "mean_residual": None,
                           "curve": []}]}
        model = {"name": "m", "parameters": 1, "layers": 1, "batch": 1, "a_elements": 1,
                 "g_elements": 1, "dims_a": [1], "dims_g": [], "paper": None}
        line = {"label": "SGD", "seed": 0, "settings": "",
                "points": [{"step": 0, "seconds": 0, "loss": None, "accuracy": None}]}
        zero = {"model": "m", "world": 1, "algorithm": "x", "label": "",
                "ranks": [{"factors": 0, "inverses": 0, "buffers": 0}]}
        trace = {"model": "m", "world": 1, "algorithm": "x", "label": "",
                 "forecast": [[3, "channel", "grad_comm", "", 0, 0]], "measured": None}
        page, _ = self.make({
            "comm": sample.record("comm", "measured", curves=[curve]),
            "inverse": sample.record("inverse", "measured", curves=[curve, curve], threshold=None),
            "models": sample.record("models", "simulated", models=[model]),
            "memory": sample.record("memory", "measured", memory=[zero]),
            "convergence": sample.record("convergence", "measured", convergence=[line]),
            "traces": sample.record("scaling", "emulated", runs=[], traces=[trace])})
        self.assertEqual(page.sections, ["summary", "timeline", "fits", "models", "memory",
                                         "convergence"])

    def test_variants_of_one_algorithm_have_colours_of_their_own(self) -> None:
        record = sample.placement()
        for run, label in zip(record["runs"], ("Non-Dist", "Seq-Dist", "LBP")):
            run.update(algorithm="spd-kfac", label=label)
        _, html = self.make({"placement": record})
        traces = charts_of(html)[0]["data"]
        self.assertEqual(len({trace["marker"]["color"] for trace in traces}), 3)

    def test_unknown_fields_are_let_through(self) -> None:
        record = sample.ablation()
        record["new"] = {"a": 1}
        record["runs"][0]["measured"]["new"] = None
        self.make({"ablation": record})

    def test_same_records_give_the_same_page(self) -> None:
        records = {"iteration": sample.measured_iteration()}
        self.assertEqual(self.make(records)[1], self.make(records)[1])


class WordsTest(PageTest):
    """Sentences against values worked out by hand."""

    def iteration(self, *runs: dict) -> Page:
        return self.make({"r": sample.record("iteration", "measured", runs=list(runs))})[0]

    @staticmethod
    def timed(algorithm: str, low: float, median: float, high: float, replay: float,
              **more: object) -> dict:
        return sample.run("tiny", 4, algorithm, replay={"iteration": replay}, measured={
            "samples": [], "median": median, "low": low, "high": high, **more})

    def test_main_sentences_of_the_sample(self) -> None:
        page, _ = self.make({"iteration": sample.measured_iteration()})
        # Exposed 0.06, messages 0.21 of 276 ms: hidden 1 - 6/21 = 71 %; exposed 16.56 ms, 6 %.
        self.assert_says(page, "SPD-KFAC hides 71 % of factor communication; the exposed rest is "
                               "16.6 ms of 276 ms (6 %).")
        self.assert_says(page, "Fastest second-order algorithm: auto with 260 ms (measured).")
        self.assert_says(page, "SPD-KFAC is 1.31 × as fast as D-KFAC (SP1).")  # 362.5 / 276
        self.assert_says(page, "SPD-KFAC is 1.18 × as fast as MPD-KFAC (SP2).")  # 325 / 276
        # 4.35, 2.07, 4.62, 2.17 and 4.62 %: 3.56 % on average.
        self.assert_says(page, "Replays are 4 % off on average, at worst 5 % (MPD-KFAC, less "
                               "than measured).")
        # 0.121/0.115, 0.407/0.3625, 0.341/0.325, 0.297/0.276, 0.2992/0.26: 5, 12, 5, 8 and 15 %.
        self.assert_says(page, "Forecasts are 9 % off on average, at worst 15 % (auto, more than "
                               "measured).")
        # 270 < 272 ms replayed, 276 > 260 ms measured, and the samples can tell.
        self.assert_says(page, "Replays have another order than measured for SPD-KFAC / auto.")

    def test_what_samples_cannot_tell_is_no_difference(self) -> None:
        page = self.iteration(self.timed("d-kfac", 1.0, 1.1, 1.2, 1.0, alike=["SPD-KFAC"]),
                              self.timed("spd-kfac", 0.9, 1.0, 1.05, 1.2, alike=["D-KFAC"]))
        self.assert_says(page, "SPD-KFAC against D-KFAC (SP1): the difference is not significant "
                               "(1.10 ×).")
        self.assert_says(page, "Fastest second-order algorithm: SPD-KFAC with 1.00 s (measured); "
                               "the difference to D-KFAC is not significant.")
        # Replayed the other way round, but what was measured does not differ.
        self.assert_says(page, "Replays have the order of the algorithms as measured.")

    def test_what_samples_can_tell_is_a_difference_whatever_the_intervals(self) -> None:
        page = self.iteration(self.timed("d-kfac", 1.0, 1.2, 1.3, 1.2),
                              self.timed("spd-kfac", 0.9, 1.0, 1.1, 1.0))
        self.assert_says(page, "SPD-KFAC is 1.20 × as fast as D-KFAC (SP1).")

    def test_steps_and_accuracies_in_words(self) -> None:
        page, _ = self.make({"step": sample.step(), "accuracy": sample.accuracy()})
        self.assertEqual(page.sections, ["summary", "step", "accuracy"])
        self.assert_says(page, ", 1.50 × an SGD step (")  # every sample is half as long again
        self.assert_says(page, "In bf16 preconditioned gradients are 5.0e-03 off.")

    def test_speed_ups_of_forecasts_and_of_the_paper(self) -> None:
        runs = [sample.run("tiny", 4, "d-kfac", paper=3.0, forecast={"iteration": 2.0}),
                sample.run("tiny", 4, "spd-kfac", paper=2.0, forecast={"iteration": 1.0})]
        page, _ = self.make({"r": sample.record("iteration", "simulated", runs=runs)})
        self.assert_says(page, "SPD-KFAC is 2.00 × as fast as D-KFAC (SP1, forecast; the paper "
                               "has 1.50 ×).")
        self.assert_says(page, "Fastest second-order algorithm: SPD-KFAC with 1.00 s (forecast).")

    def test_hidden_communication(self) -> None:
        # 12 ms of 40 ms stay visible: 70 % are hidden; 12 / 300 is 4 % of the iteration.
        page = self.iteration(self.timed("spd-kfac", 0.29, 0.3, 0.31, 0.3, factor_messages=0.04,
                                         breakdown={"factor_comm": 0.012, "ff_bp": 0.288}))
        self.assert_says(page, "SPD-KFAC hides 70 % of factor communication; the exposed rest is "
                               "12.0 ms of 300 ms (4 %).")
        self.assert_says(page, "SPD-KFAC spends most of its time on FF&BP: 288 ms, 96 %.")

    def test_nearly_all_is_not_all(self) -> None:
        def hidden(exposed: float) -> Page:
            return self.iteration(self.timed("spd-kfac", 0.9, 1.0, 1.1, 1.0, factor_messages=0.5,
                                             breakdown={"factor_comm": exposed}))
        self.assert_says(hidden(0.001), "SPD-KFAC hides 99.8 % of factor communication")
        self.assert_says(hidden(1e-9), "SPD-KFAC hides 99.9 % of factor communication")
        self.assert_says(hidden(0), "SPD-KFAC hides all factor communication.")
        self.assert_says(hidden(0.7), "SPD-KFAC hides 0 % of factor communication")

    def test_ablation_and_memory_and_convergence(self) -> None:
        page, _ = self.make({"a": sample.ablation(), "m": sample.memory(),
                             "c": sample.convergence(), "i": sample.inverse()})
        self.assert_says(page, "+Pipe+LBP saves 23 % of the time of -Pipe-LBP.")  # 1 - 276/360
        # 307 + 307 * 1.0 * (1 + 0.1 wobble) + 76 MB on rank 3 of D-KFAC, worked out once.
        most = 307 + 307 * (1 + 0.1 * sample.wobble(3)) + 76
        self.assert_says(page, f"D-KFAC needs most, {most:.0f} MB.")
        self.assert_says(page, "Inverting is cheaper than receiving up to dimension 512.")
        self.assert_says(page, "accuracy is reached by K-FAC after")


    def test_time_to_target(self) -> None:
        page, html = self.make({"target": sample.target()})
        # Seeds 1 to 3 take 300, 306 and 312 steps of 20 ms, K-FAC 90, 96 and 102 of 40 ms.
        self.assert_says(page, "AdamW reaches test loss 1.2 after 306 steps and 6.12 s (median of 3 seeds).")
        self.assert_says(page, "K-FAC reaches test loss 1.2 after 96 steps and 3.84 s, 0.63 of the time of "
                               "the best first-order optimizer (median of 3 seeds).")
        self.assert_says(page, "SGD does not reach it (1 of 3 seeds).")
        lines = charts_of(html)[1]
        self.assertEqual(lines["layout"]["shapes"][0]["y0"], 1.2)
        self.assertEqual(lines["layout"]["yaxis"]["type"], "log")


class RefusalTest(PageTest):
    def assert_refused(self, path: Path, message: str) -> None:
        done = self.run_program(path, "--out", self.out)
        self.assertEqual((done.returncode, done.stdout), (USAGE_MISTAKE, ""), done.stderr)
        self.assertEqual(done.stderr, f"spdkfac: {path}: {message}\n")
        self.assertFalse(self.out.exists())

    def test_files_that_are_no_records(self) -> None:
        path = self.folder / "bad.json"
        for content, message in malformed_cases.FILES:
            with self.subTest(message=message):
                path.write_bytes(content)
                self.assert_refused(path, message)

    def test_files_that_cannot_be_read(self) -> None:
        self.assert_refused(self.folder / "none.json", "file: cannot be read (\"No such file or "
                                                       "directory\"); check its path")
        self.assert_refused(self.folder, "file: cannot be read (\"Is a directory\"); check its "
                                         "path")

    def test_wrong_and_missing_fields(self) -> None:
        records = sample.all_records()
        path = self.folder / "bad.json"
        for case in malformed_cases.FIELDS:
            with self.subTest(experiment=case[0], path=case[1], message=case[3]):
                path.write_text(json.dumps(malformed_cases.broken(case, records)))
                self.assert_refused(path, case[3])

    def test_a_long_value_is_cut_and_one_line_stays_one(self) -> None:
        path = self.folder / "bad.json"
        record = sample.ablation()
        record["mode"] = "fast\n" * 100
        path.write_text(json.dumps(record))
        done = self.run_program(path, "--out", self.out)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertLess(len(done.stderr), 300 + len(str(path)))

    def test_a_page_stays_when_a_record_is_refused(self) -> None:
        self.out.write_text("old")
        bad = self.folder / "bad.json"
        bad.write_text("{")
        done = self.run_program(bad, "--out", self.out)
        self.assertEqual(done.returncode, USAGE_MISTAKE)
        self.assertEqual(self.out.read_text(), "old")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["bad.json", "page.html"])

    def test_a_folder_that_is_not_there(self) -> None:
        out = self.folder / "none" / "page.html"
        done = self.run_program("--out", out)
        self.assertEqual(done.returncode, USAGE_MISTAKE)
        self.assertEqual(done.stderr, f"spdkfac: {out}: --out: cannot be written (No such file or "
                                      "directory); check its folder\n")

    def test_usage_mistakes(self) -> None:
        for arguments in ([], ["--coffee", "--out", "x"]):
            self.assertEqual(self.run_program(*arguments).returncode, USAGE_MISTAKE)


class OddNamesTest(PageTest):
    NAMES = ("<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>",
             "\"quotes' & <b>", "ünïcode 模型 \U0001f680", "%{x} {0} $x$ \\", "line\nbreak\u2028",
             "\ud800 alone", "", "long " * 100)

    def test_names_are_text_wherever_they_stand(self) -> None:
        for name in self.NAMES:
            with self.subTest(name=name):
                records = sample.all_records()
                del records["iteration-simulated"], records["models"], records["scaling"]
                self.rename(records, name)
                page, html = self.make(records, "--title", name.encode("utf-8", "replace").decode())
                self.assertNotIn("img", page.tags)
                scripts = len(re.findall(r"<script\b", html)) - html.count("<script>alert(1)")
                self.assertEqual(scripts, html.count("</script>"))
                self.assertNotIn("onerror=alert(1)>", html)

    def rename(self, value: object, name: str) -> None:
        """Puts the name wherever a record has a text of the user's choice."""
        texts = {"model", "label", "cluster", "note", "host", "device", "commit", "time", "version",
                 "name", "form", "text", "settings", "algorithm"}
        if isinstance(value, dict):
            for key, inner in value.items():
                if key in texts and isinstance(inner, str) and inner not in (
                        "spd-kfac", "d-kfac", "mpd-kfac"):
                    value[key] = name
                elif key == "options":
                    value[key] = {name: name}
                elif key in ("forecast", "replay", "measured") and isinstance(inner, list):
                    for event in inner:
                        event[3] = name
                else:
                    self.rename(inner, name)
        elif isinstance(value, list):
            for inner in value:
                self.rename(inner, name)


class HugeTraceTest(PageTest):
    def test_a_million_events_are_reduced(self) -> None:
        events = sample.many_events(1_000_000)
        trace = {"model": "tiny", "world": 8, "algorithm": "spd-kfac", "label": "SPD-KFAC",
                 "replay": events, "measured": sample.trace_events(8, 0.6, 54, True, 1)}
        record = sample.record("iteration", "measured", runs=[], traces=[trace])
        paths = sample.write(self.folder, {"huge": record})
        start = time.monotonic()
        done = self.run_program(*paths, "--out", self.out)
        seconds = time.monotonic() - start
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertLess(seconds, MOST_SECONDS)
        self.assertLess(self.out.stat().st_size, MOST_BYTES)
        page = Page(self.out.read_text(encoding="utf-8"))
        self.assertRegex(page.text, r"1 000 000 of 1 000 000 events were shorter than .* and are "
                                    r"merged with their neighbours; \d+ \d+ are left\.")


if __name__ == "__main__":
    if importlib.util.find_spec("plotly") is None:
        print("skipped: no Python package plotly; run tools/setup.sh --torch")
        sys.exit(SKIPPED)
    unittest.main()
