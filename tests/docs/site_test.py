#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make docs`: the site builds without a warning, needs no network, and its search knows every page.

Skipped without the packages of requirements-docs.txt (tools/setup.sh --docs).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77
# Attributes that a browser follows by itself, and links that a reader follows.
LOADED = {"script": "src", "img": "src", "source": "srcset", "iframe": "src"}
# Pages with words that they must have, and that a search must find.
PAGES = {"index.html": "Accelerate", "install.html": "LibTorch", "first-steps-python.html": "SPDKFACOptimizer",
         "first-steps-cpp.html": "find_package", "concepts.html": "curvature", "choosing.html": "damping",
         "faq.html": "GradScaler", "launching.html": "mpirun", "forecasting.html": "simulate",
         "reference/python.html": "rescale_weights", "reference/cpp.html": "gradients_zeroed",
         "reference/help.html": "--factor-interval", "cli.html": "--replicate-below", "formats.html": "spdkfac.plan/1",
         "benchmarking.html": "kfac-pytorch", "limits.html": "compute capability", "glossary.html": "iteration",
         "project/CHANGELOG.html": "Unreleased", "project/examples/minimal.cpp.html": "two_spirals"}


def interpreter() -> str | None:
    """One that has mkdocs with what the site needs."""
    for python in (str(ROOT / ".venv-docs/bin/python"), sys.executable):
        done = subprocess.run([python, "-c", "import mkdocs, material, mkdocstrings_handlers.python"],
                              capture_output=True, check=False) if Path(python).exists() else None
        if done and done.returncode == 0:
            return python
    return None


class Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        if tag in LOADED and LOADED[tag] in values:
            self.loaded.append(values[LOADED[tag]])
        if tag == "link" and values.get("rel") in ("stylesheet", "icon", "preconnect", "preload"):
            self.loaded.append(values["href"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])


class SiteTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        python = interpreter()
        assert python
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.site = Path(temporary.name, "site")
        cls.done = subprocess.run([python, "-m", "mkdocs", "build", "--strict", "--site-dir", cls.site], cwd=ROOT,
                                  env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
                                  timeout=100, check=False)

    def setUp(self) -> None:
        self.assertEqual(self.done.returncode, 0, self.done.stdout + self.done.stderr)
        self.pages = {path: Page(path) for path in sorted(self.site.rglob("*.html")) if path.name != "404.html"}

    def test_every_page_of_docs_is_in_the_navigation_or_left_out_on_purpose(self) -> None:
        _, found, omitted = self.done.stderr.partition('not included in the "nav" configuration:')
        self.assertFalse(found, f"add these pages to nav in mkdocs.yml:{omitted}")

    def test_loads_nothing_from_elsewhere(self) -> None:
        for path, page in self.pages.items():
            for address in page.loaded:
                with self.subTest(page=path.relative_to(self.site), loads=address):
                    self.assertNotIn("//", address)
                    self.assertTrue((path.parent / address.partition("#")[0]).resolve().is_file())

    def test_links_lead_to_pages_that_are_there(self) -> None:
        for path, page in self.pages.items():
            for address in page.links:
                target = unquote(address.partition("#")[0])
                if target and not target.startswith(("http://", "https://", "mailto:")):
                    with self.subTest(page=path.relative_to(self.site), link=address):
                        self.assertTrue((path.parent / target).resolve().exists())

    def test_the_search_knows_the_pages(self) -> None:
        index = (self.site / "search/search_index.js").read_text(encoding="utf-8").removeprefix("var __index = ")
        texts: dict[str, str] = {}
        for entry in json.loads(index)["docs"]:
            name = entry["location"].partition("#")[0] or "index.html"
            texts[name] = texts.get(name, "") + entry["title"] + entry["text"]
        for name, words in PAGES.items():
            with self.subTest(page=name):
                self.assertTrue((self.site / name).is_file())
                self.assertIn(words, texts.get(name, ""))


if __name__ == "__main__":
    if interpreter() is None:
        print("skipped: the packages of requirements-docs.txt are not installed; run tools/setup.sh --docs")
        sys.exit(SKIPPED)
    unittest.main()
