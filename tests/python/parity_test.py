# SPDX-License-Identifier: Apache-2.0
"""The C++ program and Python take the same steps: same weights, data and options."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch
from cnn28 import Cnn28
from nets import kfac_over_sgd
from torch import nn

PROGRAM = Path(os.environ.get("SPDKFAC_BUILD_DIR", "build/dev")) / "bin" / "model_parity"
CLASSES = 10


@pytest.mark.parametrize("inverse_interval", [1, 2])
def test_same_parameters_after_five_steps(tmp_path: Path, inverse_interval: int) -> None:
    model = Cnn28(CLASSES)
    images = torch.randn(5, 16, 1, 28, 28)
    labels = torch.randint(CLASSES, (5, 16))
    settings = {"lr": 0.003, "momentum": 0.9, "damping": 0.01, "kl_clip": 0.001}
    given = {f"state.{name}": value.clone() for name, value in model.state_dict().items()}
    given |= {name: torch.tensor(value, dtype=torch.float64) for name, value in settings.items()}
    given |= {"input": images, "steps": labels, "classes": torch.tensor(CLASSES),
              "inverse_interval": torch.tensor(inverse_interval)}
    torch.save(given, tmp_path / "input")
    subprocess.run([PROGRAM, "cnn28", tmp_path / "input", tmp_path / "output"], check=True,
                   env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300)
    ours = torch.load(tmp_path / "output", weights_only=False)

    optimizer = kfac_over_sgd(model, inverse_interval=inverse_interval, **settings)
    for step in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[step]), labels[step]).backward()
        optimizer.step()
    for name, value in model.named_parameters():
        error = float((ours[f"parameter.{name}"] - value).abs().max() / value.abs().max())
        assert error <= 1e-6, name
