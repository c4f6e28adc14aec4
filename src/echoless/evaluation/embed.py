"""How does a folder of images become a file of vectors? Part by part, so that a killed embedding continues.

Parts of 1024 images are written atomically beside the target, by whichever process they belong to; when all are there,
they are joined into the target, which appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from echoless.data import Images
from echoless.errors import ConfigError, DataError, RunError
from echoless.evaluation.encoder import MOST_AT_ONCE, Encoder
from echoless.evaluation.extract import CHUNK, View, check_channels, chunks
from echoless.storage import clear_leftovers, write_bytes
from echoless.storage.atomic import explained, new_file
from echoless.storage.lock import FileLock

CHUNKS_PER_PART = 16
IMAGES_PER_PART = CHUNK * CHUNKS_PER_PART


def embed(
    encoder: Encoder,
    images: Images,
    out: Path,
    *,
    view: View,
    half: bool = False,
    overwrite: bool = False,
    rank: int = 0,
    world: int = 1,
    wait: Callable[[], None] = lambda: None,
    report: Callable[[int, int], None] | None = None,
) -> int:
    """Write `out` (.parquet, or .npy with the paths in a text file beside it). Returns the number of vectors."""
    check_target(out, overwrite)
    check_channels(encoder, images)
    parts = _parts_folder(encoder, images, out, view, half)
    count = -(-images.usable // IMAGES_PER_PART)
    files = [parts / f"part-{number:06d}.parquet" for number in range(count)]
    with explained(out), _alone(out) if rank == 0 else nullcontext():
        parts.mkdir(exist_ok=True)
        for number in range(rank, count, world):
            if not _is_whole(files[number]):
                _write_part(files[number], _part(encoder, images, view, number, half))
            if report is not None:
                report(min(images.usable, (number + 1) * IMAGES_PER_PART), images.usable)
        wait()
        rows = _join(files, out) if rank == 0 else 0
        wait()
    return rows


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Nobody else writes this file meanwhile. When it is there, nothing else is: no parts, also of other images."""
    lock = FileLock(
        out.with_name(f".{out.name}.lock"), busy=f"{out} is being written by another process; give another --out"
    )
    try:
        for file in _written(out):
            clear_leftovers(file.parent, file.name)
        yield
        for parts in out.parent.glob(".*.parts-*"):
            if re.fullmatch(re.escape(f".{out.name}.parts-") + "[0-9a-f]{12}", parts.name):
                shutil.rmtree(parts)
    finally:
        lock.remove()


def _written(out: Path) -> list[Path]:
    return [out, out.with_suffix(".paths.txt")] if out.suffix == ".npy" else [out]


def check_target(out: Path, overwrite: bool) -> None:
    """Refuse before any work."""
    if out.suffix not in (".parquet", ".npy"):
        raise ConfigError(f"out is {str(out)!r}; allowed: a name that ends in .parquet or .npy")
    if not out.parent.is_dir():
        raise RunError(f"{out} cannot be written: the folder {out.parent} does not exist")
    if not os.access(out.parent, os.W_OK):
        raise RunError(f"{out} cannot be written: the folder {out.parent} is read-only")
    for file in _written(out):
        if file.exists() and not overwrite:
            raise RunError(f"{file} exists; give --overwrite to replace it, or another --out")
        if file.exists() and not file.is_file():
            raise RunError(f"{file} cannot be written: it exists and is not a regular file")


def _parts_folder(encoder: Encoder, images: Images, out: Path, view: View, half: bool) -> Path:
    """Named after everything that decides the vectors, so that parts of another embedding are never joined in."""
    words = [encoder.fingerprint or os.urandom(8).hex(), images.fingerprint, images.label_fingerprint, *view, str(half)]
    words += [repr((encoder.framing, images.reduction))]
    words += [repr(sorted(images.excluded)), f"{CHUNK} {CHUNKS_PER_PART} {MOST_AT_ONCE}", torch.__version__]
    key = hashlib.sha256("\0".join(words).encode()).hexdigest()[:12]
    return out.parent / f".{out.name}.parts-{key}"


