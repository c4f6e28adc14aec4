"""Who else computes this batch? One process, or several started by torchrun; the loop looks the same."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from echoless.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Team:
    """The processes of a run. World size changes who computes a sample, never which one or how."""

    rank: int
    world: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Rank 0 alone writes files and prints."""
        return self.rank == 0

    def wrap(self, module: nn.Module) -> nn.Module:
        """Average gradients over the processes."""
        if self.world == 1:
            return module
        ids = [self.device.index] if self.device.type == "cuda" else None
        # Inputs and buffers are equal on all ranks by construction, so nothing needs to be broadcast.
        return DistributedDataParallel(module, device_ids=ids, broadcast_buffers=False)

    def maximum(self, *values: float) -> list[float]:
        """The largest of each value over all processes: how a verdict of one becomes the verdict of all."""
        if self.world == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return tensor.tolist()

    def mean(self, value: torch.Tensor) -> torch.Tensor:
        if self.world > 1:
            dist.all_reduce(value)
            value /= self.world
        return value

    def wait(self) -> None:
        if self.world > 1:
            dist.barrier()


def join_team(device: str) -> Team:
    """From torchrun's environment, or alone."""
    world, local = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
    chosen = choose_device(device, local)
    if world == 1:
        return Team(0, 1, chosen)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    return Team(dist.get_rank(), dist.get_world_size(), chosen)


def leave_team() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def choose_device(device: str, local_rank: int = 0) -> torch.device:
    """ "auto" takes a GPU where there is one."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise ConfigError(f"device is {device!r}; allowed: auto, cpu, cuda or cuda:N") from None
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device is {device!r}, but torch sees no GPU here; allowed: auto or cpu")
    return torch.device("cuda", local_rank) if chosen.type == "cuda" and chosen.index is None else chosen
