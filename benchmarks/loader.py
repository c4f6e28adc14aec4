"""How many images a second does the loader deliver, against Pillow and torchvision in a torch DataLoader?

    python benchmarks/loader.py [--images 10000] [--rounds 5] [--workers 2] [--kind cifar10|photos]

Both sides have as many workers and make the same random resized crops, flips and normalised float batches: of CIFAR-10
at 32 x 32, bilinear, or of 375 x 500 JPEG files at 224 x 224, bicubic. The plain side keeps the encoded bytes in
memory, gets its crop boxes for nothing, and its workers are started before the clock is. It uses torchvision where that
can be imported, else the same calls of Pillow and torch. Ours keeps freed memory, as in training, warms up for one
epoch, as the plain side does, and is timed three times: the first epoch, with the cache still to be built, later ones,
and without a cache. Rounds are interleaved, so that a busy machine is busy for all; printed is the median of the
rounds' ratios, with its quartiles: on the clock, and per core, which is per second of CPU time of all threads and
workers. With cifar10 also measured: the augmentation alone, the drawing of `shapes`, and the share of a 20 ms training
step that is spent waiting for data.
"""

from __future__ import annotations

import argparse
import importlib
import io
import multiprocessing
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from interleave import ratio, write
from PIL import Image

from echoless.data import AugmentConfig, Images, Loader, Shapes, augment, batch_indices, open_images
from echoless.data.augment import draw, random_boxes
from echoless.randomness import generator_for

try:
    from echoless.runtime import reuse_freed_memory
except ImportError:  # an earlier tree
    from contextlib import nullcontext as reuse_freed_memory

REPOSITORY = Path(__file__).resolve().parent.parent
CIFAR = REPOSITORY.parent / "shared" / "data" / "cifar10" / "train.parquet"
MEAN, STD = [0.49, 0.48, 0.45], [0.24, 0.24, 0.26]
BATCH, LARGE_BATCH = 250, 50  # of photographs: 29 MB, which training can keep (runtime/memory.py)
KINDS: dict[str, dict[str, Any]] = {"cifar10": {}, "photos": {"interpolation": "bicubic"}}  # of AugmentConfig
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


class Setting(NamedTuple):
    size: int
    workers: int
    config: AugmentConfig
    batch: int = BATCH


class Speed(NamedTuple):
    """Images per second: on the clock, and of CPU time."""

    clock: float
    core: float


def torchvision_functions() -> Any:
    """Its transforms, or None. Beside a CPU build of torch it needs the schemas of two operators that it lacks."""
    try:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept.append(library)
        return importlib.import_module("torchvision.transforms.functional")
    except Exception:  # not installed, or not for this torch
        return None


_kept: list[torch.library.Library] = []  # definitions last as long as the object
TORCHVISION = torchvision_functions()


class PlainDataset(torch.utils.data.Dataset):
    """What one writes by hand: open, crop, resize, flip, to float, normalise."""

    def __init__(self, blobs: list[bytes], shapes: np.ndarray, setting: Setting) -> None:
        self.blobs, self.size, config = blobs, setting.size, setting.config
        self.boxes = random_boxes(draw(len(blobs), generator_for(0, "augment", 0)), shapes, config)
        self.filter = FILTERS[config.interpolation]

    def __len__(self) -> int:
        return len(self.blobs)

    def __getitem__(self, index: int) -> torch.Tensor:
        image = Image.open(io.BytesIO(self.blobs[index])).convert("RGB")
        top, left, height, width, flip = (int(field[index]) for field in self.boxes)
        image = image.crop((left, top, left + width, top + height)).resize((self.size, self.size), self.filter)
        if flip:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        if TORCHVISION is not None:
            return TORCHVISION.normalize(TORCHVISION.to_tensor(image), MEAN, STD, inplace=True)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div_(255)
        return pixels.sub_(torch.tensor(MEAN)[:, None, None]).div_(torch.tensor(STD)[:, None, None])


