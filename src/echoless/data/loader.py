"""How are batches prepared while the model trains?

Threads prepare the next batches while the model works on this one. They are threads because the work is done by code
that releases the interpreter lock, and because threads leave nothing behind in shared memory and get no signals. A
batch is a pure function of its step, so that the number of threads, a resumed run and another world size show
nowhere in it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from echoless.config.views import ViewConfig
from echoless.data.augment import AugmentConfig, augment, draw, resize_and_crop
from echoless.data.cache import CachedPixels, in_parallel
from echoless.data.images import Images
from echoless.data.order import batch_indices, rank_slice
from echoless.data.rand_augment import draw_operations, rand_augment
from echoless.data.resample import Array
from echoless.data.resizing import BY_SIZE, Framing
from echoless.data.views import draw_views, make_view
from echoless.errors import ConfigError
from echoless.randomness import generator_for

_DECODED_AT_ONCE = 2**24  # values of large images that a thread holds at a time


@dataclass(frozen=True, slots=True)
class Batch:
    """One rank's part of a global batch."""

    step: int
    images_BCHW: Tensor
    ids_B: Tensor
    places_B: Tensor  # where each sample stands in the global batch
    labels_B: Tensor | None
    waited: float  # seconds that the consumer stood still for it
    views: dict[str, Tensor] = field(default_factory=dict)  # "view01" on: the same samples, cropped and changed again

    def pinned(self) -> Batch:
        """In memory from which a GPU copies by itself, while the host goes on."""
        return replace(
            self,
            images_BCHW=self.images_BCHW.pin_memory(),
            labels_B=None if self.labels_B is None else self.labels_B.pin_memory(),
            views={name: view.pin_memory() for name, view in self.views.items()},
        )


