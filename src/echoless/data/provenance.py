"""On which images was a number measured? What the protocol of every number says of its sets."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from echoless.config.addresses import without_secrets
from echoless.data.content import fingerprint_of
from echoless.data.images import Images
from echoless.data.overlap import count_groups, count_known, count_taught
from echoless.data.shards import fixed_part, is_local_pattern

_SHOWN = 12  # digits of a fingerprint: enough to tell sets apart, short enough to read


def describe_sets(
    train: Images, test: Images | None, names: tuple[str, str], taught: Collection[bytes] = ()
) -> dict[str, Any]:
    """Name and fingerprint of each set, files or distinct images of the predicted one, and how many of it are known,
    of these by label; the channels of the files, where they were converted.

    Numbers of different fingerprints are never compared. taught: images whose labels trained the encoder.
    """
    sets: dict[str, Any] = {"train": short_name(names[0]), "train_set": _fingerprint(train)}
    if test is not None:
        sets |= {"test": short_name(names[1]), "test_set": _fingerprint(test)}
    if known := count_known(train, test, taught):
        sets |= {"overlap": known, "overlap_by_label": count_taught(test or train, taught)}
    return sets | _file_channels(train, test) | count_groups(test or train)


def _file_channels(train: Images, test: Images | None) -> dict[str, str]:
    """Of most files, where they were converted; of each set, where the two differ."""
    given = {"train": train} if test is None else {"train": train, "test": test}
    if not any(images.converted for images in given.values()):
        return {}
    found = {name: images.file_channels or images.shape.channels for name, images in given.items()}
    if len(set(found.values())) == 1:
        return {"file_channels": str(found["train"])}
    return {"file_channels": ", ".join(f"{name} {channels}" for name, channels in found.items())}


def _fingerprint(images: Images) -> str:
    """Of the images that are used, as if there were no others: more photographs without a label change no number."""
    left_out = images.excluded - {sample.index for sample in images.bad}
    if not left_out:
        return images.fingerprint[:_SHOWN]
    if images.digests_ND is None:
        return hashlib.sha256(f"{images.fingerprint} without {sorted(left_out)}".encode()).hexdigest()[:_SHOWN]
    used_U = np.setdiff1d(np.arange(len(images)), sorted(left_out))
    digests_UD = np.ascontiguousarray(images.digests_ND[used_U])
    return fingerprint_of((images.paths[index] for index in used_U), digests_UD)[:_SHOWN]


def describe_labels(train: Images, test: Images | None) -> dict[str, Any]:
    """Where the labels come from, their file, a hash of them, and the chance level; for numbers that depend on labels.

    The chance level is what naming the most frequent class of the predicted images would score.
    """
    predicted = test or train
    if train.labels is None or predicted.labels is None:
        return {}
    known = predicted.known_labels
    files = dict.fromkeys(each.label_file or each.label_source for each in (train, predicted))
    named = {"label_file": " and ".join(files)} if train.label_file or predicted.label_file else {}
    both = "".join(each.known_label_fingerprint for each in (train, test) if each is not None)
    return {
        "labels": predicted.label_source,
        **named,
        "label_set": hashlib.sha256(both.encode()).hexdigest()[:_SHOWN],
        "chance": round(float(known.bincount().max() / len(known)), 4) if len(known) else None,
    }


def short_name(data: str) -> str:
    """The last part of a path: a protocol names no place of a machine. A pattern keeps the folder that it begins in."""
    public = without_secrets(data)
    if is_local_pattern(data):
        fixed = fixed_part(public)
        return str(Path(fixed.name) / Path(public).relative_to(fixed))
    return Path(public).name or public
