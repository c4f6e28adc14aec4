"""What would 10^6, 10^8 and 10^9 images cost on this machine? Three rates are measured now; the rest is arithmetic.

The images are like those of ImageNet, JPEG of about 110 kB; the encoder is the ViT-B of `mae-base` at 224 x 224.
"""

from __future__ import annotations

import io
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

COUNTS = (10**6, 10**8, 10**9)
IMAGE_SIZE = (375, 500)  # height and width, the most common size of ImageNet
INPUT_SIZE = (224, 224)
INDEX_BYTES = 16 + 16 + 40  # of an image: its hash, its place in a shard, its path
SHARD_BYTES = 10**9
_SECONDS = 3.0  # that each rate is measured for, after a first attempt that is not counted
_WRITTEN_AT_ONCE = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Rates:
    """Images per second of this machine with all its cores, or its GPU; bytes per second of its disk."""

    decoded: float
    encoded: float
    written: float
    file_bytes: int  # of one image
    pixel_bytes: int
    feature_bytes: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Of `images`: bytes, hours on this machine, and numbers of files."""

    images: int
    file_bytes: int
    pixel_bytes: int
    feature_bytes: int
    index_bytes: int
    decode_hours: float
    encode_hours: float
    write_hours: float
    shards: int
    parts: int


def cost(images: int, rates: Rates, images_per_part: int) -> Cost:
    """`write_hours`: of the features. `parts`: files of `embed`; `shards`: tar files of a gigabyte."""
    files = images * rates.file_bytes
    return Cost(
        images=images,
        file_bytes=files,
        pixel_bytes=images * rates.pixel_bytes,
        feature_bytes=images * rates.feature_bytes,
        index_bytes=images * INDEX_BYTES,
        decode_hours=images / rates.decoded / 3600,
        encode_hours=images / rates.encoded / 3600,
        write_hours=images * rates.feature_bytes / rates.written / 3600,
        shards=-(-files // SHARD_BYTES),
        parts=-(-images // images_per_part),
    )


def measure_rates(folder: Path) -> Rates:
    """`folder`: on the disk that is written to."""
    from echoless.data.decode import DecodeSettings, decode

    file = _photograph()
    width, encoded = _encoder_rate()
    return Rates(
        decoded=_decoding_rate(file),
        encoded=encoded,
        written=_writing_rate(folder),
        file_bytes=len(file),
        pixel_bytes=decode(file, DecodeSettings(channels=3)).nbytes,
        feature_bytes=4 * width,
    )


def rate_of(work: Callable[[], int], seconds: float = _SECONDS) -> float:
    """Units per second. `work` returns how many it did."""
    work()
    done, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        done += work()
    return done / elapsed


def _decoding_rate(file: bytes) -> float:
    """From the bytes of a JPEG to the input of the encoder, on every core."""
    from concurrent.futures import ThreadPoolExecutor

    from echoless.data import resize_and_crop
    from echoless.data.decode import DecodeSettings, decode
    from echoless.runtime.machine import usable_cores

    def prepare(_: int) -> None:
        pixels = decode(file, DecodeSettings(channels=3))
        resize_and_crop([pixels], size=INPUT_SIZE, mean=(0.5,) * 3, std=(0.5,) * 3)

    cores = usable_cores()
    with ThreadPoolExecutor(cores) as pool:
        return rate_of(lambda: len(list(pool.map(prepare, range(8 * cores)))))


def _encoder_rate() -> tuple[int, float]:
    """(width of a feature, images per second)."""
    import torch

    from echoless.config import mae_preset
    from echoless.models import ViT
    from echoless.runtime import choose_device

    device = choose_device("auto")
    config = mae_preset("base").encoder
    encoder = ViT(config, torch.Generator().manual_seed(0)).to(device).eval()
    images_BCHW = torch.zeros(64 if device.type == "cuda" else 4, 3, *INPUT_SIZE, device=device)

    def forward() -> int:
        with torch.inference_mode():
            encoder(images_BCHW).sum().item()  # waits for the GPU
        return len(images_BCHW)

    return config.width, rate_of(forward)


def _writing_rate(folder: Path) -> float:
    """Bytes per second that reach the disk."""
    block = os.urandom(_WRITTEN_AT_ONCE)
    with tempfile.TemporaryFile(dir=folder) as file:

        def write() -> int:
            file.seek(0)
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
            return len(block)

        return rate_of(write)


def _photograph() -> bytes:
    """A JPEG of smooth shapes and grain that is about as large as one of ImageNet."""
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(0)
    coarse = Image.fromarray(random.integers(0, 256, (12, 16, 3), np.uint8))
    smooth = np.asarray(coarse.resize(IMAGE_SIZE[::-1], Image.Resampling.BICUBIC), dtype=np.int16)
    grain = random.normal(0, 14, smooth.shape).astype(np.int16)
    file = io.BytesIO()
    Image.fromarray(np.clip(smooth + grain, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def describe_rates(rates: Rates) -> Iterator[tuple[str, str]]:
    """(topic, sentence) of each."""
    height, width = IMAGE_SIZE
    yield "decoding", f"{rates.decoded:,.0f} images/s, JPEG of {width} x {height} to 224 x 224, all cores"
    yield "encoder", f"{rates.encoded:,.3g} images/s, ViT-B/16 forward"
    yield "writing", f"{rates.written / 1e6:,.0f} MB/s to the disk"
    yield "an image", f"{rates.file_bytes / 1e3:.0f} kB of JPEG, {rates.pixel_bytes / 1e3:.0f} kB decoded"


def table_of(costs: list[Cost]) -> list[list[str]]:
    """Cells, header first."""
    header = ["images", "JPEG", "decoded", "features", "index", "decode", "encode", "write", "tar shards", "parts"]
    return [header, *(_cells(each) for each in costs)]


def _cells(each: Cost) -> list[str]:
    sizes = (each.file_bytes, each.pixel_bytes, each.feature_bytes, each.index_bytes)
    hours = (each.decode_hours, each.encode_hours, each.write_hours)
    counts = (each.shards, each.parts)
    return [
        f"{each.images:.0e}".replace("e+0", "e"),
        *map(_size, sizes),
        *map(_hours, hours),
        *(f"{n:,}" for n in counts),
    ]


def _size(count: int) -> str:
    for unit, scale in (("PB", 10**15), ("TB", 10**12), ("GB", 10**9)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count / 10**6:.3g} MB"


def _hours(hours: float) -> str:
    return f"{hours:,.3g} h" if hours < 10_000 else f"{hours:,.0f} h"
