"""The process and its machine: devices, the other processes of a run, signals, progress. A leaf: it knows no model."""

from echoless.runtime.devices import choose_device
from echoless.runtime.distributed import ALONE, Share, Team, join_team, leave_team
from echoless.runtime.memory import reuse_freed_memory
from echoless.runtime.progress import Progress, duration
from echoless.runtime.signals import StopRequest

__all__ = [
    "ALONE",
    "Progress",
    "Share",
    "StopRequest",
    "Team",
    "choose_device",
    "duration",
    "join_team",
    "leave_team",
    "reuse_freed_memory",
]
