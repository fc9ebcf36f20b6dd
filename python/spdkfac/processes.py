# SPDX-License-Identifier: Apache-2.0
"""The processes that train together."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

from ._core import Communicator, c10d_communicator


def own_group(group: dist.ProcessGroup | None, timeout: float) -> dist.ProcessGroup | None:
    """A group of the same processes for K-FAC alone, so that nobody else's operations come between.

    None without torch.distributed, or with one process. All processes of `group` call it.
    """
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size(group) == 1:
        return None
    made: dist.ProcessGroup = dist.new_group(
        ranks=None if group is None else dist.get_process_group_ranks(group),
        backend=None if group is None else dist.get_backend(group),  # none: that of all processes
        timeout=timedelta(seconds=timeout),
        use_local_synchronization=group is not None)
    return made


def communicator_of(group: dist.ProcessGroup, device: torch.device,
                    timeout: float) -> Communicator:
    return c10d_communicator(group, device, timeout)


def share_first(model: nn.Module, group: dist.ProcessGroup) -> None:
    """Parameters and buffers of the first process for all, as DistributedDataParallel does."""
    first = dist.get_process_group_ranks(group)[0]
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=first, group=group)
            tensor.copy_(whole)