def embedded(encoder: Encoder, images: Images, view: View, *, half: bool = False) -> pa.Table:
    """All of it in memory: path, feature and, where it is known, label."""
    return _table(images, chunks(encoder, images, [view]), view, half)


def _part(encoder: Encoder, images: Images, view: View, number: int, half: bool) -> pa.Table:
    first = number * CHUNKS_PER_PART
    found = list(chunks(encoder, images, [view], first=first, last=first + CHUNKS_PER_PART))
    if not found:
        raise DataError(f"no image from number {number * IMAGES_PER_PART} on can be decoded")
    return _table(images, found, view, half)


def _table(
    images: Images, found: Iterable[tuple[torch.Tensor, dict[View, torch.Tensor]]], view: View, half: bool
) -> pa.Table:
    found = list(found)
    if not found:
        raise DataError("the data has no usable image")
    ids = torch.cat([ids_B for ids_B, _ in found])
    vectors = torch.cat([vectors[view] for _, vectors in found]).numpy().astype(np.float16 if half else np.float32)
    flat = pa.array(vectors.reshape(-1))
    columns = {"path": pa.array([_as_text(images.paths[index]) for index in ids.tolist()])}
    if images.corners_N2 is not None:
        columns |= {name: pa.array(images.corners_N2[ids.numpy(), axis]) for axis, name in enumerate("xy")}
    columns["feature"] = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    labels = images.labels_of(ids)
    if labels is not None:
        names = images.class_names
        known = [names[label] if names else str(label) for label in labels.tolist()]
        columns["label"] = pa.array(known)
    return pa.table(columns)


def _as_text(path: str) -> str:
    """A file name may be any bytes; those that are not UTF-8 are written as \\xNN."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _write_part(file: Path, part: pa.Table) -> None:
    encoded = io.BytesIO()
    pq.write_table(part, encoded)
    write_bytes(file, encoded.getvalue())


def _is_whole(file: Path) -> bool:
    """A part appears by renaming, so it is whole; what cannot be read is computed again."""
    try:
        return pq.ParquetFile(file).metadata.num_rows > 0
    except Exception:
        return False


def _join(parts: list[Path], out: Path) -> int:
    """Returns the number of vectors."""
    rows = sum(pq.ParquetFile(part).metadata.num_rows for part in parts)
    if out.suffix == ".npy":
        _join_npy(parts, rows, *_written(out))
    else:
        with new_file(out) as file, pq.ParquetWriter(file, pq.read_schema(parts[0])) as writer:
            for part in _tables(parts):
                writer.write_table(part)
    return rows


def _join_npy(parts: list[Path], rows: int, out: Path, names: Path) -> None:
    feature = pq.read_schema(parts[0]).field("feature").type
    described = np.lib.format.header_data_from_array_1_0(np.empty(0, feature.value_type.to_pandas_dtype()))
    with new_file(out) as vectors, new_file(names) as paths:
        np.lib.format.write_array_header_1_0(vectors, described | {"shape": (rows, feature.list_size)})
        for part in _tables(parts):
            vectors.write(part["feature"].combine_chunks().flatten().to_numpy(zero_copy_only=False).data)
            for path in _names(part):  # one line for each, whatever its name
                paths.write(path.replace("\\", "\\\\").replace("\n", "\\n").encode() + b"\n")
        for file in (vectors, paths):
            file.flush()
            os.fsync(file.fileno())
        out.unlink(missing_ok=True)  # an old array beside new paths would be read as theirs


def _names(part: pa.Table) -> list[str]:
    """The paths; those of tiles with their corner, as `path,x,y`."""
    columns = [part[name].to_pylist() for name in ("path", "x", "y") if name in part.column_names]
    return [",".join(map(str, row)) for row in zip(*columns)]


def _tables(parts: list[Path]) -> Iterator[pa.Table]:
    for part in parts:
        yield pq.read_table(part)
