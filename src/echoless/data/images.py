"""What is a set of images to the rest of the package?

`Images`: pixels by integer id, with paths, labels and the list of what cannot be used. Where the pixels come from (the
decoded cache, an array, a drawing, or a file decoded now) is behind `PixelStore` and shows nowhere else.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from echoless.config.counts import counted, first_few
from echoless.data.resample import Array
from echoless.data.resizing import Fit
from echoless.errors import DataError

if TYPE_CHECKING:
    from echoless.data.masks import LabelMaps


@dataclass(frozen=True, slots=True)
class BadSample:
    """An image that cannot be used, and why."""

    index: int
    path: str
    reason: str


Fetched = Array | list[Array | BadSample]  # BCHW where all sizes are equal, else one CHW per image


class PixelStore(Protocol):
    """Pixels by id."""

    def fetch(self, ids: Array) -> Fetched:
        """uint8 or uint16 pixels of these images; a `BadSample` in the place of one that cannot be decoded."""


class Raw(NamedTuple):
    """kept_B: which of the ids asked for are there. pixels: theirs, BCHW, or a list of CHW where sizes differ."""

    kept_B: Array
    pixels: Array | list[Array]


class Shape(NamedTuple):
    """The typical image of a set."""

    channels: int
    height: int
    width: int


@lru_cache(maxsize=4)
def _usable_before(excluded: frozenset[int]) -> Array:
    """How many usable images there are before each one that is left out, in order."""
    left_out = np.fromiter(sorted(excluded), np.int64, len(excluded))
    return left_out - np.arange(len(left_out))


@dataclass(kw_only=True)
class Images:
    """A set of images. `excluded` is fixed once the set is open; `bad` may grow where there is no cache."""

    pixels: PixelStore
    paths: Sequence[str]
    shape: Shape
    bits: int  # 8 or 16
    fingerprint: str  # SHA-256 of the content and the relative paths, the same wherever the files lie
    digests_ND: Array | None = None  # one hash of the bytes of each image, (N, 16); None for images that are drawn
    labels: Tensor | None = None
    class_names: tuple[str, ...] | None = None
    label_source: str = ""  # where the labels come from: sub-folders, the data set, or a labels file
    label_file: str = ""  # the name of that file
    label_note: str = ""  # why there are none, or how those of a file were matched: order, rows without an image
    bad: list[BadSample] = field(default_factory=list)
    max_bad_fraction: float = 0.01
    cache_note: str = ""  # one sentence: what became of the cache, and why
    notes: tuple[str, ...] = ()  # what was said while the set was opened: of the same set again, it is not repeated
    file_shape: tuple[int, int] | None = None  # height and width of the typical file; None: those of the images
    file_channels: int | None = None  # of most files; None: those of the images
    reduction: Fit | None = None  # how larger files were made smaller; None: they were not
    sizes_N2: Array | None = None  # height and width at which each image is kept; None: they are not known
    corners_N2: Array | None = None  # x and y of each tile in its file; None: whole images
    files: int | None = None  # how many files the tiles are of
    file_digests_ND: Array | None = None  # the hash of the file of each tile, (N, 16)
    stand_for_tiles: bool = False  # each is taken for a tile, by an encoder that was trained on tiles
    mask_of: Callable[[int], Array] | None = None  # the object of an image
    folder: Path | None = None  # of the files, where the images are files of one
    label_maps: LabelMaps | None = None  # the class of every pixel

    def __post_init__(self) -> None:
        self.excluded: frozenset[int] = frozenset(sample.index for sample in self.bad)
        self._bad_ids = set(self.excluded)
        self._lock = threading.Lock()
        self._refuse_if_too_bad()

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def typical_size(self) -> tuple[int, int]:
        """Height and width of the typical file, or tile."""
        own = (self.shape.height, self.shape.width)
        return own if self.file_shape is None or self.corners_N2 is not None else self.file_shape

    @property
    def converted(self) -> bool:
        """Whether most files have other channels than the images: grey, RGB and RGBA become one another."""
        return self.file_channels not in (None, self.shape.channels)

    def larger_than(self, side: int) -> Array:
        """The numbers of the usable images that are kept with a longer shorter side, where sizes are known."""
        if self.sizes_N2 is None:
            return np.empty(0, np.int64)
        ids = self.usable_ids()
        return ids[self.sizes_N2[ids].min(axis=1) > side]

    @property
    def used_whole(self) -> bool:
        """Whether evaluation cuts no border off: what it would cut off a tile is in no other."""
        return self.corners_N2 is not None or self.stand_for_tiles

    @property
    def identity(self) -> str:
        """Equal for two sets whose usable images are the same, in the same order."""
        return f"{self.fingerprint} without {sorted(self.excluded)}"

    @property
    def usable(self) -> int:
        """How many images an epoch has."""
        return len(self) - len(self.excluded)

    def usable_ids(self, first: int = 0, last: int | None = None) -> Array:
        """The numbers of the usable images, from place `first` to place `last` among them.

        No list of all images is made: the number of an image is its place, and how many before it are left out.
        """
        places = np.arange(first, self.usable if last is None else min(last, self.usable))
        return places + np.searchsorted(_usable_before(self.excluded), places, side="right")

    @property
    def known_labels(self) -> Tensor:
        """The labels of the usable images that have one."""
        assert self.labels is not None
        usable_N = self.labels[torch.from_numpy(self.usable_ids())]
        return usable_N[usable_N >= 0]

    def get(self, ids: Tensor | Sequence[int] | Array) -> Raw:
        """Pixels of these images, without those that turn out to be bad, which are recorded once."""
        wanted = np.asarray(ids, dtype=np.int64)
        fetched = self.pixels.fetch(wanted)
        if isinstance(fetched, np.ndarray):
            return Raw(np.arange(len(wanted)), fetched)
        kept = [i for i, item in enumerate(fetched) if not isinstance(item, BadSample)]
        self._record([item for item in fetched if isinstance(item, BadSample)])
        return Raw(np.array(kept, dtype=np.int64), [item for item in fetched if not isinstance(item, BadSample)])

    def masks(self, index: int) -> Tensor | None:
        """The foreground mask (H, W), bool, where the set has masks."""
        return None if self.mask_of is None else torch.from_numpy(np.array(self.mask_of(index), dtype=bool))

    def labels_of(self, ids: Tensor) -> Tensor | None:
        return None if self.labels is None else self.labels[ids]

    @cached_property
    def _group_N(self) -> Array | None:
        """Equal for images with equal bytes, and for tiles of equal files; None where there are no two."""
        digests_ND = self.digests_ND if self.file_digests_ND is None else self.file_digests_ND
        if digests_ND is None:
            return None
        words_N2 = np.ascontiguousarray(digests_ND).view(np.uint64)
        order_N = np.lexsort(words_N2.T)
        new_N = np.concatenate([[True], (words_N2[order_N[1:]] != words_N2[order_N[:-1]]).any(axis=1)])
        if new_N.all():
            return None
        group_N = np.empty(len(self), np.int64)
        group_N[order_N] = new_N.cumsum() - 1
        return group_N

    def groups_of(self, ids: Tensor | Array) -> Tensor | None:
        """Which of these images belong together: tiles of one file, copies of one image. None where each stands alone.

        They are no independent samples: who has seen one of them knows the others.
        """
        if self._group_N is None:
            return None
        groups_N = torch.from_numpy(self._group_N[np.asarray(ids)])
        return groups_N if len(groups_N.unique()) < len(groups_N) else None

    @property
    def label_fingerprint(self) -> str:
        """Which image has which label, by name; empty where there are no labels."""
        return "" if self.labels is None else self._hashed(self.labels)

    @property
    def known_label_fingerprint(self) -> str:
        """The same of the images that have a label, as if there were no others."""
        return "" if self.labels is None else self._hashed(self.labels[self.labels >= 0])

    def _hashed(self, labels: Tensor) -> str:
        names = self.class_names
        words = [names[label] if names and label >= 0 else str(label) for label in labels.tolist()]
        return hashlib.sha256("\0".join(words).encode(errors="surrogateescape")).hexdigest()

    def _accepted(self) -> float:
        """The fraction that would accept what is bad, rounded up to two digits."""
        return min(1.0, math.ceil(100 * len(self.bad) / len(self)) / 100)

    def leave_out(self, ids: Iterable[int]) -> None:
        """Do not use these images, as if they were bad: every number and cache knows them by `excluded`."""
        self.excluded |= frozenset(ids)

    def _record(self, samples: list[BadSample]) -> None:
        with self._lock:
            # By index: a batch larger than the set asks for the same image twice.
            new = {sample.index: sample for sample in samples if sample.index not in self._bad_ids}
            self.bad.extend(new.values())
            self._bad_ids.update(new)
        if new:
            self._refuse_if_too_bad()

    def _refuse_if_too_bad(self) -> None:
        if len(self.bad) <= self.max_bad_fraction * len(self):
            return
        shown = first_few(self.bad, 3)
        named = "; ".join(f"{sample.path} ({sample.reason})" for sample in shown)
        raise DataError(
            f"{len(self.bad)} of {counted(len(self), 'image')} cannot be used, more than the allowed fraction "
            f"{self.max_bad_fraction:g} (--max-bad-fraction {self._accepted():g} leaves them out)"
            f"{'; first' if len(shown) < len(self.bad) else ''}: {named}"
        )
