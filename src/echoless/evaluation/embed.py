"""How does a folder of images become a file of vectors? Part by part, so that a killed embedding continues.

Parts of 1024 images are written atomically beside the target, by whichever process they belong to; when all are there,
they are joined into the target, which appears whole or not at all.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
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
    root: Path | None = None,
    about: Mapping[str, str] | None = None,
) -> int:
    """Write `out` (.parquet, .csv, or .npy with the paths in a text file beside it). Returns the number of vectors.

    root: a folder that is put before every path. about: what the metadata of a parquet file says besides.
    """
    check_target(out, overwrite)
    check_channels(encoder, images)
    parts = _parts_folder(encoder, images, out, view, half)
    count = -(-images.usable // IMAGES_PER_PART)
    files = [parts / f"part-{number:06d}.parquet" for number in range(count)]
    with explained(out), _alone(out) if rank == 0 else nullcontext():
        parts.mkdir(exist_ok=True)
        for number in range(rank, count, world):
            if not _is_whole(files[number], min(IMAGES_PER_PART, images.usable - number * IMAGES_PER_PART)):
                _write_part(files[number], _part(encoder, images, view, number, half))
            if report is not None:
                report(min(images.usable, (number + 1) * IMAGES_PER_PART), images.usable)
        wait()
        rows = _join(_Joined(files, root, dict(about or {})), out) if rank == 0 else 0
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
    if out.suffix not in _JOIN:
        raise ConfigError(f"out is {str(out)!r}; allowed: a name that ends in .parquet, .npy or .csv")
    with explained(out):
        out.parent.mkdir(parents=True, exist_ok=True)
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
    columns = {"path": pa.array([as_text(images.paths[index]) for index in ids.tolist()])}
    if images.corners_N2 is not None:
        columns |= {name: pa.array(images.corners_N2[ids.numpy(), axis]) for axis, name in enumerate("xy")}
    columns["feature"] = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    labels = images.labels_of(ids)
    if labels is not None:
        names = images.class_names
        known = [None if label < 0 else names[label] if names else str(label) for label in labels.tolist()]
        columns["label"] = pa.array(known, pa.string())
    return pa.table(columns)


def as_text(path: str | Path) -> str:
    """A file name may be any bytes; those that are not UTF-8 are written as \\xNN."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _write_part(file: Path, part: pa.Table) -> None:
    encoded = io.BytesIO()
    pq.write_table(part, encoded)
    write_bytes(file, encoded.getvalue())


def _is_whole(file: Path, rows: int) -> bool:
    """What cannot be read is computed again, and so is a part that lacks an image: it may be readable now."""
    try:
        return pq.ParquetFile(file).metadata.num_rows == rows
    except Exception:
        return False


def _join(joined: _Joined, out: Path) -> int:
    """Returns the number of vectors."""
    _JOIN[out.suffix](joined, out)
    return joined.rows


@dataclass(frozen=True)
class _Joined:
    """The parts of one embedding, as one table after the other."""

    parts: list[Path]
    root: Path | None  # put before every path
    about: dict[str, str]

    @property
    def rows(self) -> int:
        return sum(pq.ParquetFile(part).metadata.num_rows for part in self.parts)

    @property
    def schema(self) -> pa.Schema:
        return pq.read_schema(self.parts[0]).with_metadata(
            {f"echoless.{key}": text for key, text in self.about.items()}
        )

    def tables(self) -> Iterator[pa.Table]:
        root = None if self.root is None else Path(as_text(self.root))
        for part in self.parts:
            table = pq.read_table(part)
            if root is not None:
                paths = [str(root / path) for path in table["path"].to_pylist()]
                table = table.set_column(table.schema.get_field_index("path"), "path", pa.array(paths))
            yield table.replace_schema_metadata(self.schema.metadata)


def _join_parquet(joined: _Joined, out: Path) -> None:
    with new_file(out) as file, pq.ParquetWriter(file, joined.schema) as writer:
        for table in joined.tables():
            writer.write_table(table)


def _join_csv(joined: _Joined, out: Path) -> None:
    """path, the corner of a tile, label where it is known, and one column per dimension."""
    known = [name for name in ("path", "x", "y", "label") if name in joined.schema.names]
    with new_file(out) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        writer = csv.writer(text)
        writer.writerow([*known, *(f"f{i}" for i in range(joined.schema.field("feature").type.list_size))])
        for table in joined.tables():
            columns = [table[name].to_pylist() for name in (*known, "feature")]
            writer.writerows([*words, *(f"{value:.9g}" for value in vector)] for *words, vector in zip(*columns))
        text.detach()  # the file is forced to the disk before it is closed


def _join_npy(joined: _Joined, out: Path) -> None:
    out, names = _written(out)
    feature = joined.schema.field("feature").type
    described = np.lib.format.header_data_from_array_1_0(np.empty(0, feature.value_type.to_pandas_dtype()))
    with new_file(out) as vectors, new_file(names) as paths:
        np.lib.format.write_array_header_1_0(vectors, described | {"shape": (joined.rows, feature.list_size)})
        for table in joined.tables():
            vectors.write(table["feature"].combine_chunks().flatten().to_numpy(zero_copy_only=False).data)
            for path in _names(table):  # one line for each, whatever its name
                paths.write(path.replace("\\", "\\\\").replace("\n", "\\n").encode() + b"\n")
        for file in (vectors, paths):
            file.flush()
            os.fsync(file.fileno())
        out.unlink(missing_ok=True)  # an old array beside new paths would be read as theirs


def _names(part: pa.Table) -> list[str]:
    """The paths; those of tiles with their corner, as `path,x,y`."""
    columns = [part[name].to_pylist() for name in ("path", "x", "y") if name in part.column_names]
    return [",".join(map(str, row)) for row in zip(*columns)]


_JOIN: dict[str, Callable[[_Joined, Path], None]] = {".parquet": _join_parquet, ".npy": _join_npy, ".csv": _join_csv}
