"""How many images a second does the loader deliver, against Pillow in a torch DataLoader with the same crops?

    python benchmarks/loader.py [--images 10000] [--rounds 5] [--kind cifar10|photos]

Both sides run on two workers and make the same random resized crops, flips and normalised float batches. The plain side
keeps the encoded bytes in memory, gets its crop boxes for nothing, and its workers are started before the clock is.
Ours is timed twice: the first epoch with the cache still to be built, and later ones. Rounds are interleaved, so that a
busy machine is busy for all; printed is the median of the rounds' ratios, with its quartiles. Also measured: the
augmentation alone, the drawing of `shapes`, and the share of a 20 ms training step that is spent waiting for data.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from interleave import ratio
from PIL import Image

from echoless.data import AugmentConfig, Images, Loader, Shapes, augment, batch_indices, open_images
from echoless.data.augment import draw, random_boxes
from echoless.randomness import generator_for

REPOSITORY = Path(__file__).resolve().parent.parent
CIFAR = REPOSITORY.parent / "shared" / "data" / "cifar10" / "train.parquet"
RESULTS = REPOSITORY / "benchmarks" / "results" / "loader.json"
MEAN, STD = [0.49, 0.48, 0.45], [0.24, 0.24, 0.26]
BATCH, WORKERS, CONFIG = 250, 2, AugmentConfig()


class PlainDataset(torch.utils.data.Dataset):
    """What one writes by hand: open, crop, resize, flip, to float, normalise."""

    def __init__(self, blobs: list[bytes], shapes: np.ndarray, size: int) -> None:
        self.blobs, self.size = blobs, size
        self.boxes = random_boxes(draw(len(blobs), generator_for(0, "augment", 0)), shapes, CONFIG)
        self.mean, self.std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]

    def __len__(self) -> int:
        return len(self.blobs)

    def __getitem__(self, index: int) -> torch.Tensor:
        image = Image.open(io.BytesIO(self.blobs[index])).convert("RGB")
        top, left, height, width, flip = (field[index] for field in self.boxes)
        corners = (left, top, left + width, top + height)
        image = image.resize((self.size, self.size), Image.Resampling.BILINEAR, corners)
        if flip:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div_(255)
        return pixels.sub_(self.mean).div_(self.std)


def make_data(kind: str, count: int, folder: Path) -> tuple[Path, list[bytes], int]:
    """A parquet file of `count` JPEGs, their bytes, and the output size."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if kind == "cifar10" and CIFAR.exists():
        blobs = pq.ParquetFile(CIFAR).read(columns=["image.bytes"]).column(0).combine_chunks().field("bytes")
        blobs, size = blobs.slice(0, count).to_pylist(), 32
    else:
        side, size = (32, 32) if kind == "cifar10" else (320, 224)
        blobs = [smooth_jpeg(number, side) for number in range(min(count, 500))]
        blobs = [blobs[number % len(blobs)] for number in range(count)]
    rows = pa.array(
        [{"bytes": blob, "path": None} for blob in blobs], pa.struct({"bytes": pa.binary(), "path": pa.string()})
    )
    path = folder / "data.parquet"
    pq.write_table(pa.table({"image": rows}), path, row_group_size=2000)
    return path, blobs, size


