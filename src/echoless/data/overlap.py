"""Which images are copies of others, or tiles of one file? In training and test set, or in one set and its folds."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from echoless.config.counts import counted
from echoless.data.content import DIGEST_BYTES
from echoless.data.images import Images
from echoless.data.resample import Array


def count_shared(train: Images, test: Images) -> int:
    """How many images of the second set are in the first, under whatever name: equal bytes are equal images.

    Images that are left out, such as those without a label, are in neither: one folder may hold both sets.
    """
    return count_known(train, test)


def count_known(train: Images, test: Images | None, taught: Collection[bytes] = ()) -> int:
    """How many of the predicted images are no test: they are in `train`, or `taught`, of which the labels trained.

    Without `test` the images of `train` are predicted, in folds.
    """
    if test is None:
        return sum(key in taught for key in file_keys(train))
    known = set(_keys(train))
    return sum(key in known or file in taught for key, file in zip(_keys(test), file_keys(test)))


def file_keys(images: Images) -> list[bytes]:
    """A hash of the file of each usable image: all of its tiles have the label of their file, whatever their size."""
    return _keys(images) if images.file_digests_ND is None else _rows(images, images.file_digests_ND)


def _keys(images: Images) -> list[bytes]:
    """A hash of each usable image. Drawn ones have no bytes; their paths say which number of which stream they are."""
    if images.digests_ND is not None:
        return _rows(images, images.digests_ND)
    paths = (images.paths[index] for index in images.usable_ids())
    return [hashlib.sha256(path.encode(errors="surrogateescape")).digest()[:DIGEST_BYTES] for path in paths]


def _rows(images: Images, digests_ND: Array) -> list[bytes]:
    return [row.tobytes() for row in digests_ND[images.usable_ids()]]


def overlap_warning(train: Images, test: Images) -> str:
    """One sentence where --train and --test share images, else nothing."""
    shared = count_shared(train, test)
    if not shared:
        return ""
    are = "is" if shared == 1 else "are"
    return (
        f"{shared} of {test.usable} images of --test {are} in --train too: overlapping images inflate test accuracy, "
        "so these numbers say little about new images"
    )


def taught_warning(train: Images, test: Images | None, taught: Collection[bytes]) -> str:
    """One sentence where labels of the predicted images trained the encoder, else nothing."""
    predicted = test or train
    if not (count := sum(key in taught for key in file_keys(predicted))):
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
