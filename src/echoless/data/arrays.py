"""How are images read from an .npz file?

`images` (N, H, W) or (N, H, W, C), uint8, uint16, or floats from 0 to 1, which become 16 bit; optional `labels` (N) and
`masks` (N, H, W). `x` and `y` are other names of the first two, and `arr_0` of `images`. `storage/npzfile.py` reads the
members: nothing is unpickled, uncompressed ones are memory-mapped, and compressed ones are streamed into the decoded
cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from echoless.data.content import Hasher, stamp
from echoless.data.images import BadSample, Fetched
from echoless.data.resample import Array
from echoless.data.sources import CHUNK
from echoless.errors import DataError
from echoless.storage.npzfile import NpzFile

IMAGES, LABELS = ("images", "x", "arr_0"), ("labels", "y")  # names of the members; the first that is there counts


class ArrayFile:
    """The members of an .npz file, checked and ready to read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stamps = [stamp(path)]
        self._file = NpzFile(path)
        self._member = self._present(*IMAGES)
        if self._member not in self._file:
            raise DataError(f"{path} holds {self._file.members}; it needs an array named 'images', or 'x'")
        self.header = self._file.header(self._member)
        _check_layout(f"{path}: images", self.header.dtype, self.header.shape, "N, ")
        self.labels = self._beside(self._present(*LABELS))
        self.masks = self._beside("masks")
        self.mapped = self._file.map(self._member, self.header)
        if self.labels is not None and (self.labels.ndim != 1 or self.labels.dtype.kind not in "iuU"):
            raise DataError(
                f"{path}: labels are {self.labels.dtype} {self.labels.shape}; allowed: one integer or string each"
            )

    def __len__(self) -> int:
        return self.header.shape[0]

    @property
    def channels(self) -> int:
        return self.header.shape[3] if len(self.header.shape) == 4 else 1

    @property
    def bits(self) -> int:
        """Of the pixels that `fetch` and `stream` give: with 8, floats that are all small would keep few levels."""
        return 8 if self.header.dtype == np.uint8 else 16

    @property
    def made_of_floats(self) -> bool:
        return self.header.dtype.kind == "f"

    def fetch(self, ids: Array) -> Fetched:
        if self.mapped is None:
            raise DataError(
                f"{self.path} is compressed and can only be read through the cache; allowed: cache='on' or 'auto'"
            )
        return _to_bchw(np.asarray(self.mapped)[ids], str(self.path), ids)

    def stream(self) -> Iterator[list[Array | BadSample]]:
        """Every image in order, a few at a time, unpacked as they come."""
        row = self.header.bytes // max(len(self), 1)
        with self._file.open() as archive, self._file.member(archive, self._member) as member:
            member.read(self.header.length)
            for start in range(0, len(self), CHUNK):
                count = min(CHUNK, len(self) - start)
                data = self._file.take(member, count * row)
                levels = np.frombuffer(data, self.header.dtype).reshape(count, *self.header.shape[1:])
                yield list(_to_bchw(levels, str(self.path), range(start, start + count)))

    def hash(self) -> Hasher:
        """The hash of every image's pixels."""
        hasher = Hasher()
        for images in self.stream():
            assert not any(isinstance(image, BadSample) for image in images)
            hasher.add([np.ascontiguousarray(image).data for image in images])
        return hasher

    def _present(self, *names: str) -> str:
        """The first of these members that the file has; the first name where it has none."""
        return next((name for name in names if name in self._file), names[0])

    def _beside(self, name: str) -> Array | None:
        """An optional array with one entry per image."""
        if name not in self._file:
            return None
        header = self._file.header(name)
        if not header.shape or header.shape[0] != len(self):
            raise DataError(
                f"{self.path}: {name} has shape {header.shape}; allowed: {len(self)} entries, one per image"
            )
        return self._file.read(name, header)


def pixels_of_array(levels: Array) -> Array:
    """CHW of one image (H, W) or (H, W, C), as if it were in a file."""
    _check_layout("the pixels", levels.dtype, levels.shape, "")
    return _to_bchw(levels[None], "the image")[0]


def _check_layout(what: str, dtype: np.dtype, shape: tuple[int, ...], several: str) -> None:
    """`several`: what stands before the H of the shape, in its notation."""
    if dtype not in (np.uint8, np.uint16) and dtype.kind != "f":
        raise DataError(f"{what} are {dtype}; allowed: uint8, uint16, or floats from 0 to 1")
    first = 1 if several else 0
    if len(shape) - first not in (2, 3) or 0 in shape:
        raise DataError(f"{what} have shape {shape}; allowed: ({several}H, W) or ({several}H, W, C)")
    if len(shape) - first == 3 and shape[-1] > 16 and shape[first] <= 16:
        raise DataError(f"{what} have shape {shape}, channels first; allowed: ({several}H, W, C)")


def _to_bchw(images: Array, what: str, numbers: Sequence[int] | Array | None = None) -> Array:
    """`numbers`: of these images in the set, for whoever has to find a bad one; None: there is one, called `what`."""
    native = images.astype(images.dtype.newbyteorder("="), copy=False)
    if native.dtype.kind == "f":
        if not (native.min() >= 0 and native.max() <= 1):  # also where a value is no number
            raise DataError(_first_bad(native, what, numbers))
        # In half precision, 65535 is infinite.
        native = np.rint(native.astype(np.promote_types(native.dtype, np.float32), copy=False) * 65535)
        native = native.astype(np.uint16)
    return native[:, None] if native.ndim == 3 else native.transpose(0, 3, 1, 2)


def _first_bad(images: Array, what: str, numbers: Sequence[int] | Array | None) -> str:
    """Which image, counted from 0 as in its path, has a value that is none from 0 to 1."""
    levels = images.reshape(len(images), -1)
    finite_N, good_N = np.isfinite(levels).all(axis=1), ((levels >= 0) & (levels <= 1)).all(axis=1)
    row = int((good_N if finite_N.all() else finite_N).argmin())
    name = what if numbers is None else f"{what}: image number {numbers[row]}"
    if not finite_N.all():
        return f"{name} is not finite; replace its NaN or inf, or leave it out"
    value = max(levels[row].min(), levels[row].max(), key=lambda each: abs(each - 0.5))
    return f"{name} has the value {value:g}; allowed: floats from 0 to 1, or uint8, uint16"
