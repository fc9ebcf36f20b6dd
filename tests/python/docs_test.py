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
PAGES = ["docs/python.md", "docs/from-kfac-pytorch.md", "README.md"]
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


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
    assert blocks, page
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
