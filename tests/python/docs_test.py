# SPDX-License-Identifier: Apache-2.0
"""Python in the documentation runs, each page as one program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Python, and changes to Python, whose result runs.
BLOCK = re.compile(r"^```(python|diff)\n(.*?)^```", re.S | re.M)
PAGES = [str(page.relative_to(ROOT)) for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
         if BLOCK.search(page.read_text(encoding="utf-8"))]
# What the pages take for granted: a small network, its data, and nothing to say about other layers.
PROLOGUE = """
import warnings; warnings.simplefilter("ignore")
import torch, spdkfac
from torch import nn
torch.set_num_threads(1); torch.manual_seed(1)
def make_model():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
                         nn.Linear(4 * 36, 10))
model = make_model()
loader = [(torch.randn(8, 1, 8, 8), torch.randint(10, (8,))) for _ in range(3)]
loss_function = nn.functional.cross_entropy
device = "cpu"
"""


def changed(diff: str) -> str:
    """The code after a change."""
    lines = diff.splitlines()
    assert all(line[:1] in ("+", "-", " ") for line in lines), diff
    return "\n".join(line[1:] for line in lines if not line.startswith("-"))


def test_pages_with_python_are_found() -> None:
    assert {"README.md", "docs/python.md", "docs/from-kfac-pytorch.md", "docs/first-steps-python.md",
            "docs/choosing.md", "docs/faq.md"} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = [changed(code) if language == "diff" else code for language, code in BLOCK.findall(text)]
    program = PROLOGUE + "\n".join(blocks)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=dict(os.environ),
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_lists_every_option() -> None:
    import inspect

    import spdkfac

    text = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    for name in inspect.signature(spdkfac.SPDKFACOptimizer.__init__).parameters:
        if name not in ("self", "optimizer", "model"):
            assert f"`{name}`" in text, name
