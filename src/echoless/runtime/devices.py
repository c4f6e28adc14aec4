"""Which device does the work? The one asked for, or the best there is."""

from __future__ import annotations

import torch

from echoless.errors import ConfigError


def choose_device(device: str, local_rank: int = 0) -> torch.device:
    """ "auto" takes a GPU where there is one."""
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
    return torch.device("cuda", local_rank) if chosen.type == "cuda" and chosen.index is None else chosen
