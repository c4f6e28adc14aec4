"""How do images become cached features? In chunks of one fixed size, so that the digits never depend on the batch.

A matrix product's last bits depend on its shape. So every chunk has 64 images, aligned to the index and padded at the
end; which chunks a process computes, and when, changes nothing in them.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from echoless.config.counts import counted
from echoless.data import Batch, Images, evaluation_batches
from echoless.errors import DataError, EcholessError, RunError
from echoless.evaluation.encoder import MOST_AT_ONCE, Encoder
from echoless.runtime.sharing import from_process, leads, rank_and_world, wait
from echoless.storage import new_folder, read_json_object, write_json
from echoless.storage.atomic import explained
from echoless.storage.mapped import create_array
from echoless.storage.seal import Seal, check_seal, seal_of

CHUNK = 64
PATCHES = "patches"  # in the place of a pooling: the patch tokens themselves
WORKERS = 2  # threads that prepare images
_FILES = ("features.npy", "ids.npy")  # of a folder in the cache, beside their seals

Report = Callable[[int, int], None]  # (images done, images in all)


class View(NamedTuple):
    """Which vector of an image: a layer, and how its tokens become one (or `PATCHES`: they stay as they are)."""

    layer: str
    pooling: str = "mean"


class Chunk(NamedTuple):
    """Features of up to 64 images, (B, D) or, of patches, (B, rows, columns, D); none if no image can be decoded."""

    number: int
    ids_B: Tensor
    features: dict[View, Tensor]


@dataclass(frozen=True)
class FeatureSet:
    """features_ND of the usable images, in order; `ids_N` says which, `labels_N` what they are.

    groups_N: which of them belong together; None where each stands alone.
    """

    view: View
    features_ND: np.ndarray
    ids_N: Tensor
    labels_N: Tensor | None
    home: Path | None = None  # their folder in the cache, which is named after everything that decides them
    groups_N: Tensor | None = None


def count_chunks(images: Images) -> int:
    return -(-images.usable // CHUNK)


def chunks(
    encoder: Encoder,
    images: Images,
    views: Sequence[View],
    *,
    numbers: Iterable[int] | None = None,
    workers: int = WORKERS,
) -> Iterator[Chunk]:
    """The chunks of these numbers, one after the other; all of the usable images where no numbers are given."""
    check_channels(encoder, images)
    layers = list(dict.fromkeys(view.layer for view in views))
    for name in layers:
        encoder.require_layer(name)
    dense = any(view.pooling == PATCHES for view in views)
    batches = evaluation_batches(
        images,
        size=encoder.image_size,
        batch_size=CHUNK,
        mean=encoder.mean,
        std=encoder.std,
        steps=range(count_chunks(images)) if numbers is None else numbers,
        workers=workers,
        framing=encoder.dense_framing if dense else encoder.framing,
    )
    offset = noise_offset(images)
    for batch in batches:
        found = _features(encoder, batch, views, layers, offset) if len(batch.ids_B) else {}
        _require_finite(found, batch.ids_B, images)
        yield Chunk(batch.step, batch.ids_B, found)


def _features(
    encoder: Encoder, batch: Batch, views: Sequence[View], layers: list[str], offset: int
) -> dict[View, Tensor]:
    count = len(batch.ids_B)
    missing = CHUNK - count
    padded = F.pad(batch.images_BCHW, (0, 0, 0, 0, 0, 0, 0, missing))
    tokens = encoder.tokens_of(padded, layers, F.pad(batch.ids_B, (0, missing)) + offset)
    return {view: _view(encoder, tokens[view.layer][:count], view.pooling).float().cpu() for view in views}


def _view(encoder: Encoder, tokens_BTD: Tensor, pooling: str) -> Tensor:
    if pooling != PATCHES:
        return encoder.pool(tokens_BTD, pooling)
    assert encoder.grid is not None
    return encoder.patches_of(tokens_BTD).unflatten(1, encoder.grid)


class BadFeatures(DataError):
    """Features that are no numbers: the same encoder gives the same again."""


def _require_finite(features: dict[View, Tensor], ids_B: Tensor, images: Images) -> None:
    """A vector that is not finite spoils every distance to it, and nobody would see where it came from."""
    for view, values in features.items():
        good_B = values.isfinite().flatten(1).all(dim=1)
        if not bool(good_B.all()):
            path = images.paths[int(ids_B[~good_B][0])]
            count = int((~good_B).sum())
            raise BadFeatures(
                f"the features of {path!r} at {view.layer} are not finite ({count} of {len(ids_B)} images here); the "
                "weights or the image are damaged"
            )


def noise_offset(images: Images) -> int:
    """Where the noise of a set begins: image i of one set must not share its noise with image i of another.

    Two sets in the same order of classes would otherwise be matched by their noise, and a test set told by it.
    """
    return int(hashlib.sha256(images.fingerprint.encode()).hexdigest()[:8], 16) << 28


def shared_chunks(
    encoder: Encoder, images: Images, views: Sequence[View], *, workers: int = WORKERS
) -> Iterator[Chunk]:
    """Every chunk in order, in every process; they compute them in turn."""
    rank, world = rank_and_world()
    count = count_chunks(images)
    own = chunks(encoder, images, views, numbers=range(rank, count, world), workers=workers)
    if world == 1:
        yield from own
        return
    for first in range(0, count, world):
        turns = range(min(world, count - first))
        mine = _computed(own) if rank in turns else None  # before the first turn: all compute at the same time
        for turn in turns:
            yield _handed_out(first + turn, turn, views, mine if turn == rank else None)


def _computed(own: Iterator[Chunk]) -> Callable[[], Chunk]:
    """The next chunk; a refusal waits for the turn of this process, so that the others hear of it."""
    try:
        chunk = next(own)
    except EcholessError as error:
        refusal = error

        def refuse() -> Chunk:
            raise refusal

        return refuse
    return lambda: chunk


def _handed_out(number: int, source: int, views: Sequence[View], mine: Callable[[], Chunk] | None) -> Chunk:
    """The chunk that process `source` computed, which is `mine` there."""

    def part(view: View | None = None) -> Tensor:
        assert mine is not None
        return mine().ids_B if view is None else mine().features[view]

    ids_B = from_process(source, part, torch.int64)
    present = views if len(ids_B) else ()
    return Chunk(number, ids_B, {view: from_process(source, partial(part, view)) for view in present})


def extract(
    encoder: Encoder,
    images: Images,
    views: Sequence[View],
    *,
    cache: Path | None,
    report: Report | None = None,
    workers: int = WORKERS,
) -> dict[View, FeatureSet]:
    """The features of every view, from the cache where they are there. Only what is missing is computed.

    Several processes share the work. The first of them keeps the cache, which all must see.
    """
    folders = {view: _folder(cache, encoder, images, view) for view in views}
    kept = {view: _load(folder, view, images) for view, folder in folders.items()}
    known = torch.tensor([kept[view] is not None for view in views])
    # A chunk is computed by one process for all of them: they must agree on what is missing.
    missing = [view for view, there in zip(views, from_process(0, lambda: known, torch.bool).tolist()) if not there]
    computed = _compute(encoder, images, missing, folders, report, workers) if missing else {}
    return {view: computed.get(view) or kept[view] or _of_the_first(folders, view, images) for view in views}


def _of_the_first(folders: dict[View, Path | None], view: View, images: Images) -> FeatureSet:
    """What the first process has in the cache."""
    found = _load(folders[view], view, images)
    if found is None:
        raise RunError(
            f"{folders[view]} was written by the first process, and this one cannot read it; several machines need a "
            "shared disk, or give --no-cache"
        )
    return found


def check_channels(encoder: Encoder, images: Images) -> None:
    if images.shape.channels != encoder.channels:
        raise DataError(
            f"the images have {counted(images.shape.channels, 'channel')}; allowed: {encoder.channels}, as "
            f"{encoder.name} needs"
        )


def _compute(
    encoder: Encoder,
    images: Images,
    views: Sequence[View],
    folders: dict[View, Path | None],
    report: Report | None,
    workers: int,
) -> dict[View, FeatureSet]:
    """Row by row into files that are mapped, not held, where there is a cache; it appears only when it is whole."""
    with contextlib.ExitStack() as stack:
        homes = {view: _new_home(stack, folders[view]) if leads() else None for view in views}
        rows = _Rows(images.usable, [view for view in views if leads() or folders[view] is None], homes)
        for chunk in shared_chunks(encoder, images, views, workers=workers):
            rows.add(chunk)
            if report is not None:
                report(rows.done, images.usable)
        if not rows.done:
            raise DataError("the data has no usable image")
        for view, home in homes.items():
            if home is not None:
                _seal(home, rows.features[view], rows.ids_N)
    wait()  # the cache of the first process is whole from here on
    labels_N, groups_N = images.labels_of(rows.ids_N), images.groups_of(rows.ids_N)
    found = {
        view: FeatureSet(view, rows.features[view][: rows.done], rows.ids_N, labels_N, folders[view], groups_N)
        if view in rows.features
        else _of_the_first(folders, view, images)
        for view in views
    }
    if rows.done == images.usable:
        return found
    wait()
    return _forgotten(found)


def _forgotten(found: dict[View, FeatureSet]) -> dict[View, FeatureSet]:
    """Not in the cache any more: an image that cannot be read now may be readable tomorrow.

    What is mapped stays readable for as long as it is mapped.
    """
    for features in found.values():
        if features.home is not None and leads():
            shutil.rmtree(features.home, ignore_errors=True)
    return {view: replace(features, home=None) for view, features in found.items()}


@dataclass
class _Rows:
    """Features of the images so far, one row each; `kept` are the views that this process keeps."""

    total: int
    kept: Sequence[View]
    homes: dict[View, Path | None]
    done: int = 0
    features: dict[View, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ids_N = torch.empty(self.total, dtype=torch.int64)

    @property
    def ids_N(self) -> Tensor:
        return self._ids_N[: self.done]

    def add(self, chunk: Chunk) -> None:
        last = self.done + len(chunk.ids_B)
        for view in self.kept if len(chunk.ids_B) else ():
            values_BD = chunk.features[view]
            if view not in self.features:
                self.features[view] = _array(self.homes[view], (self.total, values_BD.shape[1]))
            self.features[view][self.done : last] = values_BD.numpy()
        self._ids_N[self.done : last] = chunk.ids_B
        self.done = last


def _array(home: Path | None, shape: tuple[int, int]) -> np.ndarray:
    if home is None:
        return np.empty(shape, np.float32)
    return create_array(home / "features.npy", np.float32, shape)


def _seal(home: Path, features_ND: np.ndarray, ids_N: Tensor) -> None:
    """What is zeroed, cut short or changed later is not believed."""
    assert isinstance(features_ND, np.memmap)
    features_ND.flush()
    np.save(home / "ids.npy", ids_N.numpy())
    write_json(home / "seals.json", {name: seal_of(home / name)._asdict() for name in _FILES})


def _new_home(stack: contextlib.ExitStack, folder: Path | None) -> Path | None:
    if folder is None:
        return None
    with explained(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    return stack.enter_context(new_folder(folder))


def _folder(cache: Path | None, encoder: Encoder, images: Images, view: View) -> Path | None:
    if cache is None or not encoder.fingerprint:
        return None
    excluded = sorted(images.excluded)
    words = [
        encoder.fingerprint,
        images.fingerprint,
        repr((encoder.framing, images.reduction)),
        *(["whole"] if images.stand_for_tiles else []),
        repr(excluded),
        *view,
        f"{CHUNK} {MOST_AT_ONCE}",
        torch.__version__,
    ]
    return cache / hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]


def _load(folder: Path | None, view: View, images: Images) -> FeatureSet | None:
    """The features in the cache; None where there are none, or not as they were written."""
    if folder is None or not folder.is_dir():
        return None
    try:
        seals = read_json_object(folder / "seals.json")
        for name in _FILES:
            check_seal(folder / name, Seal.parse(seals.get(name), folder / "seals.json"))
    except EcholessError:
        return None
    features = np.load(folder / "features.npy", mmap_mode="r", allow_pickle=False)
    ids_N = torch.from_numpy(np.load(folder / "ids.npy", allow_pickle=False))
    return FeatureSet(view, features[: len(ids_N)], ids_N, images.labels_of(ids_N), folder, images.groups_of(ids_N))
