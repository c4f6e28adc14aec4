"""Which images trained these weights by their labels? Their hashes are in RUN/taught.bin, 16 bytes each, sealed.

Accuracies on these images are no test, whatever the images are called later. A run that starts from other weights
inherits theirs, and where it is not known of which images those are, that too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echoless.config.supervised import SupervisedConfig
from echoless.errors import EcholessError
from echoless.runs.around import run_of
from echoless.runs.checkpoint import MANIFEST
from echoless.runs.weights import CONFIG
from echoless.storage.atomic import write_bytes
from echoless.storage.jsonfile import open_untrusted, read_json_object
from echoless.storage.seal import sealed, unsealed

TAUGHT = "taught.bin"
KEY_BYTES = 16  # of a hash: `data.overlap.file_keys`
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
    theirs. What left its run has no record.
    """
    run = run_of(path)
    recorded = _recorded(run)
    if recorded is not None:
        return recorded
    damaged, fingerprint = Taught(unknown=(run / TAUGHT).exists()), _supervised_on(run)
    if fingerprint is None:
        return damaged
    return damaged | (Taught(frozenset(known[fingerprint]())) if fingerprint in known else Taught(unknown=True))


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
    described = _object(folder / CONFIG) or _object(folder / MANIFEST)
    inner = described.get("config", described)  # of an encoder or a checkpoint
    objective, data = (inner.get(name) if isinstance(inner, dict) else None for name in ("objective", "data"))
    if not isinstance(objective, dict) or objective.get("kind") != SupervisedConfig.kind:
        return None
    return str(data.get("fingerprint", "")) if isinstance(data, dict) else ""


def _object(file: Path) -> dict[str, Any]:
    try:
        return read_json_object(file)
    except EcholessError:  # not there, or not of ours
        return {}
