"""Which images are copies of others, or tiles of one file? In training and test set, or in one set and its folds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from functools import partial

import numpy as np

from echoless.config.counts import counted, first_of
from echoless.data.content import DIGEST_BYTES
from echoless.data.images import Images
from echoless.data.resample import Array

_NAMED = 3  # shared images, in a warning


def count_known(train: Images, test: Images | None, taught: Collection[bytes] = ()) -> int:
    """How many of the predicted images are no test: they are in `train`, or `taught`, of which the labels trained.

    Equal bytes are equal images, under whatever name. Those that are left out, such as those without a label, are in
    neither set: one folder may hold both. Without `test` the images of `train` are predicted, in folds.
    """
    if test is None:
        return count_taught(train, taught)
    known = set(_keys(train))
    return sum(key in known or file in taught for key, file in zip(_keys(test), file_keys(test)))


def count_taught(images: Images, taught: Collection[bytes]) -> int:
    """Of how many of these images, or of the files of these tiles, the labels trained the encoder."""
    return sum(key in taught for key in file_keys(images))


def file_keys(images: Images, ids: Array | None = None) -> list[bytes]:
    """A hash of the file of each usable image, or of these: all of its tiles have the label of their file, whatever
    their size."""
    return _keys(images, ids) if images.file_digests_ND is None else _rows(images, images.file_digests_ND, ids)


def keys_by_set(*sets: Images | None) -> dict[str, Callable[[], list[bytes]]]:
    """The hashes of the files of each set, those without a label included, by its fingerprint."""
    return {each.fingerprint: partial(file_keys, each, np.arange(len(each))) for each in sets if each is not None}


def _keys(images: Images, ids: Array | None = None) -> list[bytes]:
    """A hash of each usable image. Drawn ones have no bytes; their paths say which number of which stream they are."""
    if images.digests_ND is not None:
        return _rows(images, images.digests_ND, ids)
    paths = (images.paths[index] for index in (images.usable_ids() if ids is None else ids))
    return [hashlib.sha256(path.encode(errors="surrogateescape")).digest()[:DIGEST_BYTES] for path in paths]


def _rows(images: Images, digests_ND: Array, ids: Array | None) -> list[bytes]:
    return [row.tobytes() for row in digests_ND[images.usable_ids() if ids is None else ids]]


def overlap_warning(train: Images, test: Images, learned: str = "--train") -> str:
    """One sentence where --test shares images with the other set, called `learned`, else nothing; it names a few."""
    train_keys, test_keys = _keys(train), _keys(test)
    known = set(train_keys)
    shared = [place for place, key in enumerate(test_keys) if key in known]
    if not shared:
        return ""
    ids = test.usable_ids()
    firsts: dict[str, int] = {}  # tiles of one file have one name
    for place in shared:
        firsts.setdefault(test.paths[int(ids[place])], place)
    pairs = [(place, train_keys.index(test_keys[place])) for place in list(firsts.values())[:_NAMED]]
    named = [_named(_path(test, own), _path(train, its)) for own, its in pairs]
    listing = first_of(named, _NAMED, of=len(firsts))
    verb = "is" if len(shared) == 1 else "are"
    return (
        f"{len(shared)} of {test.usable} images of --test {verb} in {learned} too ({listing}): "
        "overlapping images inflate test accuracy, so these numbers say little about new images"
    )


def _path(images: Images, place: int) -> str:
    """Of the usable image at this place."""
    return images.paths[int(images.usable_ids(place, place + 1)[0])]


def _named(path: str, copy: str) -> str:
    return path if path == copy else f"{path} is {copy}"


def taught_warning(train: Images, test: Images | None, taught: Collection[bytes]) -> str:
    """One sentence where labels of the predicted images trained the encoder, else nothing."""
    predicted = test or train
    if not (count := count_taught(predicted, taught)):
        return ""
    whose = f"{count} of the {counted(predicted.usable, 'image')}{' of --test' if test is not None else ''}"
    return (
        f"the labels of {whose} trained this encoder, so accuracies on them say little about new images; give --test "
        "with others"
    )


def count_groups(images: Images) -> dict[str, int]:
    """How many files the tiles are of, or how many images there are without copies; nothing where each stands alone."""
    groups_N = images.groups_of(images.usable_ids())
    if groups_N is None:
        return {}
    return {"distinct" if images.corners_N2 is None else "files": len(groups_N.unique())}


def group_notes(images: Images, *, which: str = "") -> list[str]:
    """A sentence where images belong together. which: the option of a test set; empty: they are put into folds."""
    of = f" of {which}" if which else ""
    lines = []
    for kind, count in count_groups(images).items():
        if kind == "files":
            lines.append(f"{'intervals' if which else 'folds'} by file: {images.usable} tiles{of} of {count} files")
        else:
            together = "intervals draw them together" if which else "copies stay in one fold"
            copies = images.usable - count
            are = "is a copy of another" if copies == 1 else "are copies of others"
            lines.append(f"{copies} of {images.usable} images{of} {are}; {together}")
    return lines
