"""Where do latents stay between epochs and runs, and how do they become batches?

A cache is a folder named by its key: `moments.bin` (of every image and of its mirror image the mean and the spread of
its latent, float32) and `about.json` with the SHA-256 of it. It is written beside its place and renamed, so that a
folder with the right name is complete; it is read only if its hash is right. What a step trains on is drawn afresh
from those Gaussians.

Letters: N images, F mean and std of the image and of its mirror image.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from echoless.config.training import LatentConfig
from echoless.data.augment import draw
from echoless.data.images import Images
from echoless.data.loader import Batch, evaluation_batches, timed
from echoless.data.order import batch_indices, rank_slice
from echoless.data.resample import Array
from echoless.data.resizing import DIFFUSION, LARGE, Framing
from echoless.errors import DataError
from echoless.randomness import generator_for
from echoless.storage.atomic import clear_leftovers, temporary_beside
from echoless.storage.mapped import reserve

Encode = Callable[[Tensor], tuple[Tensor, Tensor]]  # images in [-1, 1] -> mean and std of their latents
_FACES = 4


@dataclass(frozen=True)
class Latents:
    """Mean and spread by image, memory-mapped, and what turns a latent into the model's input."""

    moments_NFCHW: Array
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

    def batches(self, first_step: int, last_step: int) -> Iterator[Batch]:
        return timed(self.batch, range(first_step, last_step), self.workers)


def cached_latents(
    root: Path,
    images: Images,
    config: LatentConfig,
    shape: tuple[int, int, int],
    encode: Encode,
    progress: Callable[[int, int], None] | None = None,
) -> Latents:
    """From the disk if they are there and whole, else encoded now, once."""
    words = ["latents-2", images.fingerprint, config.fingerprint, repr(config.image_size), str(images.shape.channels)]
    framing = _framing(images)
    words += [repr(sorted(images.excluded)), *([repr((framing, images.reduction))] if framing.every else [])]
    folder = root / f"latents-{hashlib.sha256(chr(0).join(words).encode()).hexdigest()[:32]}"
    moments = _read(folder, len(images), shape)
    if moments is None:
        _write(folder, _encoded(images, config, encode, progress), (len(images), _FACES, *shape), images)
        moments = _read(folder, len(images), shape)
    if moments is None:
        raise DataError(f"the latents in {folder} differ from what was just written; the disk may be faulty")
    return Latents(moments, config)


def _encoded(
    images: Images, config: LatentConfig, encode: Encode, progress: Callable[[int, int], None] | None
) -> Iterator[tuple[Tensor, Array]]:
    half, done = (0.5,) * images.shape.channels, 0
    how: dict[str, Any] = {"size": config.image_size, "mean": half, "std": half, "framing": _framing(images)}
    for batch in evaluation_batches(images, batch_size=32, **how):
        faces = [*encode(batch.images_BCHW), *encode(batch.images_BCHW.flip(-1))]
        yield batch.ids_B, torch.stack(faces, dim=1).float().numpy()
        done += len(batch.ids_B)
        if progress is not None:
            progress(done, images.usable)


def _framing(images: Images) -> Framing:
    """ADM's centre crop of large images, as published latents have it; small ones are used whole."""
    return replace(DIFFUSION, every=min(images.typical_size) > LARGE)


def _write(folder: Path, encoded: Iterable[tuple[Tensor, Array]], shape: tuple[int, ...], images: Images) -> None:
    """Beside its place, then renamed. Of two that build at once, the second throws its copy away."""
    building = temporary_beside(folder)
    clear_leftovers(folder.parent, folder.name)  # of a killed builder, as large as the latents
    try:
        building.mkdir(parents=True)
        with (building / "moments.bin").open("wb") as file:
            reserve(file.fileno(), math.prod(shape) * 4)
        moments = np.memmap(building / "moments.bin", np.float32, "r+", shape=shape)
        seen: set[int] = set()
        for ids_B, values in encoded:
            moments[ids_B.numpy()] = values
            seen.update(ids_B.tolist())
        moments.flush()
        if missing := len(images) - len(images.excluded) - len(seen):
            raise DataError(f"{missing} images could not be decoded, so their latents are missing")
        about = {"shape": list(shape), "sha256": _hash(building / "moments.bin")}
        (building / "about.json").write_text(json.dumps(about))
        for name in ("moments.bin", "about.json"):
            with (building / name).open("rb+") as file:
                os.fsync(file.fileno())
        shutil.rmtree(folder, ignore_errors=True)  # there only if it was damaged
        building.rename(folder)
    except OSError as error:
        if not (folder / "about.json").is_file():
            raise DataError(f"latents cannot be written to {folder}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _read(folder: Path, count: int, shape: tuple[int, int, int]) -> Array | None:
    """The moments, if they are whole: the size, the shape and the hash are what was written."""
    try:
        about = json.loads((folder / "about.json").read_text())
        if about["shape"] != [count, _FACES, *shape] or about["sha256"] != _hash(folder / "moments.bin"):
            return None
        return np.memmap(folder / "moments.bin", np.float32, "r", shape=tuple(about["shape"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _hash(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