def smooth_jpeg(number: int, side: int) -> bytes:
    coarse = np.random.default_rng(number).integers(0, 256, (side // 8, side // 8, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return file.getvalue()


def loader(images: Images, size: int) -> Loader:
    return Loader(
        images, size=(size, size), batch_size=BATCH, seed=0, mean=MEAN, std=STD, augment=CONFIG, workers=WORKERS
    )


def first_epoch(path: Path, size: int) -> tuple[float, Images]:
    with tempfile.TemporaryDirectory() as cache:
        start = time.perf_counter()
        images = open_images(path, cache_dir=Path(cache))
        count = sum(len(batch.ids_B) for batch in loader(images, size).batches(0, len(images) // BATCH))
        return count / (time.perf_counter() - start), images  # the mapped file outlives its name


def later_epoch(images: Images, size: int, epoch: int) -> float:
    steps = len(images) // BATCH
    start = time.perf_counter()
    count = sum(len(b.ids_B) for b in loader(images, size).batches(epoch * steps, (epoch + 1) * steps))
    return count / (time.perf_counter() - start)


def plain_epochs(blobs: list[bytes], size: int) -> object:
    """A generator of images per second, one per epoch, on workers that stay."""
    shapes = np.array([Image.open(io.BytesIO(blob)).size[::-1] for blob in blobs])
    order = batch_indices(0, 0, len(blobs), len(blobs)).tolist()
    plain = torch.utils.data.DataLoader(
        PlainDataset(blobs, shapes, size), BATCH, sampler=order, num_workers=WORKERS, persistent_workers=True
    )
    for _ in plain:  # workers start and warm up outside the clock
        pass
    while True:
        start = time.perf_counter()
        count = sum(len(batch) for batch in plain)
        yield count / (time.perf_counter() - start)


def augmentation_alone(threads: int) -> float:
    """Whole batches at 32 x 32, on as many threads as the goal has cores."""
    from concurrent.futures import ThreadPoolExecutor

    pixels = np.random.default_rng(0).integers(0, 256, (BATCH, 3, 32, 32), dtype=np.uint8)
    uniform = draw(BATCH, generator_for(0, "augment", 0))

    def run(_: int) -> None:
        augment(pixels, uniform, size=(32, 32), config=CONFIG, mean=MEAN, std=STD)

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


def waiting_share(images: Images, size: int) -> float:
    """Of 100 steps that each take 20 ms of one core."""
    waited, start = 0.0, time.perf_counter()
    for batch in loader(images, size).batches(0, 100):
        waited += batch.waited if batch.step else 0.0  # nothing can be ready before the first request
        until = time.perf_counter() + 0.02
        while time.perf_counter() < until:
            torch.mm(torch.ones(64, 64), torch.ones(64, 64))
    return waited / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kind", choices=["cifar10", "photos"], default="cifar10")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rates: dict[str, list[float]] = {"first": [], "later": [], "plain": [], "augment": [], "shapes": [], "waiting": []}
    with tempfile.TemporaryDirectory() as folder:
        path, blobs, size = make_data(arguments.kind, arguments.images, Path(folder))
        plain = plain_epochs(blobs, size)
        for number in range(arguments.rounds):
            rates["plain"].append(next(plain))  # type: ignore[call-overload]
            first, images = first_epoch(path, size)
            rates["first"].append(first)
            rates["later"].append(statistics.mean(later_epoch(images, size, 1 + 3 * number + i) for i in range(3)))
            rates["augment"].append(augmentation_alone(WORKERS))
            rates["shapes"].append(drawing_alone(WORKERS))
            rates["waiting"].append(waiting_share(images, size))
            print(f"round {number + 1}: " + "  ".join(f"{name} {values[-1]:,.3g}" for name, values in rates.items()))
    report(arguments, rates)


def report(arguments: argparse.Namespace, rates: dict[str, list[float]]) -> None:
    middle = {name: statistics.median(values) for name, values in rates.items()}
    seconds = {name: [1 / rate for rate in rates[name]] for name in ("plain", "first", "later")}
    first, later = ratio(seconds, "first", "plain"), ratio(seconds, "later", "plain")
    result = {
        "kind": arguments.kind,
        "images": arguments.images,
        "rounds": arguments.rounds,
        "images_per_second": {name: middle[name] for name in ("plain", "first", "later", "augment", "shapes")},
        "ratio_first_epoch": first,
        "ratio_later_epochs": later,
        "waiting_share": middle["waiting"],
        "all_rounds": rates,
    }
    print("first epoch {:.2f} ({:.2f} .. {:.2f}) x plain (goal 2)".format(*first))
    print("later epochs {:.2f} ({:.2f} .. {:.2f}) x plain (goal 10)".format(*later))
    print(f"augmentation {middle['augment']:,.0f} images/s (goal 20,000); shapes {middle['shapes']:,.0f} (goal 5,000)")
    print(f"waiting for data {100 * middle['waiting']:.1f} % of a 20 ms step (goal under 3 %)")
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    target = RESULTS if arguments.kind == "cifar10" else RESULTS.with_name(f"loader-{arguments.kind}.json")
    target.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