def make_data(kind: str, count: int, folder: Path) -> tuple[Path, list[bytes], int]:
    """A parquet file or a folder of `count` JPEGs, their bytes, and the output size."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if kind == "photos":
        blobs = [photo_jpeg(number) for number in range(min(count, 200))]
        for number in range(count):
            (folder / f"{number:06d}.jpg").write_bytes(blobs[number % len(blobs)])
        return folder, [blobs[number % len(blobs)] for number in range(count)], 224
    if CIFAR.exists():
        blobs = pq.ParquetFile(CIFAR).read(columns=["image.bytes"]).column(0).combine_chunks().field("bytes")
        blobs = blobs.slice(0, count).to_pylist()
    else:
        blobs = [smooth_jpeg(number, 32) for number in range(min(count, 500))]
        blobs = [blobs[number % len(blobs)] for number in range(count)]
    rows = pa.array(
        [{"bytes": blob, "path": None} for blob in blobs], pa.struct({"bytes": pa.binary(), "path": pa.string()})
    )
    path = folder / "data.parquet"
    pq.write_table(pa.table({"image": rows}), path, row_group_size=2000)
    return path, blobs, 32


def photo_jpeg(number: int) -> bytes:
    """375 x 500, about as many bytes as a photograph of that size."""
    rng = np.random.default_rng(number)
    coarse = Image.fromarray(rng.integers(0, 256, (47, 63, 3), dtype=np.uint8))
    pixels = np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC)).astype(int)
    file = io.BytesIO()
    noisy = (pixels + rng.integers(-10, 11, pixels.shape)).clip(0, 255).astype(np.uint8)
    Image.fromarray(noisy).save(file, "JPEG", quality=85)
    return file.getvalue()


def smooth_jpeg(number: int, side: int) -> bytes:
    coarse = np.random.default_rng(number).integers(0, 256, (side // 8, side // 8, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return file.getvalue()


def loader(images: Images, setting: Setting) -> Loader:
    size = (setting.size, setting.size)
    shared = {"seed": 0, "mean": MEAN, "std": STD, "augment": setting.config, "workers": setting.workers}
    return Loader(images, size=size, batch_size=setting.batch, **shared)


def cpu_seconds() -> float:
    """Of this process with its threads, and of the workers of the DataLoader (Linux)."""
    ticks = 0
    for worker in multiprocessing.active_children():
        fields = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])  # user and system time
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def speed_of(run: Callable[[], int]) -> Speed:
    """`run` returns the number of images that it has made."""
    clock, cpu = time.perf_counter(), cpu_seconds()
    count = run()
    return Speed(count / (time.perf_counter() - clock), count / (cpu_seconds() - cpu))


def epochs(images: Images, setting: Setting, first: int, count: int) -> int:
    steps = len(images) // setting.batch
    batches = loader(images, setting).batches(first * steps, (first + count) * steps)
    return sum(len(batch.ids_B) for batch in batches)


def first_epoch(path: Path, setting: Setting) -> tuple[Speed, Images]:
    opened: list[Images] = []
    with tempfile.TemporaryDirectory() as cache:

        def run() -> int:
            opened.append(open_images(path, cache_dir=Path(cache)))
            return epochs(opened[0], setting, 0, 1)

        return speed_of(run), opened[0]  # the mapped file outlives its name


def plain_epochs(blobs: list[bytes], setting: Setting) -> Iterator[Speed]:
    """One after the other, on workers that stay."""
    shapes = np.array([Image.open(io.BytesIO(blob)).size[::-1] for blob in blobs])
    order = batch_indices(0, 0, len(blobs), len(blobs)).tolist()
    dataset = PlainDataset(blobs, shapes, setting)
    plain = torch.utils.data.DataLoader(
        dataset, setting.batch, sampler=order, num_workers=setting.workers, persistent_workers=True
    )
    for _ in plain:  # workers start and warm up outside the clock
        pass
    while True:
        yield speed_of(lambda: sum(len(batch) for batch in plain))


def augmentation_alone(threads: int) -> float:
    """Whole batches at 32 x 32, on as many threads as the goal has cores."""
    from concurrent.futures import ThreadPoolExecutor

    pixels = np.random.default_rng(0).integers(0, 256, (BATCH, 3, 32, 32), dtype=np.uint8)
    uniform = draw(BATCH, generator_for(0, "augment", 0))

    def run(_: int) -> None:
        augment(pixels, uniform, size=(32, 32), config=AugmentConfig(), mean=MEAN, std=STD)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, range(8)))
        start = time.perf_counter()
        list(pool.map(run, range(80)))
        return 80 * BATCH / (time.perf_counter() - start)


def drawing_alone(threads: int) -> float:
    from concurrent.futures import ThreadPoolExecutor

    shapes = Shapes(count=6400)
    with ThreadPoolExecutor(threads) as pool:
        start = time.perf_counter()
        list(pool.map(lambda first: shapes.draw(np.arange(first, first + 64)), range(0, 6400, 64)))
        return 6400 / (time.perf_counter() - start)


def waiting_share(images: Images, setting: Setting) -> float:
    """Of 100 steps that each take 20 ms of one core."""
    waited, start = 0.0, time.perf_counter()
    for batch in loader(images, setting).batches(0, 100):
        waited += batch.waited if batch.step else 0.0  # nothing can be ready before the first request
        until = time.perf_counter() + 0.02
        while time.perf_counter() < until:
            torch.mm(torch.ones(64, 64), torch.ones(64, 64))
    return waited / (time.perf_counter() - start)


def measure(arguments: argparse.Namespace) -> tuple[dict[str, list[Speed]], dict[str, list[float]]]:
    """The speed of each way through the images, and with cifar10 of the parts; a value for every round."""
    speeds: dict[str, list[Speed]] = defaultdict(list)
    parts: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as memory:
        path, blobs, size = make_data(arguments.kind, arguments.images, Path(folder))
        batch = LARGE_BATCH if arguments.kind == "photos" else BATCH
        setting = Setting(size, arguments.workers, AugmentConfig(**KINDS[arguments.kind]), batch)
        plain = plain_epochs(blobs, setting)
        next(plain)  # starts the workers, before there is anything that they would copy
        uncached = open_images(path, cache="off")
        memory.enter_context(reuse_freed_memory())  # once, as in training
        first_epoch(path, setting)  # both sides warm up outside the clock
        for number in range(arguments.rounds):
            speeds["plain"].append(next(plain))
            first, images = first_epoch(path, setting)
            speeds["first"].append(first)
            speeds["later"].append(speed_of(partial(epochs, images, setting, 1 + 3 * number, 3)))
            speeds["uncached"].append(speed_of(partial(epochs, uncached, setting, number, 1)))
            if arguments.kind == "cifar10":
                parts["augment"].append(augmentation_alone(arguments.workers))
                parts["shapes"].append(drawing_alone(arguments.workers))
                parts["waiting"].append(waiting_share(images, setting))
            now = {name: f"{values[-1].clock:,.0f}, {values[-1].core:,.0f} per core" for name, values in speeds.items()}
            now |= {name: f"{values[-1]:,.3g}" for name, values in parts.items()}
            print(f"round {number + 1}: " + "; ".join(f"{name} {text}" for name, text in now.items()), flush=True)
    return speeds, parts


def report(arguments: argparse.Namespace, speeds: dict[str, list[Speed]], parts: dict[str, list[float]]) -> None:
    goals = {"first": 2, "later": 10 if arguments.kind == "cifar10" else 2, "uncached": None}
    against = "Pillow and torchvision" if TORCHVISION is not None else "Pillow and torch"
    record: dict[str, Any] = {**vars(arguments), "against": against, "all_rounds": dict(speeds), "parts": dict(parts)}
    for clock, of in (("clock", f"{arguments.workers} worker(s)"), ("core", "a core")):
        seconds = {name: [1 / getattr(speed, clock) for speed in values] for name, values in speeds.items()}
        rate = {name: 1 / statistics.median(values) for name, values in seconds.items()}
        print(f"{against}: {rate['plain']:,.0f} images/s of {of}")
        ratios = {name: ratio(seconds, name, "plain") for name in goals}
        for name, values in ratios.items():
            goal = "" if goals[name] is None else f" (goal {goals[name]})"
            print("{} epoch: {:.2f} ({:.2f} .. {:.2f}) x that{}: {:,.0f}".format(name, *values, goal, rate[name]))
        record[clock] = {"median": rate, "ratios": ratios}
    if arguments.kind == "cifar10":
        middle = {name: statistics.median(values) for name, values in parts.items()}
        print(
            f"augmentation {middle['augment']:,.0f} images/s (goal 20,000); shapes {middle['shapes']:,.0f} (goal 5,000)"
        )
        print(f"waiting for data {100 * middle['waiting']:.1f} % of a 20 ms step (goal under 3 %)")
    write("loader" if arguments.kind == "cifar10" else f"loader-{arguments.kind}", record)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kind", choices=list(KINDS), default="cifar10")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    report(arguments, *measure(arguments))


if __name__ == "__main__":
    main()
