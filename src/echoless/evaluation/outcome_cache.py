"""How is nothing measured twice? Outcomes are cached beside the features, keyed by everything that decides them.

That is: the features themselves, the labels, which images belong together, the settings, and the code of the measures.
Whatever changes, the name changes, and the measurement is made again; so a cached number is the number that would be
measured now.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch

from echoless.evaluation.extract import FeatureSet
from echoless.runtime.sharing import from_process
from echoless.storage import clear_leftovers, write_bytes
from echoless.storage.seal import sealed, unsealed

CODE = ("echoless.measures", "echoless.evaluation")


def cached_outcome(
    sets: Sequence[FeatureSet],
    settings: object,
    shape: tuple[int, ...],
    measure: Callable[[], np.ndarray],
    dtype: torch.dtype = torch.bool,
) -> np.ndarray:
    """What `measure` returns, or returned when it was called for the same sets and settings before, as `dtype`.

    Of several processes the first measures. Features that are not in a cache are measured every time. A file that is
    damaged, or has another shape, is replaced.
    """
    return from_process(0, lambda: torch.from_numpy(_outcome(sets, settings, shape, measure)), dtype).numpy()


def _outcome(
    sets: Sequence[FeatureSet], settings: object, shape: tuple[int, ...], measure: Callable[[], np.ndarray]
) -> np.ndarray:
    homes = [each.home for each in sets]
    if homes[0] is None or None in homes:
        return measure()
    file = homes[0] / f"outcome-{_name(sets, settings)}.npy"
    kept = _read(file)
    if kept is not None and kept.shape == shape:
        return kept
    outcome, data = measure(), io.BytesIO()
    np.save(data, outcome, allow_pickle=False)
    clear_leftovers(file.parent, file.name)
    write_bytes(file, sealed(data.getvalue()))
    return outcome


def _read(file: Path) -> np.ndarray | None:
    """The array, if it is what was written."""
    try:
        data = unsealed(file.read_bytes())
    except OSError:
        return None
    return None if data is None else np.asarray(np.load(io.BytesIO(data), allow_pickle=False))


def _name(sets: Sequence[FeatureSet], settings: object) -> str:
    digest = hashlib.sha256(f"{_code()} {torch.__version__} {settings!r}".encode())
    for each in sets:
        assert each.home is not None
        labels = b"" if each.labels_N is None else each.labels_N.numpy().tobytes()
        digest.update(each.home.name.encode() + hashlib.sha256(labels).digest())
        if each.groups_N is not None:  # they decide the folds
            digest.update(b"groups" + hashlib.sha256(each.groups_N.numpy().tobytes()).digest())
    return digest.hexdigest()[:32]


@cache
def _code() -> str:
    """The fingerprint of every line that may decide a number."""
    digest = hashlib.sha256()
    for package in CODE:
        for source in sorted(files(package).iterdir(), key=lambda each: each.name):
            if source.name.endswith(".py"):
                digest.update(source.read_bytes())
    return digest.hexdigest()
