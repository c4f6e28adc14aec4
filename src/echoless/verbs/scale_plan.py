"""What would 10^6, 10^8 and 10^9 images cost on this machine, in bytes, hours and files? Measured rates, arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from echoless.verbs.scale_rates import IDLE, IMAGE_SIZE, INPUT_SIZE, Rates

COUNTS = (10**6, 10**8, 10**9)
INDEX_BYTES = 16 + 16 + 40  # of an image: its hash, its place in a shard, its path
SHARD_BYTES = 10**9
PART_BYTES = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of `images`: bytes, hours on this machine, and numbers of files."""

    images: int
    file_bytes: int
    shards: int
    index_bytes: int
    pixel_bytes: int
    feature_bytes: int
    parts: int
    decode_hours: float
    epoch_hours: float
    embed_hours: float
    write_hours: float  # of the decoded pixels


def cost(images: int, rates: Rates) -> Cost:
    """Everything grows with the number of images."""
    files, pixels, features = (images * each for each in (rates.file_bytes, rates.pixel_bytes, rates.feature_bytes))
    return Cost(
        images=images,
        file_bytes=files,
        shards=-(-files // SHARD_BYTES),
        index_bytes=images * INDEX_BYTES,
        pixel_bytes=pixels,
        feature_bytes=features,
        parts=-(-features // PART_BYTES),
        decode_hours=images / rates.decoded / 3600,
        epoch_hours=images / rates.trained / 3600,
        embed_hours=images / rates.embedded / 3600,
        write_hours=pixels / rates.written / 3600,
    )


def describe_rates(rates: Rates) -> Iterator[tuple[str, str]]:
    """(topic, sentence) of everything that was measured."""
    photograph, view = (" x ".join(map(str, size[::-1])) for size in (IMAGE_SIZE, INPUT_SIZE))
    on = {"cuda": "one GPU", "cpu": f"{rates.cores} cores"}.get(rates.device, rates.device)
    yield "decoding", f"{rates.decoded:,.0f} images/s, JPEG of {photograph} to {view}, {rates.cores} cores"
    yield "training", f"{rates.trained:,.3g} images/s, mae-base, forward and backward, {on}"
    yield "embedding", f"{rates.embedded:,.3g} images/s, ViT-B/16 forward, {on}"
    yield "writing", f"{rates.written / 1e6:,.0f} MB/s to the disk of the caches"
    yield "an image", f"{rates.file_bytes / 1e3:.0f} kB of JPEG, {rates.pixel_bytes / 1e3:.0f} kB decoded"
    if rates.share < IDLE:
        part = f"other programs left {100 * rates.share:.0f} % of the cores"
        yield "busy", f"{part}; the rates are those of an idle machine, by the processor time that was used"


def describe_assumptions() -> Iterator[tuple[str, str]]:
    """(topic, sentence) of everything that was not."""
    yield "images", "all as the measured one, which is drawn to be as large as the average of ImageNet"
    shard, part = (f"{size / 1e9:g} GB" for size in (SHARD_BYTES, PART_BYTES))
    yield "files", f"tar shards of {shard}; features in float32, in parquet parts of {part}"
    yield "index", f"{INDEX_BYTES} bytes an image: hash, place in its shard, a path of 40 letters"
    yield "time", "grows with the images; each row by itself; downloads and the optimiser's step are not in it"
    yield "more machines", "divide the hours by their number; the bytes stay"


def table_of(costs: list[Cost]) -> list[list[str]]:
    """Cells, header first: a row for every quantity, a column for every number of images."""
    rows = {
        "images": [f"{each.images:.0e}".replace("e+0", "e") for each in costs],
        "JPEG files": [_size(each.file_bytes) for each in costs],
        "tar shards": [f"{each.shards:,}" for each in costs],
        "index and hashes": [_size(each.index_bytes) for each in costs],
        "decoded pixels": [_size(each.pixel_bytes) for each in costs],
        "features": [_size(each.feature_bytes) for each in costs],
        "parquet parts": [f"{each.parts:,}" for each in costs],
        "decode once": [_hours(each.decode_hours) for each in costs],
        "write the pixels": [_hours(each.write_hours) for each in costs],
        "train one epoch": [_hours(each.epoch_hours) for each in costs],
        "embed": [_hours(each.embed_hours) for each in costs],
    }
    return [[name, *cells] for name, cells in rows.items()]


def _size(count: int) -> str:
    for unit, scale in (("PB", 10**15), ("TB", 10**12), ("GB", 10**9)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count / 10**6:.3g} MB"


def _hours(hours: float) -> str:
    return f"{hours:,.3g} h" if hours < 1000 else f"{hours:,.0f} h"
