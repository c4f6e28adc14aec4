"""Do the training and test sets share images? Overlapping images inflate test accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from echoless.data import Images

_COMPARED = 64


def overlap_warning(train: Images, test: Images, data: tuple[str, str]) -> str:
    """One sentence where --train and --test share images, else nothing.

    A path in both sets is a suspicion (two folders may name different images alike); equal pixels confirm it.
    """
    pairs = _same_paths(train.paths, test.paths) or _same_paths(*map(_whole_paths, data, (train, test)))
    looked = [pairs[i] for i in np.linspace(0, len(pairs) - 1, min(len(pairs), _COMPARED)).astype(int)]
    same = sum(_same_pixels(train, test, *pair) for pair in looked)
    if not same:
        return ""
    every = f"{len(pairs)} paths are in both, and {same} of {len(looked)} that were compared are the same images"
    return f"--train and --test share images ({every}): what is measured on them says little about new ones"


def _same_paths(train: Sequence[str], test: Sequence[str]) -> list[tuple[int, int]]:
    """The numbers of the images that both sets call the same."""
    number = {path: index for index, path in enumerate(train)}
    return [(number[path], index) for index, path in enumerate(test) if path in number]


def _whole_paths(data: str, images: Images) -> list[str]:
    """A folder and one inside it call the same file differently."""
    root = Path(data).resolve()
    return [str(root / path) for path in images.paths] if root.is_dir() else []


def _same_pixels(train: Images, test: Images, first: int, second: int) -> bool:
    ours, theirs = train.get([first]).pixels, test.get([second]).pixels
    return len(ours) > 0 and len(theirs) > 0 and np.array_equal(ours[0], theirs[0])
