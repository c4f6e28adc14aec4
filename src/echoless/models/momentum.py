"""What is a momentum encoder? A copy whose weights are a moving average of the trained ones, without gradient."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn


def frozen_copy(module: nn.Module) -> Any:
    """The same weights, without gradient."""
    return copy.deepcopy(module).requires_grad_(False)


@torch.no_grad()
def follow(slow: nn.Module, fast: nn.Module, momentum: float) -> None:
    """slow <- momentum * slow + (1 - momentum) * fast, for every parameter."""
    for mine, theirs in zip(slow.parameters(), fast.parameters()):
        mine.lerp_(theirs, 1 - momentum)
