# SPDX-License-Identifier: Apache-2.0
"""Where tests and their processes compute: SPDKFAC_TEST_DEVICE is cpu (or unset) or cuda."""

from __future__ import annotations

import os

import torch

DEVICE = os.environ.get("SPDKFAC_TEST_DEVICE", "cpu")


def use_device() -> None:
    """Makes it torch's default, without tf32. Processes share the first GPU."""
    torch.set_num_threads(1)  # tests share few cores
    if DEVICE == "cuda":
        torch.set_default_device("cuda")
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
