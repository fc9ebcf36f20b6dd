#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser without a window: every chart is drawn, nothing complains.

Takes the browser of SPDKFAC_BROWSER or the first that is found; without one it is skipped (exit
code 77). Pictures go to the folder SPDKFAC_SCREENSHOTS, where that is set.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import sample_records as sample
from devtools import Browser, find_browser

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77
WIDE, NARROW = (1440, 900), (390, 844)
MOST_BARS = 8000  # as in its assets/timeline.js

# Of each chart: its size, how many traces have something drawn, and whether its axes have words.
CHARTS = """[...document.querySelectorAll('.plot')].map((div) => {
  const svg = div.querySelector('svg.main-svg');
  const box = svg ? svg.getBoundingClientRect() : {width: 0, height: 0};
  return {id: div.id, width: box.width, height: box.height, fits:
          box.right <= document.documentElement.clientWidth + 1,
          drawn: div.querySelectorAll('.trace, .bars .point, .scatterlayer .trace').length,
          titles: [...div.querySelectorAll('.xtitle, .x2title')].map((text) => text.textContent)};
})"""
# Labels of one axis that overlap each other.
OVERLAPS = """[...document.querySelectorAll('.plot')].flatMap((div) =>
  ['.xtick text', '.ytick text', '.y2tick text', '.legendtext'].flatMap((kind) => {
    const boxes = [...div.querySelectorAll(kind)].map((text) => [text.getBoundingClientRect(),
                                                                text.textContent]);
    return boxes.flatMap(([a, one], i) => boxes.slice(i + 1).filter(([b]) =>
      a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2)
      .map(([, other]) => `${div.id} ${kind}: ${one} / ${other}`));
  }))"""
# Brightness of the page and of a chart's words, 0 to 255.
BRIGHTNESS = """(() => {
  const grey = (text) => (text.match(/[\\d.]+/g) || []).slice(0, 3)
      .reduce((sum, part) => sum + Number(part) / 3, 0);
  return [grey(getComputedStyle(document.body).backgroundColor),
          grey(getComputedStyle(document.querySelector('.plot .xtick text')).fill)];
})()"""
RELAYOUT = "Plotly.relayout('{id}', {{'xaxis.range': [{low}, {high}]}}).then(() => true)"


