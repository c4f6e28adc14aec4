"""What does it cost to hash the content of images? The first opening of a folder, with and without it, and a later one.

    python benchmarks/content.py [--rounds 5] [--small 50000] [--photos 2000]

Small files are JPEGs of 32 x 32, photographs JPEGs of 500 x 375. Every round opens a fresh cache; the two sides take
turns, so that a busy machine is busy for both. Seconds are CPU time, all threads together; printed is the median of the
rounds' ratios, with its quartiles. A few per cent drown in the noise of a busy machine, so that the part of an opening
that knows the content (hash, remember; later: recall) is also timed alone.
"""

from __future__ import annotations

import argparse
import io
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
from interleave import ratio, write
from PIL import Image

from echoless.data import open_images
from echoless.data.content import DIGEST_BYTES, Hasher, Memory, make_content
from echoless.data.sources import FolderSource


def write_jpegs(folder: Path, count: int, height: int, width: int) -> Path:
    """Different bytes in every file: smooth noise compresses like a photograph."""
    draw = np.random.default_rng(0)
    folder.mkdir()
    for number in range(count):
        coarse = draw.integers(0, 256, (max(2, height // 16), max(2, width // 16), 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).save(file, "jpeg", quality=90)
        (folder / f"{number:06d}.jpg").write_bytes(file.getvalue())
    return folder


def first_opening(folder: Path) -> float:
    with tempfile.TemporaryDirectory() as cache:
        start = time.process_time()
        open_images(folder, cache_dir=Path(cache))
        return time.process_time() - start


def without_hashes(folder: Path) -> float:
    def add(self: Hasher, blobs: Sequence[object]) -> None:
        self.digests += bytes(DIGEST_BYTES * len(blobs))

    with mock.patch.object(Hasher, "add", add):
        return first_opening(folder)


def content_alone(folder: Path) -> tuple[float, float]:
    """Seconds to hash and remember all images, already in memory; and to recall the hashes later."""
    source = FolderSource(folder)
    chunks = list(source.chunks())
    with tempfile.TemporaryDirectory() as cache:
        start = time.process_time()
        hasher, memory = Hasher(), Memory(Path(cache), source.stamps)
        for _ in hasher.passing(iter(chunks)):
            pass
        memory.keep(hasher)
        make_content(source.paths, hasher.digests)
        hashed = time.process_time()
        assert Memory(Path(cache), source.stamps).recall(source.paths) is not None
        return hashed - start, time.process_time() - hashed


def later_opening(folder: Path) -> float:
    with tempfile.TemporaryDirectory() as cache:
        open_images(folder, cache_dir=Path(cache))
        start = time.process_time()
        open_images(folder, cache_dir=Path(cache))
        return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", type=int, default=50_000)
    parser.add_argument("--photos", type=int, default=2_000)
    chosen = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as home:
        sets = {
            f"{chosen.small} files of 32 x 32": write_jpegs(Path(home) / "small", chosen.small, 32, 32),
            f"{chosen.photos} photographs of 500 x 375": write_jpegs(Path(home) / "photos", chosen.photos, 375, 500),
        }
        time.sleep(3)  # files younger than that are hashed again
        for name, folder in sets.items():
            seconds: dict[str, list[float]] = {"with": [], "without": []}
            for number in range(chosen.rounds):
                sides = {"with": first_opening, "without": without_hashes}
                for side in sorted(sides, reverse=number % 2 == 0):
                    seconds[side].append(sides[side](folder))
            cost, low, high = ratio(seconds, "without", "with")
            later, (hashing, recalling) = later_opening(folder), content_alone(folder)
            first = statistics.median(seconds["with"])
            found[name] = {
                "first opening, ratio": cost,
                "share of the first opening": hashing / first,
                "later opening, seconds": later,
                "recalling, seconds": recalling,
                "seconds": seconds,
            }
            print(f"{name}: first opening {cost:.3f} ({low:.3f} .. {high:.3f}) times that without hashes (goal 1.05)")
            print(f"  hashing and remembering alone: {hashing:.2f} s, {100 * hashing / first:.1f} % of {first:.2f} s")
            print(f"  a later opening: {later:.2f} s, of which recalling {recalling:.2f} s")
    write("content", found)


if __name__ == "__main__":
    main()
