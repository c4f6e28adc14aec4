"""How do images become cached features? In chunks of one fixed size, so that the digits never depend on the batch.

A matrix product's last bits depend on its shape. So every chunk has 64 images, aligned to the index and padded at the
end; which chunks a process computes, and when, changes nothing in them.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from echoless.data import Images, evaluation_batches
from echoless.errors import ConfigError, DataError
from echoless.evaluation.encoder import MOST_AT_ONCE, Encoder
from echoless.storage import clear_leftovers, new_folder

CHUNK = 64

Report = Callable[[int, int], None]  # (images done, images in all)


class View(NamedTuple):
    """Which vector of an image: a layer, and how its tokens become one."""

    layer: str
    pooling: str = "mean"


@dataclass(frozen=True)
class FeatureSet:
    """features_ND of the usable images, in order; `ids_N` says which, `labels_N` what they are."""

    view: View
    features_ND: np.ndarray
    ids_N: Tensor
    labels_N: Tensor | None
    home: Path | None = None  # their folder in the cache, which is named after everything that decides them


def chunks(
    encoder: Encoder, images: Images, views: Sequence[View], *, first: int = 0, last: int | None = None
) -> Iterator[tuple[Tensor, dict[View, Tensor]]]:
    """(ids_B, {view: vectors_BD}) of chunk number `first` to `last` of the usable images."""
    check_channels(encoder, images)
    usable = [index for index in range(len(images)) if index not in images.excluded]
    wanted = usable[first * CHUNK : None if last is None else last * CHUNK]
    layers = list(dict.fromkeys(view.layer for view in views))
    for name in layers:
        if name not in encoder.layers:
            raise ConfigError(f"layer is {name!r}; allowed: {', '.join(encoder.layers)}")
    batches = evaluation_batches(
        images, size=encoder.image_size, batch_size=CHUNK, mean=encoder.mean, std=encoder.std, ids=wanted
    )
    offset = _noise_offset(images)
    for batch in batches:
        count = len(batch.ids_B)
        if count == 0:
            continue
        missing = CHUNK - count
        padded = F.pad(batch.images_BCHW, (0, 0, 0, 0, 0, 0, 0, missing))
        tokens = encoder.tokens_of(padded, layers, F.pad(batch.ids_B, (0, missing)) + offset)
        yield (
            batch.ids_B,
            {v: encoder.pool(tokens[v.layer], v.pooling)[:count].float().cpu() for v in views},
        )


def _noise_offset(images: Images) -> int:
    """Where the noise of a set begins: image i of one set must not share its noise with image i of another.

    Two sets in the same order of classes would otherwise be matched by their noise, and a test set told by it.
    """
    return int(hashlib.sha256(images.fingerprint.encode()).hexdigest()[:8], 16) << 28


def extract(
    encoder: Encoder, images: Images, views: Sequence[View], *, cache: Path | None, report: Report | None = None
) -> dict[View, FeatureSet]:
    """The features of every view, from the cache where they are there. Only what is missing is computed."""
    folders = {view: _folder(cache, encoder, images, view) for view in views}
    missing = [view for view, folder in folders.items() if folder is None or not folder.exists()]
    computed = _compute(encoder, images, missing, folders, report) if missing else {}
    return {view: computed.get(view) or _load(folders[view], view, images) for view in views}


def check_channels(encoder: Encoder, images: Images) -> None:
    if images.shape.channels != encoder.channels:
        raise DataError(
            f"the images have {images.shape.channels} channel(s); allowed: {encoder.channels}, as {encoder.name} needs"
        )


def _compute(
    encoder: Encoder, images: Images, views: Sequence[View], folders: dict[View, Path | None], report: Report | None
) -> dict[View, FeatureSet]:
    """Row by row into files that are mapped, not held, where there is a cache; it appears only when it is whole."""
    with contextlib.ExitStack() as stack:
        homes = {view: _new_home(stack, folders[view]) for view in views}
        rows: dict[View, np.ndarray] = {}
        ids_N, done = torch.empty(images.usable, dtype=torch.int64), 0
        for ids_B, vectors in chunks(encoder, images, views):
            for view, vectors_BD in vectors.items():
                if view not in rows:
                    rows[view] = _rows(homes[view], (images.usable, vectors_BD.shape[1]))
                rows[view][done : done + len(ids_B)] = vectors_BD.numpy()
            ids_N[done : done + len(ids_B)] = ids_B
            done += len(ids_B)
            if report is not None:
                report(done, images.usable)
        if not done:
            raise DataError("the data has no usable image")
        for home in homes.values():
            if home is not None:
                np.save(home / "ids.npy", ids_N[:done].numpy())
    labels_N = images.labels_of(ids_N[:done])
    return {view: FeatureSet(view, rows[view][:done], ids_N[:done], labels_N, folders[view]) for view in views}


def _new_home(stack: contextlib.ExitStack, folder: Path | None) -> Path | None:
    if folder is None:
        return None
    folder.parent.mkdir(parents=True, exist_ok=True)
    clear_leftovers(folder.parent, folder.name)
    return stack.enter_context(new_folder(folder))


def _rows(home: Path | None, shape: tuple[int, int]) -> np.ndarray:
    if home is None:
        return np.empty(shape, np.float32)
    return np.lib.format.open_memmap(home / "features.npy", mode="w+", dtype=np.float32, shape=shape)


def _folder(cache: Path | None, encoder: Encoder, images: Images, view: View) -> Path | None:
    if cache is None or not encoder.fingerprint:
        return None
    excluded = sorted(images.excluded)
    words = [
        encoder.fingerprint,
        images.fingerprint,
        repr(excluded),
        *view,
        f"{CHUNK} {MOST_AT_ONCE}",
        torch.__version__,
    ]
    return cache / hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]


def _load(folder: Path | None, view: View, images: Images) -> FeatureSet:
    assert folder is not None
    features = np.load(folder / "features.npy", mmap_mode="r", allow_pickle=False)
    ids_N = torch.from_numpy(np.load(folder / "ids.npy", allow_pickle=False))
    return FeatureSet(view, features[: len(ids_N)], ids_N, images.labels_of(ids_N), folder)
