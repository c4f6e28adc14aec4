"""What is the interface of an objective? Random draws for a global batch, and the loss of a part of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

Draws = dict[str, Tensor]  # everything random about a batch; the first axis is the sample
Seen = TypeVar("Seen")


class Objective(Protocol):
    """Draws are made for the global batch and sliced by sample, so that the result does not depend on ranks."""

    def draw(self, batch_size: int, seed: int, step: int) -> Draws: ...

    def loss(self, model: nn.Module, images_BCHW: Tensor, labels_B: Tensor | None, draws: Draws) -> Tensor:
        """A scalar, the mean over the samples given."""
        ...


@runtime_checkable
class Teaching(Protocol):
    """An objective whose model has state besides its parameters: a momentum encoder, a running centre."""

    def before_update(self, model: nn.Module, step: int) -> None:
        """Called after the backward pass of `step`."""
        ...

    def after_update(self, model: nn.Module, step: int) -> None:
        """Called after the optimiser update."""
        ...


class LossModule(nn.Module):
    """Model and objective as one module, so that compiling or distributing it covers the loss too."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, images_BCHW: Tensor, labels_B: Tensor | None, draws: Draws) -> Tensor:
        return self.objective.loss(self.model, images_BCHW, labels_B, draws)

    def observe(self, watch: Callable[[nn.Module], Seen]) -> Seen:
        """What `watch` returns of the model. It is a method so that a divided model can be gathered around it."""
        return watch(self.model)


def take(draws: Draws, samples: Tensor | slice, device: torch.device | str = "cpu") -> Draws:
    """The draws of these samples."""
    return {name: values[samples].to(device, non_blocking=True) for name, values in draws.items()}
