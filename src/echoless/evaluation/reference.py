"""What are the reference statistics of a Frechet distance? Mean and covariance of real images' features.

Those of images are computed once and cached. They are found again by content: of the images, of the extractor, and
which of its layers was read. What is damaged is computed again.

    CACHE/references/KEY/moments.safetensors   mean, covariance; how many images, and both fingerprints

Published ones come as an .npz file with `mu` and `sigma`, as the ADM suite and most FID tools have it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from echoless.data import Images, default_cache_dir
from echoless.errors import ConfigError, DataError, EcholessError
from echoless.evaluation.encoder import Encoder
from echoless.evaluation.extract import FeatureSet, View, shared_chunks
from echoless.measures import Moments, MomentsAccumulator, moments
from echoless.runtime import Progress
from echoless.storage import new_folder
from echoless.storage.atomic import explained
from echoless.storage.npzfile import NpzFile
from echoless.storage.tensorfile import read_tensors, write_tensors

FILE = "moments.safetensors"
STREAMED = 100_000  # images from which on features are summed up as they come: a million of Inception take 8 GB


def reference_moments(
    extractor: Encoder, images: Images, view: View, features: Callable[[], FeatureSet], *, keep: bool = True
) -> Moments:
    """Of all usable images; `features` is called where nothing is kept yet, unless there are too many to hold."""
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
    found = moments(features().features_ND) if images.usable < STREAMED else _streamed(extractor, images, view)
    if keep and found.n == images.usable:  # an image that cannot be read now may be readable tomorrow
        _write(folder, found, about)
    return found


def _streamed(extractor: Encoder, images: Images, view: View) -> Moments:
    accumulator: MomentsAccumulator | None = None
    with Progress("reference statistics", images.usable, "images") as progress:
        for chunk in shared_chunks(extractor, images, [view]):
            if len(chunk.ids_B):
                accumulator = accumulator or MomentsAccumulator(chunk.features[view].shape[1])
                accumulator.update(chunk.features[view])
                progress.show(accumulator.n)
    if accumulator is None:
        raise DataError("the data has no usable image")
    return accumulator.moments()


def require_statistics(given: str) -> Path:
    """The file that --reference names, where it is not one of the two sets."""
    file = Path(given)
    if not (file.suffix == ".npz" and file.is_file()):
        raise ConfigError(f"reference is {given!r}; allowed: train, test, or an .npz file that exists")
    return file


def published_moments(file: Path) -> Moments:
    """`mu` (D,) and `sigma` (D, D) of an .npz file; other arrays in it do not matter."""
    archive = NpzFile(file)
    headers = {name: archive.header(name) for name in ("mu", "sigma")}
    dim = headers["mu"].shape[0] if headers["mu"].shape else 0
    shapes = {name: header.shape for name, header in headers.items()}
    if shapes != {"mu": (dim,), "sigma": (dim, dim)} or dim == 0:
        raise DataError(f"{file}: mu and sigma have shapes {tuple(shapes.values())}; allowed: (D,) and (D, D)")
    kinds = {header.dtype for header in headers.values()}
    if any(kind not in (np.float32, np.float64) for kind in kinds):
        raise DataError(f"{file}: mu and sigma are {' and '.join(map(str, kinds))}; allowed: float32, float64")
    mean, covariance = (_tensor(archive.read(name, header)) for name, header in headers.items())
    found = Moments(mean, covariance, None)
    asymmetry = float((covariance - covariance.T).abs().max())
    if asymmetry > 1e-6 * float(covariance.abs().max()) or float(covariance.diagonal().min()) < 0:
        raise DataError(f"{file}: sigma is no covariance; it must be symmetric, with a diagonal of 0 or more")
    return found


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array.astype(np.float64))


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
