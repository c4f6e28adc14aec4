"""How many minutes of training until a linear probe of the frozen features has a stated accuracy?

    python benchmarks/time_to_probe.py [--target 0.4] [--most 6]                                 # `shapes`
    python benchmarks/time_to_probe.py --data cifar10/train.parquet --test cifar10/test.parquet --recipe cifar10

Three sides train a masked autoencoder of the same size on the same PNG files, one thread each, in one process:

- echoless: the recipe, as `echoless pretrain` runs it;
- transformers: ViTMAE with the settings of its run_mae.py (AdamW, base rate 1.5e-4 times batch / 256, cosine after 5 %
  of warm-up, decay 0.05, gradients clipped at 1, normalised pixels, crops of 20 to 100 % of the area), and images that
  are opened by Pillow in a DataLoader;
- transformers, our loader: the same, with batches from our loader.

They take turns by slices of the clock. A side's clock, and its CPU time, run while it opens its images and trains; they
stand while its features are probed. The schedule of ViTMAE is --longer times as long as that of the recipe. A side ends
at the target, at its last step, or after --most times the CPU time in which echoless reached the target.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from interleave import write
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from transformers import ViTMAEConfig, ViTMAEForPreTraining, get_cosine_schedule_with_warmup

from echoless.config import RunConfig
from echoless.config.facts import DataFacts
from echoless.data import AugmentConfig, Images, Loader, measure_statistics, open_images
from echoless.evaluation.classify import linear
from echoless.evaluation.encoder import from_function
from echoless.evaluation.extract import View, extract
from echoless.randomness import generator_for
from echoless.recipes.table import RECIPES
from echoless.runtime import Team, reuse_freed_memory
from echoless.training import build_task, make_trainee, take_step

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet: what ViTMAE's image processor has
LABELLED, TESTED = 5000, 2000  # images of a probe
Scaling = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass
class Side:
    """What trains: `steps` makes one more with every value that is taken from it."""

    name: str
    steps: Iterator[None]
    features: Callable[[Tensor], Tensor]  # (B, C, H, W) -> (B, D)
    scaling: Callable[[], Scaling]
    done: int = 0
    wall: float = 0.0
    cpu: float = 0.0
    finished: str = ""
    curve: list[dict[str, float]] = field(default_factory=list)

    def train(self, seconds: float, every: int) -> bool:
        """For a slice of the clock; True if it ended because a probe is due."""
        wall, cpu = time.perf_counter(), time.process_time()
        due = False
        while not due and not self.finished and time.perf_counter() - wall < seconds:
            try:
                next(self.steps)
                self.done += 1
                due = self.done % every == 0
            except StopIteration:
                self.finished, due = "its last step", True
        self.wall += time.perf_counter() - wall
        self.cpu += time.process_time() - cpu
        return due


def echoless_side(files: Path, cache: Path, config: RunConfig) -> Side:
    team = Team(0, 1, torch.device("cpu"))
    trainee = make_trainee(config, *build_task(config, generator_for(0, "init", 0)), team)
    last = trainee.model.body.config.feature_layers[-1]
    used: list[Scaling] = []

    def steps() -> Iterator[None]:
        images = open_images(files, cache_dir=cache)
        found = measure_statistics(images)
        used.append((found.mean, found.std))
        augmented = AugmentConfig(scale=config.data.crop_scale, flip=config.data.flip)
        loader = our_loader(images, config, augmented, *used[0])
        for step in range(config.steps):
            take_step(trainee, loader.batch(step))
            yield

    def features(images: Tensor) -> Tensor:
        return trainee.model.features(images, [last])[last].mean(dim=1)

    return Side("echoless", steps(), features, lambda: used[0])


def transformers_side(files: Path, cache: Path | None, config: RunConfig, steps: int) -> Side:
    """cache: of our loader; None for Pillow and a DataLoader."""
    torch.manual_seed(0)
    model = ViTMAEForPreTraining(same_size(config)).train()
    rate = 1.5e-4 * config.batch_size / 256
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.05)
    schedule = get_cosine_schedule_with_warmup(optimiser, math.ceil(0.05 * steps), steps)

    def update(images: Tensor) -> None:
        model(images).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()

    def batches() -> Iterator[Tensor]:
        if cache is not None:
            images = open_images(files, cache_dir=cache)
            loader = our_loader(images, config, AugmentConfig(interpolation="bicubic"), MEAN, STD)
            yield from (loader.batch(step).images_BCHW for step in range(steps))
            return
        shown = DataLoader(Files(files, config.model.image_size), config.batch_size, shuffle=True, drop_last=True)
        while True:
            yield from shown

    def train() -> Iterator[None]:
        for _, images in zip(range(steps), batches()):
            update(images)
            yield

    @torch.no_grad()
    def features(images: Tensor) -> Tensor:
        model.eval()
        model.config.mask_ratio = 0.0
        found = model.vit(images).last_hidden_state.mean(dim=1)
        model.config.mask_ratio = 0.75
        model.train()
        return found

    name = "transformers" if cache is None else "transformers, our loader"
    return Side(name, train(), features, lambda: (MEAN, STD))


def our_loader(images: Images, config: RunConfig, augment: AugmentConfig, mean: Any, std: Any) -> Loader:
    """Without threads: they would work during the turns of the others."""
    size = {"size": config.model.image_size, "batch_size": config.batch_size}
    return Loader(images, **size, seed=0, mean=mean, std=std, augment=augment, workers=0)


def same_size(config: RunConfig) -> ViTMAEConfig:
    model: Any = config.model
    body = model.encoder
    return ViTMAEConfig(
        image_size=body.image_size[0],
        patch_size=body.patch_size,
        hidden_size=body.width,
        num_hidden_layers=body.depth,
        num_attention_heads=body.heads,
        intermediate_size=int(body.width * body.mlp_ratio),
        decoder_hidden_size=model.decoder_width,
        decoder_num_hidden_layers=model.decoder_depth,
        decoder_num_attention_heads=model.decoder_heads,
        decoder_intermediate_size=int(model.decoder_width * body.mlp_ratio),
        mask_ratio=0.75,
        norm_pix_loss=True,
    )


class Files(Dataset[Tensor]):
    """Image files as torchvision's RandomResizedCrop, RandomHorizontalFlip, ToTensor and Normalize prepare them."""

    def __init__(self, folder: Path, size: tuple[int, int]) -> None:
        self.files, self.size = sorted(folder.rglob("*.png")), size

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:
        image = Image.open(self.files[index]).convert("RGB")
        box = random_box(*image.size)
        image = image.crop(box).resize(self.size[::-1], Image.Resampling.BICUBIC)
        if torch.rand(()) < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        levels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
        return (levels - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]


