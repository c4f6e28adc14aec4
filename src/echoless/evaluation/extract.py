"""How do images become cached features? In chunks of one fixed size, so that the digits never depend on the batch.

A matrix product's last bits depend on its shape. So every chunk has 64 images, aligned to the index and padded at the
end; which chunks a process computes, and when, changes nothing in them.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from echoless.data import Images, evaluation_batches
from echoless.errors import ConfigError, DataError, EcholessError
from echoless.evaluation.encoder import MOST_AT_ONCE, Encoder
from echoless.storage import new_folder, read_json_object, write_json
from echoless.storage.atomic import explained
from echoless.storage.mapped import create_array
from echoless.storage.seal import Seal, check_seal, seal_of

CHUNK = 64
_FILES = ("features.npy", "ids.npy")  # of a folder in the cache, beside their seals

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
        images,
        size=encoder.image_size,
        batch_size=CHUNK,
        mean=encoder.mean,
        std=encoder.std,
        ids=wanted,
        framing=encoder.framing,
    )
    offset = _noise_offset(images)
    for batch in batches:
        count = len(batch.ids_B)
        if count == 0:
            continue
        missing = CHUNK - count
        padded = F.pad(batch.images_BCHW, (0, 0, 0, 0, 0, 0, 0, missing))
        tokens = encoder.tokens_of(padded, layers, F.pad(batch.ids_B, (0, missing)) + offset)
        vectors = {view: encoder.pool(tokens[view.layer], view.pooling)[:count].float().cpu() for view in views}
        _require_finite(vectors, batch.ids_B, images)
        yield batch.ids_B, vectors


def _require_finite(vectors: dict[View, Tensor], ids_B: Tensor, images: Images) -> None:
    """A vector that is not finite spoils every distance to it, and nobody would see where it came from."""
    for view, vectors_BD in vectors.items():
        good_B = vectors_BD.isfinite().all(dim=1)
        if not bool(good_B.all()):
            path = images.paths[int(ids_B[~good_B][0])]
            count = int((~good_B).sum())
            raise DataError(
                f"the features of {path!r} at {view.layer} are not finite ({count} of {len(ids_B)} images here); the "
                "weights or the image are damaged"
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
    kept = {view: _load(folder, view, images) for view, folder in folders.items()}
    missing = [view for view, features in kept.items() if features is None]
    computed = _compute(encoder, images, missing, folders, report) if missing else {}
    return {view: kept[view] or computed[view] for view in views}


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
        for view, home in homes.items():
            if home is not None:
                _seal(home, rows[view], ids_N[:done])
    if done < images.usable:  # an image that cannot be read now may be readable tomorrow
        folders = _forgotten({view: folders[view] for view in views})
    labels_N = images.labels_of(ids_N[:done])
    return {view: FeatureSet(view, rows[view][:done], ids_N[:done], labels_N, folders[view]) for view in views}


def _forgotten(folders: dict[View, Path | None]) -> dict[View, Path | None]:
    """Not in the cache any more; what is mapped stays readable for as long as it is mapped."""
    for folder in folders.values():
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    return dict.fromkeys(folders)


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


def _rows(home: Path | None, shape: tuple[int, int]) -> np.ndarray:
    if home is None:
        return np.empty(shape, np.float32)
    return create_array(home / "features.npy", np.float32, shape)


def _folder(cache: Path | None, encoder: Encoder, images: Images, view: View) -> Path | None:
    if cache is None or not encoder.fingerprint:
        return None
    excluded = sorted(images.excluded)
    words = [
        encoder.fingerprint,
        images.fingerprint,
        repr((encoder.framing, images.reduction)),
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
    return FeatureSet(view, features[: len(ids_N)], ids_N, images.labels_of(ids_N), folder)
