"""Which device does the work? The one asked for, or a CUDA GPU where there is one.

`mps` (Apple) and `xpu` (Intel) are taken where they are named. They were never tested on hardware: `auto` leaves them.
"""

from __future__ import annotations

import torch

from echoless.errors import ConfigError

UNTESTED = ("xpu", "mps")
KNOWN = ("cpu", "cuda", *UNTESTED)


def choose_device(device: str, local_rank: int = 0, *, several: bool = False) -> torch.device:
    """ "auto" takes a CUDA GPU where there is one, else the CPU; each of several processes on a node takes its own."""
    if device == "auto":
        device = "cuda" if is_available("cuda") else "cpu"
    try:
        chosen = torch.device(device)
        known = chosen.type in KNOWN
    except RuntimeError:
        known = False
    if not known:
        raise ConfigError(f"device is {device!r}; allowed: auto, cpu, cuda, cuda:N, xpu or mps")
    if not is_available(chosen.type):
        missing = {"cuda": "no GPU", "xpu": "no Intel GPU", "mps": "no Apple GPU"}[chosen.type]
        raise ConfigError(f"device is {device!r}, but torch sees {missing} here; allowed: auto or cpu")
    if chosen.type == "cuda" and several:
        _require_own(device, chosen, local_rank)
    counted = chosen.type in ("cuda", "xpu") and chosen.index is None
    return torch.device(chosen.type, local_rank) if counted else chosen


def is_available(kind: str) -> bool:
    if kind == "cpu":
        return True
    backend = torch.backends.mps if kind == "mps" else getattr(torch, kind, None)
    return backend is not None and backend.is_available()


def _require_own(device: str, chosen: torch.device, local_rank: int) -> None:
    """Of several processes on a node, each needs a GPU of its own."""
    if chosen.index is not None:
        raise ConfigError(f"device is {device!r} for all processes of a node; allowed: auto, cpu or cuda")
    if local_rank >= torch.cuda.device_count():
        raise ConfigError(
            f"process {local_rank} of this node has no GPU: there are {torch.cuda.device_count()}; start as many "
            "processes (--nproc-per-node), or give --device cpu"
        )