class Loader:
    """Training batches: shuffled, augmented, normalised. augment=None: the transform of evaluation instead.

    views: several of every image instead of one crop; the first is `images_BCHW`, the others are `views`.
    """

    def __init__(
        self,
        images: Images,
        *,
        size: tuple[int, int],
        batch_size: int,
        seed: int,
        mean: Sequence[float],
        std: Sequence[float],
        augment: AugmentConfig | None = None,
        views: Sequence[ViewConfig] = (),
        workers: int = 2,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        _check(size, batch_size, workers)
        if batch_size < world:
            raise ConfigError(f"batch_size is {batch_size}; allowed: at least one sample for each of {world} processes")
        self.images, self.size, self.batch_size, self.seed = images, size, batch_size, seed
        self.mean, self.std, self.augment, self.workers = mean, std, augment, workers
        self.views = tuple(views)
        self._slice = rank_slice(batch_size, rank, world)

    def batch(self, step: int) -> Batch:
        """The batch of a step, computed now."""
        images = self.images
        ids_B = batch_indices(self.seed, step, self.batch_size, len(images), images.excluded)[self._slice]
        make = self._transform(step)
        kept, parts = [], []
        # Large images in small pieces, so that only a few are decoded at a time; of a cache they are not in memory.
        few = len(ids_B) if isinstance(images.pixels, CachedPixels) else _DECODED_AT_ONCE // math.prod(images.shape)
        piece = max(1, min(len(ids_B), few))
        for start in range(0, len(ids_B), piece):
            kept_B, pixels = images.get(ids_B[start : start + piece])
            kept.append(torch.from_numpy(kept_B + start))
            parts.append(make(pixels, kept_B + start))
        transformed, *more = (torch.cat(view) if len(view) > 1 else view[0] for view in zip(*parts))
        others = {f"view{number:02d}": view for number, view in enumerate(more, start=1)}
        chosen = torch.cat(kept)
        ids_B, places_B = ids_B[chosen], torch.arange(self.batch_size)[self._slice][chosen]
        return Batch(step, transformed, ids_B, places_B, images.labels_of(ids_B), 0.0, others)

    def _transform(self, step: int) -> Callable[[Array | list[Array], Array], list[Tensor]]:
        """From pixels, and their places in this rank's part of the batch, to model input: one tensor for each view.

        Drawn by position in the global batch, so that a dropped sample changes no other crop.
        """
        scaling: dict[str, Any] = {"mean": self.mean, "std": self.std}
        if self.views:
            draws = draw_views(self.batch_size, len(self.views), generator_for(self.seed, "augment", step))
            crops = self.augment.interpolation if self.augment else "bilinear"
            return lambda pixels, kept_B: [
                make_view(pixels, uniform_BN[self._slice][kept_B], view, interpolation=crops, **scaling)
                if len(pixels)
                else _nothing(self.images, view.size)
                for uniform_BN, view in zip(draws, self.views)
            ]
        if self.augment is None:
            return lambda pixels, kept_B: [_evaluation_input(self.images, pixels, self.size, BY_SIZE, **scaling)]
        config, generator = self.augment, generator_for(self.seed, "augment", step)
        uniform_BN = draw(self.batch_size, generator)[self._slice]
        if config.rand_augment is not None:
            operations_B8 = draw_operations(self.batch_size, generator)[self._slice]
            return lambda pixels, kept_B: [self._changed(pixels, uniform_BN[kept_B], operations_B8[kept_B], config)]
        return lambda pixels, kept_B: [
            augment(pixels, uniform_BN[kept_B], size=self.size, config=config, **scaling)
            if len(pixels)
            else _nothing(self.images, self.size)
        ]

    def _changed(
        self, pixels: Array | list[Array], uniform_BN: Array, operations_B8: Array, config: AugmentConfig
    ) -> Tensor:
        """Cropped, then changed by RandAugment, which works on 8 bits, then normalised."""
        if not len(pixels):
            return _nothing(self.images, self.size)
        plain = {"mean": (0.0,) * len(self.mean), "std": (1.0,) * len(self.mean)}
        levels = (255 * augment(pixels, uniform_BN, size=self.size, config=config, **plain)).round().clamp(0, 255)
        changed = rand_augment(levels.byte().numpy(), operations_B8, config.rand_augment or 0.0, self.mean)
        mean_C11, std_C11 = (torch.tensor(values)[:, None, None] for values in (self.mean, self.std))
        return (torch.from_numpy(changed).float() / 255 - mean_C11) / std_C11

    def batches(self, first_step: int, last_step: int, *, pin: bool = False) -> Iterator[Batch]:
        """The batches of steps first_step .. last_step - 1, prepared ahead by `workers` threads (0: when asked for)."""
        return timed(self.batch, range(first_step, last_step), self.workers, pin=pin)


def evaluation_batches(
    images: Images,
    *,
    size: tuple[int, int],
    batch_size: int,
    mean: Sequence[float],
    std: Sequence[float],
    ids: Sequence[int] | None = None,
    steps: Iterable[int] | None = None,
    workers: int = 2,
    framing: Framing = BY_SIZE,
) -> Iterator[Batch]:
    """Every usable image once, in order, not augmented; or only those of `ids`, in their order.

    steps: the numbers of the batches that are wanted, if not all. Tiles are used whole, whatever the framing's share.
    """
    _check(size, batch_size, workers)
    wanted = None if ids is None else [index for index in ids if index not in images.excluded]
    framing = replace(framing, share=1.0) if images.used_whole else framing

    def batch(step: int) -> Batch:
        first, last = step * batch_size, (step + 1) * batch_size
        ids_B = torch.as_tensor(images.usable_ids(first, last) if wanted is None else wanted[first:last]).long()
        kept_B, pixels = images.get(ids_B)
        kept = torch.from_numpy(kept_B)
        ids_B = ids_B[kept]
        transformed = _evaluation_input(images, pixels, size, framing, mean=mean, std=std)
        return Batch(step, transformed, ids_B, kept, images.labels_of(ids_B), 0.0)

    count = images.usable if wanted is None else len(wanted)
    return timed(batch, range(-(-count // batch_size)) if steps is None else steps, workers)


def _evaluation_input(
    images: Images, pixels: Array | list[Array], size: tuple[int, int], framing: Framing, **scaling: Any
) -> Tensor:
    if not len(pixels):
        return _nothing(images, size)
    return resize_and_crop(pixels, size=size, framing=framing, **scaling)


def _nothing(images: Images, size: tuple[int, int]) -> Tensor:
    return torch.empty(0, images.shape.channels, *size)


def timed(make: Callable[[int], Batch], steps: Iterable[int], workers: int, *, pin: bool = False) -> Iterator[Batch]:
    """pin: by the threads too, because it copies."""
    prepared = in_parallel((lambda step: make(step).pinned()) if pin else make, steps, workers)
    try:
        while True:
            asked = time.perf_counter()
            batch = next(prepared, None)
            if batch is None:
                return
            yield replace(batch, waited=time.perf_counter() - asked)
    finally:
        prepared.close()  # type: ignore[attr-defined]


def _check(size: tuple[int, int], batch_size: int, workers: int) -> None:
    if min(size) < 1:
        raise ConfigError(f"size is {size}; allowed: a height and a width of 1 or more")
    if batch_size < 1:
        raise ConfigError(f"batch_size is {batch_size}; allowed: 1 or more")
    if workers < 0:
        raise ConfigError(f"workers is {workers}; allowed: 0 or more")


def plain_images(images: Images, ids: Sequence[int], size: tuple[int, int]) -> Tensor:
    """These images in [0, 1], BCHW, as a model of this input size sees them before they are normalised."""
    channels = images.shape.channels
    batches = evaluation_batches(
        images, size=size, batch_size=64, mean=(0.0,) * channels, std=(1.0,) * channels, ids=ids, workers=0
    )
    return torch.cat([batch.images_BCHW for batch in batches])
