"""How does a step need less memory for activations? Those inside a block are computed again in the backward pass.

Only the input of every block is kept (arXiv:1604.06174). The result is the same, bit for bit: randomness is an argument
of a block, so that both passes have the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from echoless.models.body import blocks_of


def recompute_blocks(model: nn.Module) -> None:
    """Changes how the blocks are called, in place; names and weights stay. Copy the model before, not after."""
    for block in blocks_of(model):
        block.forward = _recomputed(block.forward)  # type: ignore[method-assign]


def _recomputed(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(*inputs: Any) -> Tensor:
        if not torch.is_grad_enabled():
            return forward(*inputs)
        observed = [_Once(each) if callable(each) else each for each in inputs]
        output = checkpoint(forward, *observed, use_reentrant=False, preserve_rng_state=False)
        for each in observed:
            if isinstance(each, _Once):
                each.over = True
        return output

    return run


class _Once:
    """An observer (`models.layers.Note`) that is told of the first pass alone."""

    def __init__(self, note: Callable[[str, Tensor], None]) -> None:
        self.note, self.over = note, False

    def __call__(self, name: str, value: Tensor) -> None:
        if not self.over:
            self.note(name, value)
