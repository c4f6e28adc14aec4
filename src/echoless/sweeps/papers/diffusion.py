"""What does fading do to a diffusion model? Section 5 of arXiv:2404.10947: its samples and its features."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from echoless.config.metrics import Metric
from echoless.runs.journal import Metrics
from echoless.sweeps.experiment import BESIDE, RUN, Experiment, Published, Quantity, Trial, command, trial_name
from echoless.sweeps.papers.scale import Scale, Source

EXTRACTOR = f"{BESIDE}extractor"
LAST = 0.1  # share of a run that its final loss is the mean of


@dataclass(frozen=True, kw_only=True)
class Size:
    """Networks and lengths at one scale.

    `extractor` are options of the masked autoencoder that looks at samples, `classifier` those of a network that was
    taught the classes and takes its place on the built-in set, which surely has labels.
    """

    recipes: tuple[str, ...]
    training: Mapping[str, Any]
    extractor: Mapping[str, Any]
    classifier: Mapping[str, Any] | None = None
    samples: int
    alphas: Mapping[str, tuple[float, ...]]


TINY = ("uvit-tiny", "sit-tiny")
SIZES = {
    "tiny": Size(
        recipes=TINY,
        training={
            "optimizer": "soap",
            "image_size": 16,
            "width": 128,
            "depth": 4,
            "batch_size": 64,
            "max_steps": 1000,
        },
        extractor={"recipe": "demo", "image_size": 16, "patch_size": 4, "max_steps": 600},
        classifier={"recipe": "resnet-tiny-supervised", "image_size": 16, "max_steps": 800},
        samples=512,
        alphas=dict.fromkeys(TINY, (1.0, 0.7)),
    ),
    "cpu": Size(
        recipes=TINY,
        training={"optimizer": "soap"},
        extractor={"recipe": "cifar10", "max_steps": 2000},
        samples=2048,
        alphas=dict.fromkeys(TINY, (1.0, 0.7)),
    ),
    "paper": Size(
        recipes=("uvit-small", "sit-xl2"),
        training={},
        extractor={"recipe": "mae-base"},
        samples=50_000,
        alphas={"uvit-small": (1.0, 0.7), "sit-xl2": (1.0, 0.8)},
    ),
}

# Table 4 of the paper: U-ViT-small on CIFAR-100, unconditional. Its FID looks through Inception, so it is not shown.
PUBLISHED = tuple(
    Published(metric="linear", value=value, settings={"recipe": "uvit-small", "alpha_min": alpha})
    for alpha, value in ((1.0, 0.625), (0.7, 0.669))
)


def diffusion(source: Source, scale: Scale) -> Experiment:
    """Section 5: U-ViT and SiT, plain and faded; loss, samples, and the best probe over layers and noise levels."""
    size, source = SIZES[scale.name], with_test(source)
    trials = [
        trial(source, size, recipe, alpha, seed)
        for seed in range(source.seeds)
        for recipe in size.recipes
        for alpha in size.alphas[recipe]
    ]
    return Experiment(
        name=f"diffusion-{scale.name}",
        title=f"Diffusion transformers with faded shortcuts ({scale.name})",
        trials=tuple(trials),
        quantities=(
            Quantity(metric="loss", title="loss", protocol={}, share=False),
            Quantity(metric="frechet", title="Frechet", share=False),
            Quantity(metric="precision", title="precision"),
            Quantity(metric="recall", title="recall"),
            Quantity(metric="linear", title="best linear probe"),
            Quantity(metric="knn", title="kNN there"),
        ),
        published=PUBLISHED,
        readings=(final_loss,),
        notes=(
            f"loss: mean over the last {100 * LAST:.0f} % of training; of networks of one kind only",
            f"Frechet distance, precision, recall: {size.samples} samples of 20 steps against "
            f"{source.test or source.data}, through OUT/extractor ({looking(source, size)['recipe']}); they compare "
            "rows of this table and nothing else",
            "probe: at the layer and noise level that folds of the training set chose; interval over images in the CSV",
            "samples: OUT/NAME/samples/grid.png; heat maps: OUT/NAME/figures/grid.png",
        ),
    )


def looking(source: Source, size: Size) -> Mapping[str, Any]:
    """Options of the network that looks at samples."""
    return size.classifier if size.classifier is not None and source.drawn else size.extractor


def with_test(source: Source) -> Source:
    """Held-out images, where the data can make its own."""
    if source.test is None and source.drawn:
        return replace(source, test="shapes:2000@test")
    return source


def trial(source: Source, size: Size, recipe: str, alpha: float, seed: int, conditional: bool | None = None) -> Trial:
    """Train, draw samples, look at both. `conditional` is said where a table compares the two."""
    task = {} if conditional is None else {"task": "class-conditional" if conditional else "unconditional"}
    settings = {"recipe": recipe, **task, "alpha_min": alpha, "seed": seed}
    shared = {"labels": source.labels, "device": source.device}
    options = {"recipe": recipe, "alpha_min": alpha, "conditional": conditional, **size.training}
    train = command("pretrain", source.data, out=RUN, seed=seed, **options, **shared)
    extractor = command("pretrain", source.data, out=EXTRACTOR, seed=0, **looking(source, size), **shared)
    draw = command("sample", RUN, out=f"{RUN}/samples", n=size.samples, seed=seed, device=source.device)
    measure = command(
        "evaluate",
        RUN,
        train=source.data,
        test=source.test,
        test_labels=source.test_labels,
        metrics=("linear", "knn", "rank", "frechet", "precision"),
        samples=f"{RUN}/samples",
        extractor=EXTRACTOR,
        baselines=False,
        **shared,
    )
    commands = ((*train, "--resume"), (*extractor, "--resume"), (*draw, "--resume"), measure)
    return Trial(name=trial_name(settings), settings=settings, commands=commands)


def final_loss(run: Path) -> list[Metric]:
    """The mean training loss of the last steps."""
    losses = [line["loss"] for line in Metrics(run / "metrics.jsonl").read() if "loss" in line]
    if not losses:
        return []
    last = losses[-max(1, round(LAST * len(losses))) :]
    return [Metric(metric="loss", value=statistics.fmean(last), n=len(last), protocol={"part": f"last {LAST:g}"})]
