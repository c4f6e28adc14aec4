"""How do cached latents become batches? What a step trains on is drawn afresh from their Gaussians."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from echoless.config.training import LatentConfig
from echoless.data.augment import draw
from echoless.data.images import Images
from echoless.data.latent_cache import Encode, MappedMoments, cached_moments
from echoless.data.loader import Batch, timed
from echoless.data.order import batch_indices, rank_slice
from echoless.data.parts import Told
from echoless.randomness import generator_for


@dataclass(frozen=True)
class Latents:
    """Mean and spread by image, and what turns a latent into the model's input."""

    moments_NFCHW: MappedMoments
    config: LatentConfig

    def draw(self, ids_B: Tensor, mirrored_B: Tensor, noise_BCHW: Tensor) -> Tensor:
        """A latent of each image or of its mirror image, scaled for the model."""
        faces = torch.from_numpy(self.moments_NFCHW[ids_B.numpy()])
        first = 2 * mirrored_B.long()
        rows = torch.arange(len(ids_B))
        latents = faces[rows, first] + faces[rows, first + 1] * noise_BCHW
        return (latents - self.config.shift) * self.config.scale

    @property
    def shape(self) -> tuple[int, int, int]:
        _, _, channels, height, width = self.moments_NFCHW.shape
        return channels, height, width


class LatentLoader:
    """Training batches of latents: shuffled, mirrored, drawn; a batch is a pure function of its step."""

    def __init__(
        self,
        images: Images,
        latents: Latents,
        *,
        batch_size: int,
        seed: int,
        flip: float,
        workers: int = 2,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.images, self.latents, self.batch_size, self.seed = images, latents, batch_size, seed
        self.flip, self.workers, self._slice = flip, workers, rank_slice(batch_size, rank, world)

    def batch(self, step: int) -> Batch:
        ids = batch_indices(self.seed, step, self.batch_size, len(self.images), self.images.excluded)[self._slice]
        uniform_B = torch.from_numpy(draw(self.batch_size, generator_for(self.seed, "augment", step))[:, -1])
        noise = torch.randn(self.batch_size, *self.latents.shape, generator=generator_for(self.seed, "latent", step))
        drawn = self.latents.draw(ids, uniform_B[self._slice] < self.flip, noise[self._slice])
        places_B = torch.arange(self.batch_size)[self._slice]
        return Batch(step, drawn, ids, places_B, self.images.labels_of(ids), 0.0)

    def batches(self, first_step: int, last_step: int, *, pin: bool = False) -> Iterator[Batch]:
        return timed(self.batch, range(first_step, last_step), self.workers, pin=pin)


def cached_latents(
    root: Path,
    images: Images,
    config: LatentConfig,
    shape: tuple[int, int, int],
    encode: Encode,
    progress: Told | None = None,
    **shared: Any,
) -> Latents:
    """Those of all images, encoded once: `latent_cache.cached_moments`."""
    return Latents(cached_moments(root, images, config, shape, encode, progress, **shared), config)
