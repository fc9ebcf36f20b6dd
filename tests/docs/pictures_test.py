#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pictures of docs/pictures can be read: labels lie in the picture and not on each other, in both colours."""

from __future__ import annotations

import unittest
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURES = sorted((ROOT / "docs/pictures").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"
# Widths of letters in a wide font (DejaVu Sans), as shares of its size: narrow ones, and all others on average.
NARROW, WIDE, BOLD = 0.36, 0.62, 1.1
MAX_BYTES = 40_000


@dataclass
class Label:
    words: str
    left: float
    right: float
    top: float
    bottom: float

    def meets(self, other: Label) -> bool:
        return (self.left < other.right and other.left < self.right
                and self.top < other.bottom and other.top < self.bottom)


def labels(root: ElementTree.Element) -> list[Label]:
    found = []
    for text in root.iter(f"{SVG}text"):
        words = text.text or ""
        size = float(text.get("font-size", root.get("font-size", "11")))
        width = size * sum(NARROW if letter in " .,:;'|ijlft()/" else WIDE for letter in words)
        width *= BOLD if text.get("font-weight") else 1
        x, y = float(text.get("x", 0)), float(text.get("y", 0))
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[text.get("text-anchor", "start")]
        found.append(Label(words, left, left + width, y - 0.72 * size, y + 0.05 * size))
    return found


class PicturesTest(unittest.TestCase):
    def test_there_is_one_for_light_and_one_for_dark(self) -> None:
        names = {path.stem for path in PICTURES if not path.stem.startswith("badge-")}
        self.assertTrue({"training-light", "step-cost-light", "timeline-light"} <= names)
        for name in names:
            base, _, theme = name.rpartition("-")
            self.assertIn(f"{base}-{'dark' if theme == 'light' else 'light'}", names)

    def test_labels_lie_in_the_picture_and_not_on_each_other(self) -> None:
        for path in PICTURES:
            if path.stem.startswith("badge-"):
                continue
            root = ElementTree.parse(path).getroot()
            _, _, width, height = map(float, root.get("viewBox", "").split())
            found = labels(root)
            self.assertTrue(found, path)
            for index, label in enumerate(found):
                with self.subTest(picture=path.name, label=label.words):
                    self.assertGreaterEqual(label.left, 0)
                    self.assertLessEqual(label.right, width)
                    self.assertLessEqual(label.bottom, height)
                    self.assertEqual([other.words for other in found[:index] if label.meets(other)], [])

    def test_are_small_and_say_what_they_show(self) -> None:
        for path in PICTURES:
            with self.subTest(picture=path.name):
                self.assertLess(path.stat().st_size, MAX_BYTES)
                root = ElementTree.parse(path).getroot()
                self.assertTrue(root.get("aria-label"))
                self.assertEqual(root.get("aria-label"), root.findtext(f"{SVG}title"))

    def test_every_picture_of_a_page_is_there_and_has_words(self) -> None:
        for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
            text = page.read_text(encoding="utf-8")
            for line in text.splitlines():
                if line.strip().startswith("<source"):
                    name = line.split('srcset="')[1].split('"')[0]
                    self.assertTrue((page.parent / name).is_file(), f"{page}: {name}")
                elif line.strip().startswith("<img"):
                    name, words = (line.split(f'{field}="')[1].split('"')[0] for field in ("src", "alt"))
                    self.assertTrue((page.parent / name).is_file(), f"{page}: {name}")
                    self.assertGreater(len(words), 20, f"{page}: {name}")


if __name__ == "__main__":
    unittest.main()
