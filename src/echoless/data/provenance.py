"""On which images was a number measured? What the protocol of every number says of its sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from echoless.data.images import Images
from echoless.data.overlap import count_shared

_SHOWN = 12  # digits of a fingerprint: enough to tell sets apart, short enough to read


def describe_sets(train: Images, test: Images | None, names: tuple[str, str]) -> dict[str, Any]:
    """Name and fingerprint of each set, where the labels come from, the chance level, images in both sets.

    Numbers of different fingerprints are never compared. The chance level is what naming the most frequent class of
    the predicted images would score.
    """
    sets: dict[str, Any] = {"train": short_name(names[0]), "train_set": train.fingerprint[:_SHOWN]}
    if test is not None:
        sets |= {"test": short_name(names[1]), "test_set": test.fingerprint[:_SHOWN]}
        if shared := count_shared(train, test):
            sets["overlap"] = shared
    predicted = test or train
    if predicted.labels is not None and len(predicted.labels):
        known = predicted.labels[predicted.labels >= 0]
        sets["labels"] = predicted.label_source
        sets["chance"] = round(float(known.bincount().max() / len(known)), 4) if len(known) else None
    return sets


def short_name(data: str) -> str:
    """The last part of a path: a protocol names no place of a machine."""
    return Path(data).name or data
