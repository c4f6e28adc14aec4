"""Where does the CPU time of a first epoch go, and how fast could it be at best?

    python benchmarks/loader_stages.py [--kind photos|cifar10] [--images 250] [--rounds 9]

The stages of `benchmarks/loader.py`, each timed alone on the same images, in turns with whole epochs of both sides;
"the rest" is what a whole epoch costs beyond its stages. Nobody can skip decoding, cropping and normalising: what they
alone cost is the limit. Printed is the median of the rounds in microseconds of CPU time an image, with quartiles.
"""

from __future__ import annotations

import argparse
import io
import statistics
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import torch
from interleave import write
from loader import (
    BATCH,
    KINDS,
    LARGE_BATCH,
    MEAN,
    STD,
    PlainDataset,
    Setting,
    Speed,
    first_epoch,
    make_data,
    plain_epochs,
    speed_of,
)
from PIL import Image

from echoless.data import AugmentConfig, augment
from echoless.data.augment import draw
from echoless.data.content import Hasher
from echoless.data.decode import DecodeSettings, decode
from echoless.data.layout import in_order
from echoless.data.parquet import ParquetSource
from echoless.data.sources import FolderSource
from echoless.randomness import generator_for
from echoless.runtime import reuse_freed_memory
from echoless.storage.checksum import crc32

Stage = Callable[[], object]
NEEDED = ("decode", "crop, resize, flip, normalise")


def our_stages(path: Path, blobs: list[bytes], setting: Setting, scratch: Path) -> dict[str, Stage]:
    settings = DecodeSettings(channels=3, bits=8)
    images = [decode(blob, settings) for blob in blobs]
    stored = [in_order(image).data for image in images]
    together = np.stack(images) if setting.batch == BATCH else images
    uniform_BN = draw(setting.batch, generator_for(0, "augment", 0))
    scaling = {"size": (setting.size, setting.size), "config": setting.config, "mean": MEAN, "std": STD}
    starts = range(0, len(blobs), setting.batch)
    source = FolderSource(path) if path.is_dir() else ParquetSource([path])

    def save() -> None:
        with scratch.open("wb", buffering=2**17) as file:
            file.writelines(stored)

    return {
        "read": lambda: [None for _ in source.chunks()],
        "hash": lambda: Hasher().add(blobs),
        "decode": lambda: [decode(blob, settings) for blob in blobs],
        "checksum when written": lambda: [crc32(values) for values in stored],
        "write": save,
        "checksum when first read": lambda: [crc32(values) for values in stored],
        NEEDED[1]: lambda: [augment(together[i : i + setting.batch], uniform_BN, **scaling) for i in starts],
    }


def plain_stages(blobs: list[bytes], setting: Setting) -> dict[str, Stage]:
    shapes = np.array([Image.open(io.BytesIO(blob)).size[::-1] for blob in blobs])
    dataset = PlainDataset(blobs, shapes, setting)
    return {
        "plain: decode": lambda: [Image.open(io.BytesIO(blob)).convert("RGB") for blob in blobs],
        "plain: decode, crop, resize, flip, normalise": lambda: [dataset[i] for i in range(len(blobs))],
    }


def measure(arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Microseconds an image, of every round."""
    count = arguments.images
    found: dict[str, list[float]] = {}

    def note(name: str, speed: Speed) -> None:
        found.setdefault(name, []).append(1e6 / speed.core)

    def run(stage: Stage) -> int:
        stage()
        return count

    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as scratch, ExitStack() as memory:
        path, blobs, size = make_data(arguments.kind, count, Path(folder))
        batch = LARGE_BATCH if arguments.kind == "photos" else BATCH
        setting = Setting(size, 1, AugmentConfig(**KINDS[arguments.kind]), batch)
        plain = plain_epochs(blobs, setting)
        stages = plain_stages(blobs, setting) | our_stages(path, blobs, setting, Path(scratch) / "pixels.bin")
        next(plain)  # starts the workers
        memory.enter_context(reuse_freed_memory())  # once, as in training
        first_epoch(path, setting)
        for _ in range(arguments.rounds):
            note("plain: whole", next(plain))
            for name, stage in stages.items():
                note(name, speed_of(partial(run, stage)))
            note("whole", first_epoch(path, setting)[0])
    return found


def report(found: Mapping[str, list[float]]) -> None:
    middle = {name: statistics.median(values) for name, values in found.items()}
    ours = [name for name in middle if not name.startswith("plain") and name != "whole"]
    for name, values in found.items():
        low, _, high = statistics.quantiles(values, n=4)
        of = middle["plain: whole" if name.startswith("plain") else "whole"]
        print(f"{name:46s} {middle[name]:7.1f} us ({low:.1f} .. {high:.1f}), {100 * middle[name] / of:3.0f} %")
    rest = middle["whole"] - sum(middle[name] for name in ours)
    limit = sum(middle[name] for name in NEEDED)
    print(f"{'the rest':46s} {rest:7.1f} us, {100 * rest / middle['whole']:3.0f} %")
    best, reached = middle["plain: whole"] / limit, middle["plain: whole"] / middle["whole"]
    print(f"limit: {best:.2f} times the plain pipeline; reached: {reached:.2f}, {100 * reached / best:.0f} % of it")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=list(KINDS), default="photos")
    parser.add_argument("--images", type=int, default=250)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(arguments)
    report(found)
    write(f"loader_stages-{arguments.kind}", {**vars(arguments), "microseconds": found})


if __name__ == "__main__":
    main()
