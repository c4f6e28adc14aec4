"""The process and its machine: devices, the other processes of a run, signals, progress. A leaf: it knows no model.

Devices and processes are loaded when they are first used: whoever waits for signals or shows progress needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from echoless.runtime.progress import Progress, duration
from echoless.runtime.signals import StopRequest

if TYPE_CHECKING:
    from echoless.runtime.devices import choose_device
    from echoless.runtime.distributed import ALONE, Share, Team, join_team, leave_team
    from echoless.runtime.memory import reuse_freed_memory

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

_NEED_TORCH = {
    "ALONE": "distributed",
    "Share": "distributed",
    "choose_device": "devices",
    "Team": "distributed",
    "join_team": "distributed",
    "leave_team": "distributed",
    "reuse_freed_memory": "memory",
}


def __getattr__(name: str) -> Any:
    if name not in _NEED_TORCH:
        raise AttributeError(f"module 'echoless.runtime' has no attribute {name!r}")
    return getattr(import_module(f"echoless.runtime.{_NEED_TORCH[name]}"), name)
