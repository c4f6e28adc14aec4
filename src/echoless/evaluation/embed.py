"""How does a set of images become a table of features? Piece by piece, so that a killed embedding continues.

A piece holds the rows of 1024 images, or of 64 where every patch has its features. Pieces are written atomically into
a hidden folder beside the target, by whichever process they belong to. When all are there, they are joined into files
of limited size (`table_files`), and the target appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from echoless.data import Images
from echoless.errors import NoImages
from echoless.evaluation.encoder import MOST_AT_ONCE, Encoder
from echoless.evaluation.extract import CHUNK, WORKERS, BadFeatures, check_channels, chunks, count_chunks
from echoless.evaluation.ranks import LOOKED_AT, collapse_in_words
from echoless.evaluation.table_columns import Columns
from echoless.evaluation.table_files import PARQUET, Pieces, Report, TableTarget, check_target, make_table, numbers_of
from echoless.runtime.sharing import rank_and_world, wait
from echoless.storage import clear_leftovers, write_bytes
from echoless.storage.atomic import explained
from echoless.storage.lock import FileLock

CHUNKS_PER_PIECE = 16
LOOKED_AT_PIECES = 16


def embed(
    encoder: Encoder,
    images: Images,
    target: TableTarget,
    columns: Columns,
    *,
    workers: int = WORKERS,
    report: Report | None = None,
    about: Mapping[str, str] | None = None,
    warn: Callable[[str], None] | None = None,
) -> int:
    """Write the table; all processes of a team take part. Returns the number of images in it, in the first of them.

    about: what the metadata of a parquet file says. warn: gets a sentence where the features have collapsed.
    """
    check_target(target, columns)
    columns.check(encoder, images)
    check_channels(encoder, images)
    rank, _ = rank_and_world()
    say = report if report is not None and rank == 0 else lambda stage, done, total: None
    work = _work_folder(encoder, images, target, columns)
    with explained(target.out), _alone(target, work) if rank == 0 else nullcontext():
        wait()  # a target that another command writes is refused before any work
        work.mkdir(exist_ok=True)
        pieces = Pieces(work, images.usable, CHUNK * _per_piece(columns))
        _compute(encoder, images, columns, pieces, workers, say)
        wait()
        if rank == 0 and warn is not None and (warning := _collapse(encoder, columns, pieces)):
            warn(warning)
        rows = make_table(pieces, target, columns, dict(about or {}), say)
        wait()
    return rows


def _per_piece(columns: Columns) -> int:
    """How many chunks are one piece: the patches of 1024 images would fill the memory."""
    return 1 if columns.dense else CHUNKS_PER_PIECE


def _compute(encoder: Encoder, images: Images, columns: Columns, pieces: Pieces, workers: int, report: Report) -> None:
    """Those pieces of this process that are not there yet, prepared ahead without a break between them."""
    rank, world = rank_and_world()
    each, count = _per_piece(columns), count_chunks(images)
    missing = [number for number in range(rank, pieces.count, world) if not pieces.has(number)]
    report("embedding", images.usable - min(images.usable, len(missing) * world * each * CHUNK), images.usable)
    of_piece = {number: range(number * each, min((number + 1) * each, count)) for number in missing}
    found = chunks(
        encoder,
        images,
        columns.views,
        numbers=(chunk for numbers in of_piece.values() for chunk in numbers),
        workers=workers,
    )
    for number, numbers in of_piece.items():
        _write_piece(pieces.file(number), columns.table(images, [next(found) for _ in numbers]))
        report("embedding", min(images.usable, (number + 1) * each * CHUNK), images.usable)


def _collapse(encoder: Encoder, columns: Columns, pieces: Pieces) -> str:
    """A warning where nearly all images look the same at the last of the layers, by a few pieces from all over."""
    present = [number for number in range(pieces.count) if pieces.file(number).is_file()]
    if columns.dense or not present:
        return ""
    tables = pieces.tables(present[:: -(-len(present) // LOOKED_AT_PIECES)])
    vectors = [numbers_of(table[columns.names[-1]]) for table in tables]
    rows_ND = np.concatenate(vectors or [np.empty((0, 1), np.float32)])
    return collapse_in_words(rows_ND[:: -(-len(rows_ND) // LOOKED_AT) or 1], encoder.checkpoint)


def _write_piece(file: Path, table: pa.Table) -> None:
    encoded = io.BytesIO()
    pq.write_table(table, encoded, **PARQUET)
    write_bytes(file, encoded.getvalue())


@contextmanager
def _alone(target: TableTarget, work: Path) -> Iterator[None]:
    """Nobody else writes this table meanwhile. When it is there, nothing else is: no pieces, also of other images.

    Where it is refused, no pieces stay either; where it is interrupted, those that are done do.
    """
    out = target.out
    lock = FileLock(
        out.with_name(f".{out.name}.lock"), busy=f"{out} is being written by another process; give another --out"
    )
    try:
        for file in target.written:
            clear_leftovers(file.parent, file.name)
        yield
        for parts in out.parent.glob(".*.parts-*"):
            if re.fullmatch(re.escape(f".{out.name}.parts-") + "[0-9a-f]{12}", parts.name):
                shutil.rmtree(parts)
    except (BadFeatures, NoImages):
        shutil.rmtree(work, ignore_errors=True)
        raise
    finally:
        with suppress(OSError):
            work.rmdir()  # where nothing was done
        lock.remove()


def _work_folder(encoder: Encoder, images: Images, target: TableTarget, columns: Columns) -> Path:
    """Named after everything that decides the table, so that pieces of another embedding are never joined in."""
    words = [encoder.fingerprint or os.urandom(8).hex(), images.fingerprint, images.label_fingerprint, repr(columns)]
    words += [repr((encoder.framing, images.reduction)), repr(sorted(images.excluded)), str(target.part_bytes)]
    words += ["whole"] if images.stand_for_tiles else []
    words += [f"{CHUNK} {_per_piece(columns)} {MOST_AT_ONCE}", torch.__version__]
    key = hashlib.sha256("\0".join(words).encode()).hexdigest()[:12]
    return target.out.parent / f".{target.out.name}.parts-{key}"


def embedded(encoder: Encoder, images: Images, columns: Columns) -> pa.Table:
    """All of it in memory."""
    columns.check(encoder, images)
    table = columns.table(images, list(chunks(encoder, images, columns.views)))
    if not table.num_rows:
        raise NoImages("the data has no usable image")
    return table
