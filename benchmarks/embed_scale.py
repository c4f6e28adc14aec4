"""What does `embed` cost for many images, apart from decoding and the encoder? Seconds and memory by their number.

    python benchmarks/embed_scale.py [--counts 100000 1000000 10000000]

A parquet file of that many images, each with a name of its own and four bytes that a stub "decodes" into 8 x 8 pixels;
the encoder averages them into 8 numbers. So what is measured is the rest: opening (names, hashes), batches, pieces,
joining. Each count has a process of its own, with one thread; seconds are CPU time, because others share the machine.
RssAnon is the memory that the process holds and the system cannot take back: its largest value while the images are
embedded. Prints one line for each count, then the cost of an image at each count over that at the first: 1 is linear.
Writes results/embed_scale.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from interleave import write

ROWS_AT_ONCE = 100_000
WIDTH = 8


def make_images(file: Path, count: int) -> None:
    """Names as in a folder of files; the number of the image as its bytes."""
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    with pq.ParquetWriter(file, pa.schema({"image": kind})) as writer:
        for start in range(0, count, ROWS_AT_ONCE):
            numbers = np.arange(start, min(start + ROWS_AT_ONCE, count), dtype="<u4")
            data = pa.Array.from_buffers(pa.binary(4), len(numbers), [None, pa.py_buffer(numbers)]).cast(pa.binary())
            names = pa.array([f"photos/{number % 1000:03d}/{number:010d}.jpg" for number in numbers.tolist()])
            writer.write_table(pa.table({"image": pa.StructArray.from_arrays([data, names], fields=list(kind))}))


class Memory(threading.Thread):
    """The largest RssAnon since it was started, in MB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.largest, self._ended = 0.0, threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.05):
            self.look()

    def look(self) -> float:
        found = re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())
        now = int(found[1]) / 1024 if found else 0.0
        self.largest = max(self.largest, now)
        return now

    def finish(self) -> float:
        self._ended.set()
        self.join()
        return self.largest


def stub_decode(data: bytes, settings: object) -> np.ndarray:
    return np.full((3, 8, 8), data[0], np.uint8)


def measure(file: Path, folder: Path) -> dict[str, float]:
    from echoless.data import open_images
    from echoless.evaluation.embed import embed
    from echoless.evaluation.encoder import from_function
    from echoless.evaluation.extract import View
    from echoless.evaluation.table_columns import Columns
    from echoless.evaluation.table_files import TableTarget

    torch.set_num_threads(1)
    encoder = from_function(
        lambda images: images.mean(dim=(2, 3)).repeat(1, 3)[:, :WIDTH],
        image_size=(8, 8),
        channels=3,
        fingerprint="stub",
    )
    places = ("echoless.data.encoded.decode", "echoless.data.survey.decode")
    with (
        mock.patch(places[0], stub_decode),
        mock.patch(places[1], stub_decode),
        mock.patch("echoless.data.survey.file_shape", lambda data, settings: (8, 8)),
    ):
        start = time.process_time()
        opening = Memory()
        opening.start()
        images = open_images(file, cache="off", cache_dir=folder / "cache")
        opened, opening_memory = time.process_time(), opening.finish()
        stages: dict[str, float] = {}
        memory = Memory()
        before = memory.look()
        memory.largest = 0.0
        memory.start()
        target = TableTarget(folder / "features.parquet", part_bytes=32 * 10**6)
        rows = embed(
            encoder,
            images,
            target,
            Columns((View("output"),)),
            report=lambda stage, done, total: stages.setdefault(stage, time.process_time()),
        )
        done = time.process_time()
    assert rows == len(images)
    return {
        "images": rows,
        "opening, s": opened - start,
        "embedding, s": stages["joining"] - opened,
        "joining, s": done - stages["joining"],
        "files": len(list(target.out.iterdir())) if target.out.is_dir() else 1,
        "RssAnon before, MB": before,
        "RssAnon while opening, MB": opening_memory,
        "RssAnon while embedding, MB": memory.finish(),
    }


def in_a_process(count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"ECHOLESS_CACHE": f"{folder}/cache", "OMP_NUM_THREADS": "1"}
        for step in ("--make", "--measure"):
            words = [sys.executable, __file__, step, folder, "--counts", str(count)]
            done = subprocess.run(words, env=env, check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[10**5, 10**6, 10**7])
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        make_images(options.make / "images.parquet", options.counts[0])
        return
    if options.measure:
        print(json.dumps(measure(options.measure / "images.parquet", options.measure)))
        return
    found = []
    for count in options.counts:
        found.append(in_a_process(count))
        print("  ".join(f"{name} {value:,.1f}" for name, value in found[-1].items()), flush=True)
    cost = [sum(value for name, value in each.items() if name.endswith(", s")) / each["images"] for each in found]
    print("microseconds of an image:", "  ".join(f"{1e6 * each:.1f}" for each in cost))
    print("cost of an image, over that at the first count:", "  ".join(f"{each / cost[0]:.2f}" for each in cost))
    write("embed_scale", {"counts": found, "seconds of an image": cost})


if __name__ == "__main__":
    main()
