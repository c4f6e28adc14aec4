"""Who else computes this batch? One process, or several started by torchrun; the loop looks the same."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from echoless.errors import ConfigError, EcholessError, RunError
from echoless.runtime import choose_device
from echoless.runtime.devices import UNTESTED
from echoless.runtime.meeting import Meeting, new_name

# How long a process waits for the others inside an exchange of tensors: as long as they live, which `Meeting` watches.
LONGEST_EXCHANGE = timedelta(days=1)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a common work that a process begins with: number `index` of `count`.

    token: a name of this start of the run, the same for all who share the work.
    """

    index: int
    count: int
    token: str = ""


ALONE = Share(0, 1)


_REFUSED = "another process of this run refused to start; its message says why"


@dataclass(frozen=True, slots=True)
class Team:
    """The processes of a run. World size changes who computes a sample, never which one or how."""

    rank: int
    world: int
    device: torch.device
    meeting: Meeting | None = None  # None for one process, or where somebody else has made the process group
    node: Share = ALONE  # this process among those of its node

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
        """For the others, for as long as they live."""
        with self.together():
            pass

    @contextmanager
    def together(self) -> Iterator[None]:
        """A refusal by one process is a refusal by all: nobody waits for one that has gone.

        However long the work inside takes: nothing times out meanwhile.
        """
        try:
            yield
        except EcholessError:
            self._any_refuses(True)
            raise
        if self._any_refuses(False):
            raise RunError(_REFUSED)

    def require_same(self, what: str, value: str) -> None:
        """Refuse, in all processes, where one of them has something else."""
        said = None if self.meeting is None else self.meeting.exchange(value)
        if said is not None and len(set(said)) > 1:
            other = next(rank for rank, each in enumerate(said) if each != said[0])
            raise RunError(
                f"process {other} has other {what} than process 0: its files differ, or it has no room for a cache and "
                "does not know which images are bad; give --cache off everywhere, or the same files and room"
            )

    def leader_first(self, work: Callable[[], Result]) -> Result:
        """Everybody does it, rank 0 before the others: what it leaves in a cache is made once."""
        done: list[Result] = []
        for turn in (True, False):
            with self.together():
                if self.leads is turn:
                    done.append(work())
        return done[0]

    def _any_refuses(self, this: bool) -> bool:
        if self.meeting is None:
            return self.maximum(float(this)) == [1.0]
        return self.meeting.exchange(refuses=this) is None

    def check(self) -> None:
        """Raises if another process has refused meanwhile; called now and then during long work."""
        if self.meeting is not None and self.meeting.called_off:
            raise RunError(_REFUSED)

    def share_of(self, folder: Path) -> Share:
        """This process's share of work whose results lie in this folder: with all processes that see the same folder.

        Those of a node share it where the disk is not shared by all nodes.
        """
        if self.meeting is None:
            return ALONE
        mark = folder / f".team-{uuid4().hex}"
        if self.leads:
            with suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                mark.touch()
        names = self.meeting.exchange(mark.name) or [mark.name]
        seen = self.meeting.exchange("yes" if (folder / names[0]).exists() else "no") or []
        mark.unlink(missing_ok=True)
        own, common = self.node, Share(self.rank, self.world)
        return replace(own if "no" in seen else common, token=names[0])


def join_team(device: str) -> Team:
    """From torchrun's environment, or alone."""
    world, local = _whole("WORLD_SIZE", 1), _whole("LOCAL_RANK", 0)
    chosen = choose_device(device, local, several=world > 1)
    if world == 1:
        return Team(0, 1, chosen)
    if chosen.type in UNTESTED:
        raise ConfigError(f"device is {device!r}, which one process can use, not {world}; start it without torchrun")
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)  # before the first exchange, which would otherwise use the first GPU for all
    meeting = None
    if not dist.is_initialized():
        meeting = _meet("nccl" if chosen.type == "cuda" else "gloo")
    node = Share(local, _whole("LOCAL_WORLD_SIZE", 1))
    return Team(dist.get_rank(), dist.get_world_size(), chosen, meeting, node)


_meeting: Meeting | None = None  # the one that goes on in this process


def _meet(backend: str) -> Meeting:
    global _meeting
    store, rank, world = next(dist.rendezvous("env://"))
    ours = dist.PrefixStore(new_name(store, rank, world), store)
    dist.init_process_group(backend, store=ours, rank=rank, world_size=world, timeout=LONGEST_EXCHANGE)
    _meeting = Meeting(ours, rank, world)
    return _meeting


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
        global _meeting
        if _meeting is not None:
            _meeting.leave()
            _meeting = None
        dist.destroy_process_group()
