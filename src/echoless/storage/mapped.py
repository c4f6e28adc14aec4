"""How is a large array written to disk without holding it? Memory-mapped, with its space reserved first.

A mapped file is sparse: on a full disk the process would be ended by a signal (SIGBUS) in the middle of a write. So
the space is taken when the file is made, and a full disk is an error like any other.
"""

from __future__ import annotations

import io
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from echoless.storage.atomic import explained

_WORTH_A_FILE = 2**24  # bytes


def create_array(path: Path, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A new .npy file of this shape, to be filled in place; RunError where the disk has no room for it."""
    header = io.BytesIO()
    described = np.lib.format.header_data_from_array_1_0(np.empty(0, dtype)) | {"shape": shape}
    np.lib.format.write_array_header_1_0(header, described)
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    with explained(path, needed=size):
        with path.open("wb") as file:
            file.write(header.getvalue())
            file.flush()  # before the descriptor is written to
            reserve(file.fileno(), header.tell() + size)
        return np.lib.format.open_memmap(path, mode="r+")


def in_a_file(array: np.ndarray, folder: Path | None = None) -> np.ndarray:
    """Equal to the array; a large one lies in a file without a name, which goes when nobody uses it any more.

    Its memory is then that of the file system, which takes it back when others need it. folder: where such a file may
    be. Where that is not possible, the array stays as it is.
    """
    if array.nbytes < _WORTH_A_FILE:
        return array
    with suppress(OSError), tempfile.TemporaryFile(dir=folder) as file:
        reserve(file.fileno(), array.nbytes)
        mapped = np.memmap(file, array.dtype, "r+", shape=array.shape)
        mapped[...] = array
        return np.asarray(mapped)
    return array


class Gathered:
    """Blocks of bytes that become one array, as `in_a_file`; only a few of them are in memory at a time."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._parts: list[np.ndarray] = []  # large, in files
        self._few: list[np.ndarray] = []

    def add(self, block: np.ndarray) -> None:
        self._few.append(block.view(np.uint8))
        if sum(each.nbytes for each in self._few) >= _WORTH_A_FILE:
            self._settle()

    def _settle(self) -> None:
        if self._few:
            self._parts.append(in_a_file(np.concatenate(self._few), self._folder))
            self._few = []

    def array(self) -> np.ndarray:
        self._settle()
        if len(self._parts) < 2:
            return self._parts[0] if self._parts else np.empty(0, np.uint8)
        with suppress(OSError), tempfile.TemporaryFile(dir=self._folder) as file:
            size = sum(part.nbytes for part in self._parts)
            reserve(file.fileno(), size)
            return np.asarray(np.concatenate(self._parts, out=np.memmap(file, np.uint8, "r+", shape=(size,))))
        return np.concatenate(self._parts)


def reserve(descriptor: int, size: int) -> None:
    """Make the file this long with every byte on the disk; OSError where there is no room."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    position = os.lseek(descriptor, 0, os.SEEK_END)
    while position < size:  # no such call here (macOS, Windows): zeros take the space
        position += os.write(descriptor, bytes(min(2**20, size - position)))
