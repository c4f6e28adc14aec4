"""Which mistakes can be refused before torch is loaded? Missing paths, a run folder in use, labels without images.

The full checks are where the files are opened; these answer the common mistakes in a fraction of a second.
"""

from __future__ import annotations

import os
from pathlib import Path

from echoless.config.options.fields import AnyPath
from echoless.errors import ConfigError, DataError, RunError

_PATTERN = frozenset("*?[]{}:")  # of shards, of a remote address, of `shapes:100`


def alone() -> bool:
    """Among several processes, only those that have met can refuse in one voice: they check later."""
    return int(os.environ.get("WORLD_SIZE", "1")) == 1


def require_data(*paths: AnyPath | None) -> None:
    """Refuse a data set that is plainly not there, or plainly empty."""
    for path in map(str, (path for path in paths if path is not None)):
        named = path.startswith("shapes") or _PATTERN & set(path)
        if alone() and not named and not Path(path).exists():
            raise DataError(
                f"data {path!r} does not exist; allowed: a folder of images, .parquet, .tar, .npz, or "
                "shapes[:COUNT][@SPLIT]"
            )
        if alone() and not named and Path(path).is_dir() and not any(Path(path).iterdir()):
            raise DataError(f"data {path!r} is an empty folder; it must hold images, or .parquet or .tar files")


def require_model(path: AnyPath, *, names: bool = True) -> None:
    """Refuse a run, an encoder folder or a model folder that is plainly not there. `names`: timm:NAME is one, too."""
    named = names and ":" in str(path)
    if alone() and not named and not Path(path).exists():
        also = ", a transformers folder, or timm:NAME" if names else ""
        raise RunError(f"{path} does not exist; allowed: a run, a checkpoint, a snapshot, or an encoder folder{also}")


def require_test_of(test_labels: AnyPath | None, test: AnyPath | None) -> None:
    """Labels without images would be ignored."""
    if test_labels is not None and test is None:
        raise ConfigError(f"test_labels is {str(test_labels)!r}, but --test is missing")


def require_startable(out: AnyPath, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder that holds a run, unless it is to be continued or replaced."""
    out = Path(out)
    if not alone():
        return
    if resume and overwrite:
        raise RunError(f"{out} cannot be both resumed and overwritten; give one of --resume and --overwrite")
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is not a folder; give --out a folder")
    if not resume and not overwrite and (out / "config.json").is_file():
        raise RunError(
            f"{out} is not empty (it holds a run); give --resume to continue the run in it, --overwrite to replace it, "
            "or another --out"
        )
