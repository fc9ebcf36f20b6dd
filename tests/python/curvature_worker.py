# SPDX-License-Identifier: Apache-2.0
"""Curvature on the processes of torchrun, for curvature_ranks_test.py: curvature_worker.py FOLDER"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
import torch.distributed as dist
from nets import batch, small_net
from torch import nn

import spdkfac

CASES = {"empirical": {}, "exact": {"fisher": "exact"}, "reduce": {"approximation": "reduce"},
         "ekfac": {"ekfac": True}}


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    # The second process has more, and larger, batches; a third one has none.
    data = [batch(0, 0, examples=4)] if rank == 0 else [batch(1, 0, examples=5), batch(2, 0, examples=7)]
    model = nn.parallel.DistributedDataParallel(small_net())
    for name, options in CASES.items():
        found = spdkfac.curvature(model, data, nn.CrossEntropyLoss(), **options)
        found.save(Path(sys.argv[1]) / f"{name}.{rank}")
    try:
        spdkfac.curvature(model, [(x / 0, y) for x, y in data] if rank == 0 else data, nn.CrossEntropyLoss())
    except spdkfac.NumericalError as error:
        (Path(sys.argv[1]) / f"error.{rank}").write_text(str(error), encoding="utf-8")
    empty = spdkfac.curvature(model, data if rank == 0 else [], nn.CrossEntropyLoss())
    empty.save(Path(sys.argv[1]) / f"empty.{rank}")
    drawn = spdkfac.curvature(model, [batch(0)], nn.CrossEntropyLoss(), fisher="mc", seed=4)
    drawn.save(Path(sys.argv[1]) / f"drawn.{rank}")
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
