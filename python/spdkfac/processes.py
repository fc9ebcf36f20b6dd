# SPDX-License-Identifier: Apache-2.0
"""The processes that train together."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

from ._core import Communicator, c10d_communicator
from .errors import CommError


def own_group(group: dist.ProcessGroup | None, timeout: float) -> dist.ProcessGroup | None:
    """A group of the same processes for K-FAC alone, so that nobody else's operations come between.

    None without torch.distributed, or with one process. All processes of `group` call it.
    """
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size(group) == 1:
        return None
    try:
        made: dist.ProcessGroup = dist.new_group(
            ranks=None if group is None else dist.get_process_group_ranks(group),
            backend=None if group is None else dist.get_backend(group),  # none: that of all processes
            timeout=timedelta(seconds=timeout),
            use_local_synchronization=group is not None)
    except RuntimeError as error:
        cause = str(error).partition("\n")[0]
        raise CommError(f"c10d: the processes could not form a group ({cause}); another process died, stopped, "
                        "or did not make its optimizer") from error
    return made


def communicator_of(group: dist.ProcessGroup, device: torch.device,
                    timeout: float) -> Communicator:
    return c10d_communicator(group, device, timeout)


def others_send_too(model: nn.Module, backend: str, *, averages_gradients: bool) -> bool:
    """Whether operations of another group may be in flight during forward and backward passes.

    Two NCCL groups must not have any at the same time: their kernels may wait for each other for ever.
    `averages_gradients`: someone else does, such as DistributedDataParallel.
    """
    if backend in ("gloo", "mpi"):
        return False
    return averages_gradients or any(isinstance(each, nn.SyncBatchNorm) for each in model.modules())


def share_first(model: nn.Module, group: dist.ProcessGroup) -> None:
    """Parameters and buffers of the first process for all, as DistributedDataParallel does."""
    first = dist.get_process_group_ranks(group)[0]
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            whole = tensor.detach().contiguous()
            dist.broadcast(whole, src=first, group=group)
            tensor.copy_(whole)
