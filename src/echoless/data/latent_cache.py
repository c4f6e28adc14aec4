"""Where do latents stay between epochs and runs, and who encodes them?

A cache is a folder named by its key. It holds parts (`parts`): `00012.bin` has the mean and the spread of the latent of
every image and of its mirror image, `00012.json` the hash of that. The processes of a run share the parts, and one that
is started again continues with those that are missing. A part counts if its file is the one that was hashed, by size,
time and inode; if not, it is hashed once more, and encoded again where a bit is wrong.

Letters: N images, F mean and std of the image and of its mirror image.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from echoless.config.training import LatentConfig
from echoless.data.images import Images
from echoless.data.loader import evaluation_batches
from echoless.data.parts import SharedParts, Tell, Told
from echoless.data.resample import Array
from echoless.data.resizing import DIFFUSION, LARGE, Framing
from echoless.errors import DataError, RunError
from echoless.runtime import ALONE, Share, duration
from echoless.storage.atomic import nearest_existing
from echoless.storage.seal import seal_of

Encode = Callable[[Tensor], tuple[Tensor, Tensor]]  # images in [-1, 1] -> mean and std of their latents
Say = Callable[[str], None]
FACES = 4
_BATCH = 32
_TIMED = 4  # images that are encoded to estimate the time
_WORTH_AN_ESTIMATE = 256  # images
_TYPES: dict[str, np.dtype[Any]] = {"fp32": np.dtype(np.float32), "fp16": np.dtype(np.float16)}


class MappedMoments:
    """`moments[ids]` are the moments of these images (B, F, C, H, W); memory-mapped, part by part."""

    def __init__(self, parts: SharedParts, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape = shape
        self._firsts = np.array([parts.span(number)[0] for number in range(len(parts))])
        mapped = [np.asarray(np.memmap(parts.file(number), dtype, "r")) for number in range(len(parts))]
        self._parts = [part.reshape(-1, *shape[1:]) for part in mapped]

    def __getitem__(self, ids_B: Array) -> Array:
        number_B = np.searchsorted(self._firsts, ids_B, side="right") - 1
        found = np.empty((len(ids_B), *self.shape[1:]), np.float32)
        for number in np.unique(number_B):
            chosen = number_B == number
            found[chosen] = self._parts[number][ids_B[chosen] - self._firsts[number]]
        return found


@dataclass(frozen=True)
class _Encoding:
    """The work: which images are encoded by what, and how they are kept."""

    images: Images
    config: LatentConfig
    shape: tuple[int, int, int]
    encode: Encode

    @property
    def dtype(self) -> np.dtype[Any]:
        return _TYPES[self.config.precision]

    @property
    def bytes_per_image(self) -> int:
        return FACES * int(np.prod(self.shape)) * self.dtype.itemsize

    @property
    def name(self) -> str:
        """Of the cache: everything that decides its bytes."""
        images, config, framing = self.images, self.config, _framing(self.images)
        words = ["latents-3", images.fingerprint, config.fingerprint, repr(config.image_size), config.precision]
        words += [str(images.shape.channels), repr(sorted(images.excluded))]
        words += [repr((framing, images.reduction))] if framing.every else []
        return f"latents-{hashlib.sha256(chr(0).join(words).encode()).hexdigest()[:32]}"

    def faces(self, first: int, last: int, batch: int = _BATCH) -> Iterator[tuple[Array, Array]]:
        """(ids_B, moments (B, F, C, H, W)) of images first .. last - 1, a batch at a time."""
        half = (0.5,) * self.images.shape.channels
        batches = evaluation_batches(
            self.images,
            size=self.config.image_size,
            batch_size=batch,
            mean=half,
            std=half,
            ids=range(first, last),
            framing=_framing(self.images),
        )
        for each in batches:
            faces = [*self.encode(each.images_BCHW), *self.encode(each.images_BCHW.flip(-1))]
            yield each.ids_B.numpy(), torch.stack(faces, dim=1).float().numpy()

    def write(self, first: int, last: int, file: Path, tell: Tell) -> dict[str, Any]:
        """The moments of images first .. last - 1, and zeros for those that are left out."""
        rows = np.zeros((last - first, FACES, *self.shape), self.dtype)
        seen = 0
        for ids_B, faces in self.faces(first, last):
            with np.errstate(over="ignore"):
                rows[ids_B - first] = faces
            seen += len(ids_B)
            tell(seen)
        if missing := sum(index not in self.images.excluded for index in range(first, last)) - seen:
            raise DataError(f"{missing} images could not be decoded, so their latents are missing")
        if not np.isfinite(rows).all():
            raise DataError(f"latents are too large for {self.config.precision}, or not finite; try fp32")
        with file.open("wb") as opened:
            opened.write(rows.data)
            opened.flush()
            os.fsync(opened.fileno())
        return {"sha256": seal_of(file).sha256, "stamp": _stamp(file)}


def cached_moments(
    root: Path,
    images: Images,
    config: LatentConfig,
    shape: tuple[int, int, int],
    encode: Encode,
    progress: Told | None = None,
    *,
    say: Say | None = None,
    share: Share = ALONE,
) -> MappedMoments:
    """From the disk if they are there and whole, else encoded now, once, by the processes that share the work.

    `say` is told before the work starts how many bytes and hours it takes.
    """
    work = _Encoding(images, config, shape, encode)
    parts = SharedParts(root / work.name, len(images), share, smallest=_WORTH_AN_ESTIMATE)
    _announce(work, parts, share, say)

    def make(first: int, last: int, file: Path, tell: Tell) -> dict[str, Any]:
        number = parts.number(first)
        return _hashed_again(parts, number) or work.write(first, last, file, tell)

    try:
        parts.finish(make, progress, valid=lambda number, record: record.get("stamp") == _stamp(parts.file(number)))
    except RunError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        raise DataError(f"latents cannot be written: {error}") from None
    return MappedMoments(parts, (len(images), FACES, *shape), work.dtype)


def _announce(work: _Encoding, parts: SharedParts, share: Share, say: Say | None) -> None:
    """How many bytes and hours are missing; refuses where the disk has no room."""
    missing = sum(last - first for first, last in map(parts.span, parts.missing()))
    if not missing:
        return
    needed, root = missing * work.bytes_per_image, parts.folder.parent
    free = shutil.disk_usage(nearest_existing(root)).free
    if needed > free:
        raise DataError(
            f"the latents of {missing:,} images need {needed / 1e9:,.1f} GB in {root}, but {free / 1e9:,.1f} GB are "
            "free; set ECHOLESS_CACHE to a folder on a larger disk, or give --latent-precision fp16"
        )
    if say is not None and missing >= _WORTH_AN_ESTIMATE:
        hours = duration(missing / share.count / _speed(work))
        by = "by this process" if share.count == 1 else f"by {share.count} processes"
        say(f"latents: {missing:,} images take {needed / 1e9:,.2f} GB in {root} and about {hours} {by}")


def _speed(work: _Encoding) -> float:
    """Images per second that this process encodes."""
    usable = next(index for index in range(len(work.images)) if index not in work.images.excluded)
    seconds = 0.0
    for _ in range(2):  # the first time, memory is taken and kernels are chosen
        started = time.perf_counter()
        seen = sum(len(ids_B) for ids_B, _ in work.faces(usable, min(usable + _TIMED, len(work.images)), _TIMED))
        seconds = time.perf_counter() - started
    return max(seen, 1) / max(seconds, 1e-9)


def _hashed_again(parts: SharedParts, number: int) -> dict[str, Any] | None:
    """The record of a part whose file was copied or touched since it was written, if every bit is right."""
    record, file = parts.record(number), parts.file(number)
    if record is None or not file.is_file() or seal_of(file).sha256 != record.get("sha256"):
        return None
    return record | {"stamp": _stamp(file)}


def _stamp(file: Path) -> list[int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _framing(images: Images) -> Framing:
    """ADM's centre crop of large images, as published latents have it; small ones are used whole."""
    return replace(DIFFUSION, every=min(images.typical_size) > LARGE)
