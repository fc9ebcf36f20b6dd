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
# In double precision images changed by 1e-15 make parameters differ by 5e-15. In single precision
# 1e-7 makes 2e-6, and 1e-6 once made 4e-3, where a ReLU or a maximum was decided otherwise: only
# runs that add in the same order agree; on a GPU both sides take cuDNN's deterministic algorithms.
TOLERANCES = {torch.float32: 1e-6, torch.float64: 1e-9}


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("inverse_interval", [1, 2])
def test_same_parameters_after_five_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                          inverse_interval: int, dtype: torch.dtype) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    model = Cnn28(CLASSES).to(dtype)
    images = torch.randn(5, 16, 1, 28, 28, dtype=dtype)
    labels = torch.randint(CLASSES, (5, 16))
    settings = {"lr": 0.003, "momentum": 0.9, "damping": 0.01, "kl_clip": 0.001}
    given = {f"state.{name}": value.clone() for name, value in model.state_dict().items()}
    given |= {name: torch.tensor(value, dtype=torch.float64) for name, value in settings.items()}
    # The program takes the precision and the device of `input`.
    given |= {"input": images, "steps": labels, "classes": torch.tensor(CLASSES),
              "inverse_interval": torch.tensor(inverse_interval)}
    torch.save(given, tmp_path / "input")
    subprocess.run([PROGRAM, "cnn28", tmp_path / "input", tmp_path / "output"], check=True,
                   env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300)
    ours = torch.load(tmp_path / "output", map_location="cpu", weights_only=False)

    # C++ has no SGD that takes all parameters at once.
    optimizer = kfac_over_sgd(model, inverse_interval=inverse_interval, precision="fp32",
                              foreach=False, **settings)
    for step in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[step]), labels[step]).backward()
        optimizer.step()
    for name, parameter in model.named_parameters():
        value = parameter.detach().cpu()
        error = float((ours[f"parameter.{name}"] - value).abs().max() / value.abs().max())
        assert error <= TOLERANCES[dtype], name
