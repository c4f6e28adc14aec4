"""Which images trained these weights by their labels? Their hashes are in RUN/taught.bin, 16 bytes each, sealed.

Accuracies on these images are no test, whatever the images are called later. A run that starts from other weights
inherits theirs, and where it is not known of which images those are, that too. Weights that leave their run leave the
hashes behind; their config then says by MARK that there were labels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echoless.config.supervised import SupervisedConfig
from echoless.errors import EcholessError
from echoless.runs.around import run_of
from echoless.runs.checkpoint import MANIFEST
from echoless.runs.weights import CONFIG, WEIGHTS
from echoless.storage.atomic import write_bytes
from echoless.storage.jsonfile import open_untrusted, read_json_object
from echoless.storage.seal import sealed, unsealed

TAUGHT = "taught.bin"
KEY_BYTES = 16  # of a hash: `data.overlap.file_keys`
MARK = "taught_by_labels"  # true in the config of weights that labels trained: ours, and those that we export
_UNKNOWN = b"\xff" * KEY_BYTES  # among the hashes: there are others

KnownSets = Mapping[str, Callable[[], Collection[bytes]]]


@dataclass(frozen=True)
class Taught:
    """Hashes of the images whose labels trained weights; unknown: of others too, of which there is no record."""

    keys: frozenset[bytes] = frozenset()
    unknown: bool = False

    def __or__(self, other: Taught) -> Taught:
        return Taught(self.keys | other.keys, self.unknown or other.unknown)

    @property
    def note(self) -> str:
        """One sentence where the images are not known, else nothing."""
        if not self.unknown:
            return ""
        return (
            "labels trained this encoder, or the weights it started from, and it is not recorded of which images: "
            "accuracies on those say little"
        )


def taught_by(path: Path, known: KnownSets) -> Taught:
    """Of a run, or of a checkpoint, snapshot or encoder in it.

    Runs of earlier versions recorded the fingerprint of their images alone: known has the hashes of the sets at hand by
    theirs. What left its run has no record but its mark.
    """
    run = _place_of(path)
    recorded = _recorded(run)
    if recorded is not None:
        return recorded
    others, fingerprint = Taught(unknown=os.path.lexists(run / TAUGHT) or _is_marked(run)), _supervised_on(run)
    if fingerprint is None:
        return others
    return others | (Taught(frozenset(known[fingerprint]())) if fingerprint in known else Taught(unknown=True))


def mark_of(path: Path) -> dict[str, bool]:
    """For the config of these weights, which may be read without their run: that labels trained them or their start."""
    place = _place_of(path)
    taught = os.path.lexists(place / TAUGHT) or _is_marked(place) or _supervised_on(place) is not None
    return {MARK: True} if taught else {}


def add_taught(run: Path, taught: Taught) -> None:
    """With those that are there: a run may go on with other images. Equal runs write equal bytes."""
    every = taught | (_recorded(run) or Taught())
    keys = every.keys | ({_UNKNOWN} if every.unknown else frozenset())
    if keys:
        write_bytes(run / TAUGHT, sealed(b"".join(sorted(keys))))


def _recorded(run: Path) -> Taught | None:
    """None where there is no record, or a damaged one."""
    try:
        with open_untrusted(run / TAUGHT) as file:
            whole = unsealed(file.read())
    except EcholessError:  # not there
        return None
    if whole is None:
        return None
    keys = frozenset(whole[start : start + KEY_BYTES] for start in range(0, len(whole), KEY_BYTES))
    return Taught(keys - {_UNKNOWN}, _UNKNOWN in keys)


def _supervised_on(folder: Path) -> str | None:
    """The fingerprint of the images whose labels trained the weights; empty where it is not known, None without labels.

    The folder is a run, or a checkpoint, snapshot or encoder that left its run.
    """
    _, inner = _described(folder)
    objective, data = inner.get("objective"), inner.get("data")
    if not isinstance(objective, dict) or objective.get("kind") != SupervisedConfig.kind:
        return None
    return str(data.get("fingerprint", "")) if isinstance(data, dict) else ""


def _is_marked(folder: Path) -> bool:
    """The folder of a run, of an import, or of weights alone, also in the format of another library."""
    return any(each.get(MARK) is True for place in (folder, folder / "encoder") for each in _described(place))


def _described(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What config.json or the manifest says, and the config in it, where it is of an encoder or a checkpoint."""
    whole = _object(folder / CONFIG) or _object(folder / MANIFEST)
    inner = whole.get("config", whole)
    return whole, inner if isinstance(inner, dict) else {}


def _place_of(path: Path) -> Path:
    """The run of weights of ours, else their own folder, which timm names with a prefix."""
    before, named, folder = str(path).rpartition("local-dir:")
    if named and before in ("", "timm:"):
        return Path(folder)
    return run_of(path.parent if path.name == WEIGHTS and path.is_file() else path)


def _object(file: Path) -> dict[str, Any]:
    try:
        return read_json_object(file.resolve())  # download caches keep links
    except EcholessError:  # not there, or not of ours
        return {}
