"""How does one process hand a result to all others? By its shape first, then by its numbers.

Used where the processes of a measurement share the work: each computes a part, and all go on with the whole. With one
process every function is the ordinary one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from echoless.errors import EcholessError, RunError

_MOST_DIMS = 4
_REFUSED = -1


def rank_and_world() -> tuple[int, int]:
    """The number of this process, and how many there are."""
    if not dist.is_available() or not dist.is_initialized():
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


def leads() -> bool:
    """Rank 0 alone writes files and prints."""
    return rank_and_world()[0] == 0


def wait() -> None:
    """Until all processes are here."""
    if rank_and_world()[1] > 1:
        dist.barrier()


def from_process(source: int, make: Callable[[], Tensor], dtype: torch.dtype = torch.float32) -> Tensor:
    """What `make` returns in process `source`, in all of them. If it refuses, everybody does: nobody waits in vain."""
    rank, world = rank_and_world()
    if world == 1:
        return make()
    if dtype == torch.bool:  # not every backend sends truth values
        return from_process(source, lambda: make().to(torch.uint8), torch.uint8).bool()
    device = torch.device("cuda") if dist.get_backend() == "nccl" else torch.device("cpu")
    if rank != source:
        return _received(source, dtype, device)
    try:
        values = make().to(device, dtype).contiguous()
    except EcholessError:
        dist.broadcast(torch.full((1 + _MOST_DIMS,), _REFUSED, device=device), source)
        raise
    shape = [values.ndim, *values.shape, *[0] * (_MOST_DIMS - values.ndim)]
    dist.broadcast(torch.tensor(shape, device=device), source)
    dist.broadcast(values, source)
    return values.cpu()


def _received(source: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    header = torch.zeros(1 + _MOST_DIMS, dtype=torch.int64, device=device)
    dist.broadcast(header, source)
    dims, *shape = header.tolist()
    if dims == _REFUSED:
        raise RunError(f"process {source} refused to go on; its message says why")
    values = torch.empty(shape[:dims], dtype=dtype, device=device)
    dist.broadcast(values, source)
    return values.cpu()
