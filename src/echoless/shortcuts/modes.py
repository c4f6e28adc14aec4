"""How does a module run in another mode, and return to its own?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from torch import nn


@contextmanager
def in_mode(module: nn.Module, *, training: bool) -> Iterator[None]:
    """Training or evaluation mode, and afterwards every module in the mode it had."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        module.train(training)
        yield
    finally:
        for part, before in modes:
            part.training = before


def evaluating(module: nn.Module) -> AbstractContextManager[None]:
    return in_mode(module, training=False)
