"""Run folders with everything a page can show, made in a moment without training. Not a test itself."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import torch

from echoless.config import RunConfig, mae_preset, to_dict
from echoless.reports.maps import save_map
from echoless.reports.pictures import rows, save_picture, tiles
from echoless.runs import RunFolder

BLOCKS, NOISES, SAMPLER_STEPS = 6, (0.1, 0.3, 0.5, 0.7), (5, 10, 20, 50)


def make_run(
    path: Path,
    *,
    alpha_min: float = 0.6,
    seed: int = 0,
    steps: int = 120,
    points: int = 60,
    level: float = 0.4,
    classes: int = 10,
    root: Path | None = None,
    labelled: int | None = None,
) -> Path:
    """`level` is about where its accuracies lie. labelled: how many points of the map have a label; None: all."""
    path.mkdir(parents=True)
    run = RunFolder(path)
    config = to_dict(RunConfig(recipe="demo", model=mae_preset("tiny-32", alpha_min=alpha_min), steps=steps, seed=seed))
    config["data"]["path"] = "shapes"
    run.write_config(config)
    run.write_about(about(path))
    run.log("no cache: it was turned off")
    chance = random.Random(seed)
    (path / "metrics.jsonl").write_text("".join(json.dumps(line(s, steps, chance)) + "\n" for s in range(1, steps + 1)))
    run.add_results(results(level + chance.uniform(-0.01, 0.01), seed))
    make_figures(path, points, seed, classes, root, labelled)
    return path


def about(path: Path) -> dict[str, Any]:
    return {
        "command": f"echoless pretrain shapes --out '{path.name}' --recipe demo",
        "machine": {"processor": "A Processor", "cores": 2, "threads": 2, "memory_gb": 8.0, "device": "cpu"},
        "versions": {"echoless": "0.1.0", "torch": "2.13.0"},
        "parameters": {"all": 5_900_000, "encoder": 5_400_000},
        "data": {"images": 4000, "height": 32, "width": 32, "channels": 3, "bits": 8},
        "model": {"title": "masked autoencoder (long_skips), encoder 192 x 12", "parameters": 5_900_000},
        "started": "2026-01-02T03:04:05+00:00",
        "sessions": 2,
        "ended": 1,
        "seconds": 4000.0,
    }


def line(step: int, steps: int, chance: random.Random) -> dict[str, Any]:
    done = step / steps
    found: dict[str, Any] = {
        "step": step,
        "loss": 0.4 + 0.6 * math.exp(-3 * done) + chance.gauss(0, 0.01),
        "lr": 1e-3 * min(20 * done, 1) * (1 + math.cos(math.pi * done)) / 2,
        "gradient_norm": 0.5 + chance.random(),
        "images_per_second": 500 + chance.gauss(0, 10),
        "waiting": 0.01,
        "memory_mb": 500,
    }
    if step == 1 or step % 10 == 0:
        found["feature_norm"] = {f"block{b:02d}": 5 + b + 3 * done for b in range(BLOCKS)}
        found |= {"rankme": 4 + 20 * done, "rank_paper": 1 + 2 * done}
    return found


def results(level: float, seed: int) -> list[dict[str, Any]]:
    common = {"pooling": "mean", "seed": seed, "train_n": 4000}

    def record(metric: str, value: float, half: float | None = None, **protocol: Any) -> dict[str, Any]:
        interval = None if half is None else [value - half, value + half]
        protocol = {**common, **protocol}
        return {"metric": metric, "value": value, "n": 1000, "interval": interval, "protocol": protocol}

    last = {"layer": "block05/+mlp", "k": 20}
    found = [record("knn", level, 0.02, features="trained", **last)]
    found += [record("knn", 0.14, 0.02, features="raw pixels", layer="output", k=20)]
    found += [record("knn", 0.12, 0.02, features="untrained", **last)]
    found += [record("linear", level + 0.1, 0.02, features="trained", probe="quick", **last)]
    found += [record("miou", level / 2, None, features="trained", layers="block05/+mlp")]
    found += [record("rankme", 20.0 + 10 * level, None, features="trained", **last)]
    for block in range(BLOCKS):
        layer = f"block{block:02d}/+mlp"
        for pooling in ("mean", "cls"):
            where = {"features": "trained", "layer": layer, "scan": "layers", "pooling": pooling}
            found += [record(name, level - 0.02 * (5 - block), 0.02, **where) for name in ("knn", "linear")]
        found.append(record("rankme", 20.0 + block, None, features="trained", layer=layer, scan="layers"))
        found += [
            record(
                "linear", level - 0.1 * n + 0.01 * block, 0.02, features="trained", layer=layer, noise=n, scan="grid"
            )
            for n in NOISES
        ]
    for step in (30, 60, 90, 120):
        found.append(record("knn", level * step / 120, 0.02, features="trained", step=step, **last))
    found += [record("frechet", 80 / n + 10 * (1 - level), 0.5, sampler="heun", steps=n) for n in SAMPLER_STEPS]
    return found


def make_figures(path: Path, points: int, seed: int, classes: int, root: Path | None, labelled: int | None) -> None:
    generator = torch.Generator().manual_seed(7)  # the images are the same in every run, the map is not
    images = torch.rand(points, 3, 8, 8, generator=generator).repeat_interleave(4, 2).repeat_interleave(4, 3)
    figures = path / "figures"
    save_picture(figures / "data.png", tiles(images[:24], columns=12, side=48, gap=2))
    for name in ("reconstructions", "spectral-trained", "spectral-untrained"):
        rows(figures / f"{name}.png", {"images": images[:6], "what was made of them": images[:6].flip(0)})
    (path / "samples").mkdir()
    save_picture(path / "samples" / "grid.png", tiles(images[:16], columns=4, side=32))
    labels = torch.randint(classes, (points,), generator=generator)
    spread = torch.randn(points, 2, generator=torch.Generator().manual_seed(seed))
    centres = torch.stack([torch.cos(0.63 * labels), torch.sin(0.63 * labels)], dim=1)
    labels = labels if labelled is None else labels.masked_fill(torch.arange(points) >= labelled, -1)
    features = torch.cat([10 * centres + spread, torch.rand(points, 6, generator=generator)], dim=1)
    save_map(
        figures,
        8 * centres + spread,
        features,
        images_NCHW=images,
        labels_N=labels,
        class_names=[f"class {index}" for index in range(classes)],
        names=[f"photos/of something/{index:06d}.png" for index in range(points)],
        about=f"{points} images, layer block05/+mlp, mean pooling, seed {seed}",
        root=root,
    )
