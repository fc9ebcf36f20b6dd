# SPDX-License-Identifier: Apache-2.0
"""A process that trains until it fails, for failure_test.py. Usage: failure_worker.py ready-file"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch.distributed as dist
from devices import use_device
from nets import batch, kfac_over_sgd, small_net, train

import spdkfac

COMM_ERROR = 7


def main() -> None:
    warnings.simplefilter("ignore")
    use_device()
    dist.init_process_group("gloo")
    model = small_net()
    optimizer = kfac_over_sgd(model, timeout=20)
    step = 0
    try:
        while True:
            train(model, optimizer, [batch(step, dist.get_rank())])
            step += 1
            if step == 3:
                Path(f"{sys.argv[1]}.{dist.get_rank()}").touch()
    except (spdkfac.CommError, RuntimeError) as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        os._exit(COMM_ERROR)


if __name__ == "__main__":
    main()