class BrowserTest(unittest.TestCase):
    browser: Browser
    folder: tempfile.TemporaryDirectory[str]

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.browser = Browser(find_browser() or "")
        cls.addClassCleanup(cls.browser.close)
        cls.page = cls.make("page", sample.all_records())
        cls.charts = len(re.findall(r'class="plot" id="chart-\d+"', cls.page.read_text("utf-8")))

    @classmethod
    def make(cls, name: str, records: dict[str, dict]) -> Path:
        folder = Path(cls.folder.name) / name
        folder.mkdir()
        page = folder / "page.html"
        subprocess.run([sys.executable, ROOT / "python/spdkfac/page",
                        *sample.write(folder, records), "--out", page], check=True, timeout=300)
        return page

    def open(self, page: Path, size: tuple[int, int], scheme: str = "light") -> None:
        self.browser.window(*size, scheme)
        self.browser.open(page)

    def picture(self, name: str, whole: bool = True) -> None:
        folder = os.environ.get("SPDKFAC_SCREENSHOTS")
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.browser.screenshot(Path(folder) / f"{name}.png", whole)

    def assert_all_drawn(self, count: int) -> None:
        self.assertEqual(self.browser.complaints, [])
        charts = self.browser.evaluate(CHARTS)
        self.assertEqual(len(charts), count)
        for chart in charts:
            with self.subTest(chart=chart["id"]):
                self.assertGreater(chart["width"], 200)
                self.assertGreater(chart["height"], 80)
                self.assertGreaterEqual(chart["drawn"], 1)
                self.assertTrue(chart["fits"])
                self.assertTrue(any(chart["titles"]), "no words at the horizontal axis")

    def test_every_window_and_theme(self) -> None:
        for size, scheme, name in ((WIDE, "light", "wide-light"), (WIDE, "dark", "wide-dark"),
                                   (NARROW, "light", "narrow-light"),
                                   (NARROW, "dark", "narrow-dark")):
            with self.subTest(page=name):
                self.open(self.page, size, scheme)
                self.assert_all_drawn(self.charts)
                self.assertEqual(self.browser.evaluate(OVERLAPS), [])
                wide = self.browser.evaluate("document.documentElement.scrollWidth")
                self.assertLessEqual(wide, size[0])
                background, words = self.browser.evaluate(BRIGHTNESS)
                self.assertEqual(background > 128, scheme == "light")
                self.assertEqual(words > 128, scheme == "dark")
                self.picture(name)

    def test_nothing_is_loaded_from_elsewhere(self) -> None:
        self.open(self.page, WIDE)
        elsewhere = [url for url in self.browser.requests if not url.startswith(("file:", "data:",
                                                                                "blob:"))]
        self.assertEqual(elsewhere, [])
        buttons = self.browser.evaluate(
            "[...document.querySelectorAll('.modebar-btn')].map((b) => b.dataset.title)")
        self.assertEqual(set(buttons), {"Download plot as a PNG", "Zoom", "Pan", "Reset axes"})

    def test_the_button_changes_the_theme(self) -> None:
        self.open(self.page, WIDE, "light")
        seen = []
        for _ in range(3):
            self.browser.evaluate("document.getElementById('theme').click()")
            self.browser.evaluate("new Promise((done) => setTimeout(() => done(1), 300))")
            background, words = self.browser.evaluate(BRIGHTNESS)
            seen.append((self.browser.evaluate("document.getElementById('theme').textContent"),
                         background > 128, words > 128))
        self.assertCountEqual(seen, [("Theme: light", True, False), ("Theme: dark", False, True),
                                     ("Theme: auto", True, False)])
        self.assertEqual(self.browser.complaints, [])

    def test_a_new_width_moves_the_charts(self) -> None:
        self.open(self.page, WIDE)
        self.browser.window(*NARROW)
        self.browser.evaluate("new Promise((done) => setTimeout(() => done(1), 1500))")
        self.assert_all_drawn(self.charts)

    def test_printing_is_light_and_open(self) -> None:
        self.open(self.page, WIDE, "dark")
        self.browser.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        background, words = self.browser.evaluate(BRIGHTNESS)
        self.assertGreater(background, 128)
        self.assertLess(words, 128)
        self.assertTrue(self.browser.evaluate(
            "[...document.querySelectorAll('details')].every((table) => table.open)"))
        self.browser.evaluate("window.dispatchEvent(new Event('afterprint'))")
        self.assertLess(self.browser.evaluate(BRIGHTNESS)[0], 128)
        pdf = self.browser.call("Page.printToPDF", printBackground=True)["data"]
        self.assertGreater(len(pdf), 50_000)
        self.assertEqual(self.browser.complaints, [])

    def test_a_page_without_records(self) -> None:
        self.open(self.make("empty", {}), WIDE)
        self.assert_all_drawn(0)

    def test_odd_names_do_nothing(self) -> None:
        records = {"a": sample.ablation(), "i": sample.measured_iteration()}
        evil = "<img src=x onerror=window.evil=1></script><script>window.evil=1</script>\"'"
        for record in records.values():
            record.update(note=evil, cluster=evil)
            for run in record["runs"]:
                run.update(label=evil, model=evil)
        for trace in records["i"]["traces"]:
            trace["label"] = evil
            for event in trace["replay"]:
                event[3] = evil
        page = self.make("odd", records)
        self.open(page, WIDE)
        self.assertEqual(self.browser.complaints, [])
        self.assertIsNone(self.browser.evaluate("window.evil"))
        self.assertEqual(self.browser.evaluate("document.images.length"), 0)
        self.assertIn("<img src=x", self.browser.evaluate(
            "document.querySelector('.plot .ytick text').textContent"))


