"""How is a decoded cache made, by one process or by several?

One process writes it from the first image to the last. Several divide the images among them (`parts`), and the first
that is free joins the parts to the same file that one process would have written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from echoless.data.cache import VERSION, CachedPixels, build_cache, open_cache, write_pixels
from echoless.data.images import BadSample
from echoless.data.layout import from_order
from echoless.data.parts import FOLDER, SharedParts, Tell, Told, remove_abandoned
from echoless.data.resample import Array
from echoless.errors import DataError
from echoless.runtime import Share
from echoless.storage.checksum import crc32

Produced = Iterator[list[Array | BadSample]]
_PAUSE = 0.3  # seconds between two looks for a cache that another process joins


def _nothing() -> dict[str, Any]:
    return {}


def _ignore(found: list[dict[str, Any]]) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Making:
    """How the pixels of a set are made. A unit is a file, or all of them where they cannot be divided."""

    units: int
    produce: Callable[[int, int], Produced]  # the images of units first .. last - 1, in order
    key: Callable[[], str]  # of the cache; asked for when everything was made, and may depend on it
    name: str = ""  # what decides the work, for the processes that share it; empty: the key
    about: Callable[[], dict[str, Any]] = _nothing  # what the cache says of itself, asked for last
    found: Callable[[], dict[str, Any]] = _nothing  # what else was found out in the last range, as JSON
    learn: Callable[[list[dict[str, Any]]], None] = _ignore  # told what was found out in all ranges


def make_together(
    root: Path, making: Making, about: dict[str, Any], share: Share, told: Told | None = None
) -> CachedPixels:
    """By all processes that call this with the same folder and work."""
    remove_abandoned(root)
    parts = SharedParts(root / f"{FOLDER}{VERSION}-{(making.name or making.key())[:32]}", making.units, share)
    records = _finish(parts, making, told)
    while (cache := open_cache(root, making.key())) is None:
        claim = parts.claim("join")
        if claim is None:  # another process joins the parts
            if told is not None:
                told(making.units, making.units)
            time.sleep(_PAUSE)
            continue
        with claim:
            if open_cache(root, making.key()) is None:
                records = _with_files(parts, making, records, told)
                build_cache(root, making.key, about | making.about(), _read_parts(parts, records, about))
    parts.discard_files()
    return cache


def _finish(parts: SharedParts, making: Making, told: Told | None) -> list[dict[str, Any]]:
    records = parts.finish(lambda *given: _make_part(making, *given), told)
    making.learn([record["found"] for record in records])
    return records


def _with_files(
    parts: SharedParts, making: Making, records: list[dict[str, Any]], told: Told | None
) -> list[dict[str, Any]]:
    """The records of parts that are all there. Those of a cache that was joined before, and is gone, are made again."""
    lost = [number for number in range(len(parts)) if not parts.file(number).exists()]
    for number in lost:
        parts.forget(number)
    return _finish(parts, making, told) if lost else records


def _make_part(making: Making, first: int, last: int, file: Path, tell: Tell) -> dict[str, Any]:
    def telling() -> Produced:
        done = 0
        for images in making.produce(first, last):
            yield images
            done += len(images)
            tell(min(done, last - first))

    index, bad = write_pixels(file, telling())
    images = index[:, 1:].tolist()  # height, width and CRC of each
    return {"images": images, "bad": [asdict(sample) for sample in bad], "found": making.found()}


def _read_parts(parts: SharedParts, records: list[dict[str, Any]], about: dict[str, Any]) -> Produced:
    dtype = np.dtype(np.uint8 if about["bits"] == 8 else np.uint16)
    for number, record in enumerate(records):
        bad = iter(record["bad"])
        file = parts.file(number)
        # An empty file cannot be mapped.
        pixels = np.asarray(np.memmap(file, dtype, "r")) if file.stat().st_size else np.empty(0, dtype)
        images: list[Array | BadSample] = []
        offset = 0
        for height, width, crc in record["images"]:
            if height == 0:
                images.append(BadSample(**next(bad)))
                continue
            size = about["channels"] * height * width
            values = pixels[offset : offset + size]
            if crc32(values.data) != crc:
                parts.forget(number)
                raise DataError(f"{file} is damaged; the same command decodes its images again")
            images.append(from_order(values, (about["channels"], height, width)))
            offset += size
        yield images
