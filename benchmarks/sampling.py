"""Few steps against a thousand: seconds and Frechet distance of the samplers, on one trained U-ViT.

    python benchmarks/sampling.py [RUN] [--extractor RUN] [--samples 512] [--threads 2]

Euler-Maruyama on the reverse SDE with 1000 steps (how U-ViT is published) against DPM-Solver++ (2M) with 10, 20 and 50
and Heun with 18, each from the same starting noise. They take turns, 64 samples at a time. The distance is to 2000
held-out images, through a masked autoencoder that is trained here unless one is given; it compares samplers with each
other, not with other papers. Goal: 20 times faster, within 5 % of the distance or inside its bootstrap interval.
Without RUN a small U-ViT is trained first (16 x 16 pixels; all of it about ten minutes on two quiet cores).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from interleave import write

from echoless.config import DiffusionConfig, ShortcutConfig, UViTConfig
from echoless.data import evaluation_batches, open_images
from echoless.evaluation.encoder import Encoder
from echoless.evaluation.extract import View, extract
from echoless.evaluation.frozen import load
from echoless.evaluation.generate import ImageGenerator, open_generator
from echoless.measures import Interval, frechet_interval, moments
from echoless.models import UViT
from echoless.objectives import DiffusionObjective, Sampling
from echoless.randomness import generator_for
from echoless.verbs.pretrain import pretrain

TRAIN, REFERENCE = "shapes:4000", "shapes:2000@test"
SIZE, HALF = (16, 16), (0.5, 0.5, 0.5)
NETWORK = UViTConfig(
    image_size=SIZE,
    patch_size=4,
    width=128,
    depth=2,
    heads=2,
    classes=10,
    zero_init=True,
    shortcuts=ShortcutConfig(alpha_min=0.7),
)
THOUSAND = "Euler-Maruyama, 1000"
SAMPLERS = {
    THOUSAND: Sampling(name="em", steps=1000),
    "DPM-Solver++, 10": Sampling(name="dpm++2m", steps=10),
    "DPM-Solver++, 20": Sampling(name="dpm++2m", steps=20),
    "DPM-Solver++, 50": Sampling(name="dpm++2m", steps=50),
    "Heun, 18": Sampling(name="heun", steps=18),
}


def trained(steps: int, batch: int = 128) -> ImageGenerator:
    """A small U-ViT, its weights averaged over the last few hundred steps."""
    images, labels = _pixels(TRAIN)
    model = UViT(NETWORK, generator_for(0, "init", 0))
    objective = DiffusionObjective(DiffusionConfig(), (3, *SIZE), NETWORK.classes)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.99), weight_decay=0.03)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.995))
    for step in range(steps):
        chosen = torch.randint(len(images), (batch,), generator=generator_for(0, "order", step))
        optimiser.zero_grad()
        loss = objective.loss(model, images[chosen], labels[chosen], objective.draw(batch, 0, step))
        loss.backward()
        optimiser.step()
        schedule.step()
        average.update_parameters(model)
    print(f"trained for {steps} steps of {batch}, loss {loss.item():.3f}")
    return ImageGenerator(
        name="a small U-ViT",
        fingerprint="",
        model=average.module.eval(),
        objective=objective,
        mean=HALF,
        std=HALF,
        device="cpu",
    )


def _pixels(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    images = open_images(name)
    batches = evaluation_batches(images, size=SIZE, batch_size=500, mean=HALF, std=HALF, ids=list(range(len(images))))
    assert images.labels is not None
    return torch.cat([batch.images_BCHW for batch in batches]), images.labels


def draw(
    generator: ImageGenerator, count: int, at_once: int = 64
) -> tuple[dict[str, np.ndarray], dict[str, list[float]]]:
    """Samples of every sampler, and the seconds of each part, in turns."""
    samples: dict[str, list[np.ndarray]] = {name: [] for name in SAMPLERS}
    seconds: dict[str, list[float]] = {name: [] for name in SAMPLERS}
    for first in range(0, count, at_once):
        for name, sampling in SAMPLERS.items():
            start = time.perf_counter()
            part = generator.images(range(first, min(count, first + at_once)), 0, sampling)
            seconds[name].append(time.perf_counter() - start)
            samples[name].append(part.numpy())
        print(f"{min(count, first + at_once)} of {count} samples")
    return {name: np.concatenate(parts) for name, parts in samples.items()}, seconds


def distances(samples: dict[str, np.ndarray], extractor: Encoder, folder: Path) -> dict[str, Interval]:
    view = View(extractor.default_layer)
    reference = moments(extract(extractor, open_images(REFERENCE), [view], cache=None)[view].features_ND)
    found = {}
    for index, (name, levels) in enumerate(samples.items()):
        np.savez(folder / f"{index}.npz", images=levels)
        images = open_images(folder / f"{index}.npz", cache="off")
        features = extract(extractor, images, [view], cache=None)[view].features_ND
        found[name] = frechet_interval(features, reference, generator=generator_for(0, "probe", 0))
    return found


def report(found: dict[str, Interval], seconds: dict[str, list[float]], extractor: str) -> dict[str, object]:
    slow, rows = found[THOUSAND], {}
    print(f"\nFrechet distance to {REFERENCE} through {extractor}, 95 % bootstrap intervals")
    print(f"{'sampler':24}{'seconds':>9}{'x faster':>10}{'distance':>10}{'interval':>20}  goal")
    for name, (value, low, high) in found.items():
        faster = float(np.median([a / b for a, b in zip(seconds[THOUSAND], seconds[name])]))
        near = value <= 1.05 * slow.value or value <= slow.high
        goal = "-" if name == THOUSAND else "met" if near and faster >= 20 else "not met"
        interval = f"[{low:.4g}, {high:.4g}]"
        print(f"{name:24}{sum(seconds[name]):9.2f}{faster:10.1f}{value:10.4g}{interval:>20}  {goal}")
        rows[name] = {"seconds": sum(seconds[name]), "faster": faster, "frechet": [value, low, high], "goal": goal}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", type=Path)
    parser.add_argument("--extractor", type=Path)
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--steps", type=int, default=1500, help="of training, where no run is given")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        generator = trained(options.steps) if options.run is None else open_generator(options.run)
        extractor = options.extractor or folder / "extractor"
        if options.extractor is None:
            pretrain(TRAIN, out=extractor, recipe="demo", max_steps=200, compile=False)
        samples, seconds = draw(generator, options.samples)
        found = distances(samples, load(extractor), folder)
    what = "a masked autoencoder (demo, 200 steps)" if options.extractor is None else str(options.extractor)
    rows = report(found, seconds, what)
    record = {"samples": options.samples, "run": options.run and options.run.name, "extractor": what, "samplers": rows}
    print(f"written: {write('sampling', record).name}")


if __name__ == "__main__":
    main()
