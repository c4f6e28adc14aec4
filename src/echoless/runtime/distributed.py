"""Who else computes this batch? One process, or several started by torchrun; the loop looks the same."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from echoless.errors import ConfigError, EcholessError, RunError
from echoless.runtime import choose_device
from echoless.runtime.devices import UNTESTED

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Team:
    """The processes of a run. World size changes who computes a sample, never which one or how."""

    rank: int
    world: int
    device: torch.device

    @property
    def accelerated(self) -> bool:
        """Whether a GPU of any make computes."""
        return self.device.type != "cpu"

    @property
    def leads(self) -> bool:
        """Rank 0 alone writes files and prints."""
        return self.rank == 0

    def wrap(self, module: nn.Module) -> nn.Module:
        """Average gradients over the processes."""
        if self.world == 1:
            return module
        ids = [self.device.index] if self.device.type == "cuda" else None
        # Inputs and buffers are equal on all ranks by construction, so nothing needs to be broadcast. The switch for it
        # has another name from torch 2.13 on.
        known = inspect.signature(DistributedDataParallel).parameters
        switch = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        return DistributedDataParallel(module, device_ids=ids, **{switch: False})  # type: ignore[arg-type]

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

    @contextmanager
    def together(self) -> Iterator[None]:
        """A refusal by one process is a refusal by all: nobody waits for one that has gone."""
        try:
            yield
        except EcholessError:
            self.maximum(1.0)
            raise
        if self.maximum(0.0) == [1.0]:
            raise RunError("another process of this run refused to start; its message says why")

    def leader_first(self, work: Callable[[], Result]) -> Result:
        """Everybody does it, rank 0 before the others: what it leaves in a cache is made once."""
        done: list[Result] = []
        for turn in (True, False):
            with self.together():
                if self.leads is turn:
                    done.append(work())
        return done[0]


def join_team(device: str) -> Team:
    """From torchrun's environment, or alone."""
    world, local = _whole("WORLD_SIZE", 1), _whole("LOCAL_RANK", 0)
    chosen = choose_device(device, local)
    if world == 1:
        return Team(0, 1, chosen)
    if chosen.type in UNTESTED:
        raise ConfigError(f"device is {device!r}, which one process can use, not {world}; start it without torchrun")
    if not dist.is_initialized():
        # The others wait while rank 0 decodes a large set: that is no failure, and torchrun ends all when one fails.
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo", timeout=timedelta(days=1))
    return Team(dist.get_rank(), dist.get_world_size(), chosen)


def _whole(variable: str, default: int) -> int:
    """A number that torchrun puts into the environment."""
    text = os.environ.get(variable, str(default))
    if not text.isdecimal() or len(text) > 6:
        raise ConfigError(f"{variable} is {text[:40]!r} in the environment; allowed: a whole number")
    return int(text)


def leave_team() -> None:
    """Called when a run ends, however it ends.

    Taking a group apart may wait for the others. After an error of this process alone they wait for it in turn, inside
    an exchange: the group is then left as it is, and the end of the process frees them.
    """
    error = sys.exc_info()[1]
    together = error is None or isinstance(error, EcholessError)
    if dist.is_initialized() and together:
        dist.destroy_process_group()
