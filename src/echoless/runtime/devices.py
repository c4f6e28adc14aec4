"""Which device does the work? The one asked for, or the best there is."""

from __future__ import annotations

import torch

from echoless.errors import ConfigError


def choose_device(device: str, local_rank: int = 0, *, several: bool = False) -> torch.device:
    """ "auto" takes a GPU where there is one; each of several processes on a node takes its own."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
        known = chosen.type in ("cpu", "cuda")
    except RuntimeError:
        known = False
    if not known:
        raise ConfigError(f"device is {device!r}; allowed: auto, cpu, cuda or cuda:N")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device is {device!r}, but torch sees no GPU here; allowed: auto or cpu")
    if chosen.type == "cuda" and several:
        _require_own(device, chosen, local_rank)
    return torch.device("cuda", local_rank) if chosen.type == "cuda" and chosen.index is None else chosen


def _require_own(device: str, chosen: torch.device, local_rank: int) -> None:
    """Of several processes on a node, each needs a GPU of its own."""
    if chosen.index is not None:
        raise ConfigError(f"device is {device!r} for all processes of a node; allowed: auto, cpu or cuda")
    if local_rank >= torch.cuda.device_count():
        raise ConfigError(
            f"process {local_rank} of this node has no GPU: there are {torch.cuda.device_count()}; start as many "
            "processes (--nproc-per-node), or give --device cpu"
        )
