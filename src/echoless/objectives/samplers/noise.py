"""Where do samplers get their noise? For sample i from a generator of (seed, i), independent of the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from echoless.randomness import generator_for

# Each call gives fresh noise for the whole batch.
NoiseSource = Callable[[], Tensor]


class SampleNoise:
    """A generator for each sample: `noise()` is the next draw of each, first the start and then one for every step."""

    def __init__(
        self,
        seed: int,
        indices: Iterable[int],
        shape: tuple[int, ...],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.generators = [generator_for(seed, "sample", index) for index in indices]
        self.shape, self.device, self.dtype = shape, device, dtype

    def __call__(self) -> Tensor:
        """(B, *shape), drawn on the CPU so that every device sees the same."""
        draws = [torch.randn(self.shape, generator=generator) for generator in self.generators]
        return torch.stack(draws).to(self.device, self.dtype)