class TimelineTest(BrowserTest):
    """Zooming: bars are merged to what the window shows, and come apart again."""

    def bars(self) -> list[dict]:
        return self.browser.evaluate(f"""document.getElementById('{self.id}').data.flatMap(
            (trace) => trace.hovertext.map((text, i) => ({{text, y: trace.y[i], axis: trace.yaxis,
                                                start: trace.base[i], length: trace.x[i]}})))""")

    def find(self) -> None:
        self.id = self.browser.evaluate("document.querySelector('#timeline .plot').id")

    def test_a_small_trace_has_all_its_events(self) -> None:
        events = sample.trace_events(2, 0.25, 12, True, 1)
        trace = {"model": "tiny", "world": 2, "algorithm": "auto", "label": "auto",
                 "replay": events, "measured": events[:30]}
        record = sample.record("iteration", "measured", runs=[], traces=[trace])
        self.open(self.make("small", {"r": record}), WIDE)
        self.find()
        bars = self.bars()
        self.assertEqual(len(bars), len(events) + 30)
        rank, _, _, name, start, length = events[0]
        first = min((bar for bar in bars if bar["axis"] == "y" and bar["y"] == 0),
                    key=lambda bar: bar["start"])
        self.assertEqual((rank, start), (0, first["start"]))
        self.assertAlmostEqual(first["length"], 1e3 * length, places=4)
        self.assertTrue(first["text"].startswith(f"<b>{name}</b><br>FF&amp;BP<br>start "))
        # A replay stands above measured, on the same axis of time.
        self.assertGreater(*self.browser.evaluate(
            f"['yaxis', 'yaxis2'].map((axis) => document.getElementById('{self.id}')"
            ".layout[axis].domain[0])"))

    def middle(self, bar: int) -> tuple[float, float]:
        """The middle of a bar, in view."""
        self.browser.evaluate(f"document.getElementById('{self.id}').scrollIntoView("
                              "{behavior: 'instant', block: 'center'})")
        return tuple(self.browser.evaluate(f"""(() => {{
            const bars = document.querySelectorAll('#{self.id} .bars .point path');
            const box = bars[{bar}].getBoundingClientRect();
            return [box.left + box.width / 2, box.top + box.height / 2];
        }})()"""))

    def test_hovering_tells_the_event_and_dragging_zooms(self) -> None:
        trace = {"model": "tiny", "world": 1, "algorithm": "auto", "label": "auto", "measured": [
            [0, "compute", "inverse_comp", "inverse <7>", 0.0, 0.2],
            [0, "channel", "inverse_comm", "broadcast 7", 0.2, 0.05, 1234]]}
        record = sample.record("iteration", "emulated", runs=[], traces=[trace])
        self.open(self.make("hover", {"r": record}), WIDE)
        self.find()
        x, y = self.middle(0)
        for step in range(2):
            self.browser.mouse("Moved", x + step, y)
        said = f"[...document.querySelectorAll('#{self.id} .hoverlayer tspan')]" \
               ".map((line) => line.textContent)"
        self.browser.wait(f"{said}.length > 0")
        self.assertEqual(self.browser.evaluate(said)[-4:],
                         ["inverse <7>", "InverseComp", "start 0 s", "duration 200 ms"])
        for step in range(2):
            self.browser.mouse("Moved", *self.middle(1))
        self.browser.wait(f"{said}.includes('InverseComm')")
        self.assertIn("broadcast 7, 1\u202f234 elements", self.browser.evaluate(said))
        self.browser.drag(x - 50, y, 100)
        shown = f"document.getElementById('{self.id}').layout.xaxis.range"
        self.browser.wait(f"{shown}[0] > 50 && {shown}[1] < 150")
        for clicks in (1, 2):
            self.browser.mouse("Pressed", x, y, button="left", clickCount=clicks)
            self.browser.mouse("Released", x, y, button="left", clickCount=clicks)
        self.browser.wait(f"{shown}[0] === 0 && {shown}[1] > 250")
        self.assertEqual(self.browser.complaints, [])

    def test_a_million_events_stay_usable(self) -> None:
        trace = {"model": "tiny", "world": 8, "algorithm": "auto", "label": "auto",
                 "replay": sample.many_events(1_000_000),
                 "measured": sample.trace_events(8, 0.6, 54, True, 1)}
        record = sample.record("iteration", "measured", runs=[], traces=[trace])
        self.open(self.make("huge", {"r": record}), WIDE)
        self.assert_all_drawn(1)
        self.find()
        whole = self.bars()
        self.assertLessEqual(len(whole), MOST_BARS)
        self.assertIn("too short to see here", self.browser.evaluate(
            "document.querySelector('.merged').textContent"))
        start = self.browser.evaluate("performance.now()")
        self.browser.evaluate(RELAYOUT.format(id=self.id, low=100, high=110))
        self.assertLess(self.browser.evaluate("performance.now()") - start, 10_000)
        part = [bar for bar in self.bars() if bar["axis"] == "y"]
        shown = max(bar["length"] for bar in whole if bar["axis"] == "y")
        self.assertLess(max(bar["length"] for bar in part), shown)  # finer than before
        self.assertTrue(all(99 <= bar["start"] <= 111 for bar in part))
        self.picture("timeline-huge-zoomed")
        self.assertEqual(self.browser.complaints, [])

    def test_many_ranks_are_shown_in_parts(self) -> None:
        trace = {"model": "tiny", "world": 20, "algorithm": "auto", "label": "auto",
                 "replay": sample.trace_events(20, 0.3, 10, True, 1), "measured": None}
        record = sample.record("iteration", "simulated", runs=[], traces=[trace])
        self.open(self.make("ranks", {"r": record}), WIDE)
        self.find()
        labels = "[...document.querySelectorAll('.ytick text')].map((text) => text.textContent)"
        self.assertEqual(len(self.browser.evaluate(labels)), 16)
        self.browser.evaluate("""(() => {
            const select = document.querySelector('.controls select');
            select.selectedIndex = 2;
            select.dispatchEvent(new Event('change'));
        })()""")
        self.assertIn("rank 19 channel", self.browser.evaluate(labels))
        self.assertEqual(len(self.browser.evaluate(labels)), 8)


def load_tests(loader: unittest.TestLoader, *_: object) -> unittest.TestSuite:
    """Each test once: those of BrowserTest do not run again for the class that inherits them."""
    suite = unittest.TestSuite(loader.loadTestsFromTestCase(BrowserTest))
    own = [name for name in loader.getTestCaseNames(TimelineTest) if name in vars(TimelineTest)]
    suite.addTests(map(TimelineTest, own))
    return suite


if __name__ == "__main__":
    if find_browser() is None:
        print("skipped: no browser found; install the Debian package chromium, or name one in "
              "SPDKFAC_BROWSER")
        sys.exit(SKIPPED)
    if importlib.util.find_spec("plotly") is None:
        print("skipped: no Python package plotly; run tools/setup.sh --torch")
        sys.exit(SKIPPED)
    unittest.main()
