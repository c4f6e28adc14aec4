"""What are the reference statistics of a Frechet distance? Mean and covariance of real images' features, cached.

They are found again by content: of the images, of the extractor, and which of its layers was read. What is damaged is
computed again.

    CACHE/references/KEY/moments.safetensors   mean, covariance; how many images, and both fingerprints
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from echoless.data import Images, default_cache_dir
from echoless.errors import EcholessError
from echoless.evaluation.encoder import Encoder
from echoless.evaluation.extract import FeatureSet, View
from echoless.measures import Moments, moments
from echoless.storage import new_folder
from echoless.storage.atomic import explained
from echoless.storage.tensorfile import read_tensors, write_tensors

FILE = "moments.safetensors"


def reference_moments(
    extractor: Encoder, images: Images, view: View, features: Callable[[], FeatureSet], *, keep: bool = True
) -> Moments:
    """Of all usable images; `features` is called where nothing is kept yet."""
    about = {
        "extractor": extractor.fingerprint,
        "data": images.fingerprint,
        "left out": repr(sorted(images.excluded)),
        "view": repr(tuple(view)),
        "framing": repr((extractor.framing, images.reduction)),
    }
    folder = default_cache_dir() / "references" / _key(about)
    keep = keep and bool(extractor.fingerprint)
    kept = _read(folder, about) if keep else None
    if kept is not None:
        return kept
    found = moments(features().features_ND)
    if keep:
        _write(folder, found, about)
    return found


def _key(about: dict[str, str]) -> str:
    return hashlib.sha256("\0".join(about.values()).encode()).hexdigest()[:32]


def _read(folder: Path, about: dict[str, str]) -> Moments | None:
    try:
        tensors, written = read_tensors(folder / FILE)
        found = Moments(tensors["mean"], tensors["covariance"], int(written["n"]))
        whole = written.get("sha256") == _seal(found)
        return found if whole and all(written.get(name) == value for name, value in about.items()) else None
    except (EcholessError, OSError, KeyError, ValueError):
        return None


def _write(folder: Path, found: Moments, about: dict[str, str]) -> None:
    with explained(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(folder) as temporary:
        tensors = {"mean": found.mean_D, "covariance": found.covariance_DD}
        write_tensors(temporary / FILE, tensors, {**about, "n": str(found.n), "sha256": _seal(found)})


def _seal(found: Moments) -> str:
    values = (found.mean_D, found.covariance_DD)
    return hashlib.sha256(b"".join(each.contiguous().numpy().tobytes() for each in values)).hexdigest()