def random_box(width: int, height: int) -> tuple[int, int, int, int]:
    """20 to 100 % of the area, 3/4 to 4/3 as wide as high; the whole image after ten boxes that do not fit."""
    for _ in range(10):
        area = width * height * float(torch.empty(1).uniform_(0.2, 1.0))
        ratio = math.exp(float(torch.empty(1).uniform_(math.log(3 / 4), math.log(4 / 3))))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            x, y = int(torch.randint(width - w + 1, (1,))), int(torch.randint(height - h + 1, (1,)))
            return x, y, x + w, y + h
    return 0, 0, width, height


def probe(side: Side, labelled: Images, test: Images) -> float:
    """Of the mean over all tokens of the last block (transformers: after its final norm), by the quick probe."""
    mean, std = side.scaling()
    encoder = from_function(side.features, image_size=labelled.typical_size, channels=3, mean=mean, std=std)
    view = View("output")
    sets = [extract(encoder, images, [view], cache=None)[view] for images in (labelled, test)]
    return linear(*sets, probe="quick", seed=0).value


def write_files(data: str, folder: Path, most: int | None = None) -> Path:
    """The images as PNG files, in a sub-folder for each class."""
    images = open_images(data)
    assert images.labels is not None
    for index in range(min(len(images), most or len(images))):
        place = folder / str(int(images.labels[index]))
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images.get([index]).pixels[0].transpose(1, 2, 0)).save(place / f"{index:06d}.png")
    return folder


def race(sides: list[Side], options: argparse.Namespace, labelled: Images, test: Images) -> None:
    while running := [side for side in sides if not side.finished]:
        for side in running:
            if not side.train(options.slice, options.every):
                continue
            accuracy = probe(side, labelled, test)
            side.curve.append({"steps": side.done, "wall": side.wall, "cpu": side.cpu, "accuracy": accuracy})
            if accuracy >= options.target:
                side.finished = "the target"
            elif sides[0].finished and side.cpu > options.most * sides[0].cpu:
                side.finished = f"--most {options.most:g}"
            print(
                f"{side.name:25} {side.done:6} steps {side.wall / 60:6.2f} min {side.cpu / 60:6.2f} min CPU "
                f"{100 * accuracy:6.2f} % {side.finished and '  ended by ' + side.finished}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="shapes:20000")
    parser.add_argument("--test", default="shapes:2000@test")
    parser.add_argument("--recipe", default="demo")
    parser.add_argument("--steps", type=int, help="of the recipe (default: what it says)")
    parser.add_argument("--longer", type=float, default=5.0)
    parser.add_argument("--target", type=float, default=0.4)
    parser.add_argument("--most", type=float, default=6.0)
    parser.add_argument("--slice", type=float, default=20.0, help="seconds")
    parser.add_argument("--every", type=int, default=200, help="steps between probes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, reuse_freed_memory():
        work = Path(folder)
        os.environ["ECHOLESS_CACHE"] = str(work / "cache")
        files = write_files(options.data, work / "train")
        labelled = open_images(write_files(options.data, work / "labelled", LABELLED))
        test = open_images(write_files(options.test, work / "test", TESTED))
        facts = DataFacts(3, *labelled.typical_size, len(list(files.rglob("*.png"))))
        config = RECIPES[options.recipe](facts)
        config = replace(config, steps=options.steps or config.steps)
        longer = math.ceil(options.longer * config.steps)
        sides = [
            echoless_side(files, work / "cache-1", config),
            transformers_side(files, None, config, longer),
            transformers_side(files, work / "cache-2", config, longer),
        ]
        race(sides, options, labelled, test)
    first = sides[0]
    for side in sides[1:]:
        more = "" if side.finished == "the target" else "more than "
        print(f"{side.name}: {more}{side.wall / first.wall:.1f} times the minutes of {first.name}, ", end="")
        print(f"{more}{side.cpu / first.cpu:.1f} times the CPU time")
    write("time_to_probe", {**vars(options), "sides": {side.name: [side.finished, side.curve] for side in sides}})


if __name__ == "__main__":
    main()
