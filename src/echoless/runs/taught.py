"""Which images trained these weights by their labels? Their hashes are in RUN/taught.bin, 16 bytes each, sealed.

Accuracies on these images are no test, whatever the images are called later. A run that starts from other weights
inherits theirs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from echoless.config.supervised import SupervisedConfig
from echoless.errors import EcholessError
from echoless.runs.weights import CONFIG
from echoless.storage.atomic import write_bytes
from echoless.storage.jsonfile import open_untrusted, read_json_object
from echoless.storage.seal import sealed, unsealed

TAUGHT = "taught.bin"
KEY_BYTES = 16  # of a hash: `data.overlap.file_keys`


def read_taught(path: Path) -> frozenset[bytes] | None:
    """Of a run, or of a checkpoint, snapshot or encoder in it; None where no labels are recorded."""
    try:
        with open_untrusted(_run_of(path) / TAUGHT) as file:
            keys = unsealed(file.read())
    except EcholessError:  # not there
        return None
    return None if keys is None else frozenset(_pieces(keys))


def supervised_on(path: Path) -> str | None:
    """The fingerprint of the images whose labels trained the weights; empty where it is not known, None without labels.

    For what has no TAUGHT: runs of earlier versions, and encoder folders away from their run.
    """
    config = _config(_run_of(path) / CONFIG)
    inner = config.get("config")  # of an encoder folder
    described, data = inner if isinstance(inner, dict) else config, config.get("data")
    objective = described.get("objective")
    if not isinstance(objective, dict) or objective.get("kind") != SupervisedConfig.kind:
        return None
    return str(data.get("fingerprint", "")) if isinstance(data, dict) else ""


def _run_of(path: Path) -> Path:
    """The run that a checkpoint, snapshot or encoder lies in; the path itself where it lies in none."""
    return next((each for each in (path, path.parent, path.parent.parent) if (each / "checkpoints").is_dir()), path)


def _config(file: Path) -> dict[str, Any]:
    try:
        return read_json_object(file)
    except EcholessError:  # not there, or not of ours
        return {}


def add_taught(run: Path, keys: frozenset[bytes]) -> None:
    """With those that are there: a run may go on with other images. Equal runs write equal bytes."""
    every = keys | (read_taught(run) or frozenset())
    if every:
        write_bytes(run / TAUGHT, sealed(b"".join(sorted(every))))


def _pieces(keys: bytes) -> list[bytes]:
    return [keys[start : start + KEY_BYTES] for start in range(0, len(keys), KEY_BYTES)]
