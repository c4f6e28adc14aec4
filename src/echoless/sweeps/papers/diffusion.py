"""What does fading do to a diffusion model? Section 5 of arXiv:2404.10947: its samples and its features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from echoless.sweeps.commands import BESIDE, RUN, Inputs, command
from echoless.sweeps.experiment import Experiment, Published, Quantity, Trial, trial_name
from echoless.sweeps.papers.readings import LOSS, final_loss
from echoless.sweeps.papers.scale import Scale

EXTRACTOR = f"{BESIDE}extractor"


@dataclass(frozen=True, kw_only=True)
class DiffusionScale:
    """Networks and lengths at one scale.

    `extractor` are options of the masked autoencoder whose features compare samples with images; on the built-in set,
    which has labels, a classifier with the options `classifier` takes its place.
    """

    recipes: tuple[str, ...]
    training: Mapping[str, Any]
    extractor: Mapping[str, Any]
    classifier: Mapping[str, Any] | None = None
    samples: int
    alphas: Mapping[str, tuple[float, ...]]


TINY = ("uvit-tiny", "sit-tiny")
SIZES = {
    "tiny": DiffusionScale(
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
    "cpu": DiffusionScale(
        recipes=TINY,
        training={"optimizer": "soap"},
        extractor={"recipe": "cifar10", "max_steps": 2000},
        samples=2048,
        alphas=dict.fromkeys(TINY, (1.0, 0.7)),
    ),
    "paper": DiffusionScale(
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


def diffusion(inputs: Inputs, scale: Scale) -> Experiment:
    """Section 5: U-ViT and SiT, plain and faded; loss, samples, and the best probe over layers and noise levels."""
    size, inputs = SIZES[scale.name], with_test(inputs)
    trials = [
        trial(inputs, size, recipe, alpha, seed)
        for seed in range(inputs.seeds)
        for recipe in size.recipes
        for alpha in size.alphas[recipe]
    ]
    return Experiment(
        name=f"diffusion-{scale.name}",
        title=f"Diffusion transformers with faded shortcuts ({scale.name})",
        trials=tuple(trials),
        quantities=(
            LOSS,
            Quantity(metric="frechet"),
            Quantity(metric="precision"),
            Quantity(metric="recall"),
            Quantity(metric="linear", title="best linear probe %"),
            Quantity(metric="knn", title="kNN % at the same cell"),
        ),
        published=PUBLISHED,
        readings=(final_loss,),
        notes=(
            "loss: mean over the last tenth of training; comparable between networks of one kind only",
            f"Frechet distance, precision, recall: {size.samples} samples of 20 steps against "
            f"{inputs.test or inputs.data}, in the features of OUT/extractor "
            f"({extractor_options(inputs, size)['recipe']}); comparable between rows of this table only",
            "probe: at the layer and noise level chosen by cross-validation on the training set",
            "samples: OUT/NAME/samples/grid.png; heat maps: OUT/NAME/figures/grid.png",
        ),
    )


def extractor_options(inputs: Inputs, size: DiffusionScale) -> Mapping[str, Any]:
    """Options of the network whose features compare samples with images."""
    return size.classifier if size.classifier is not None and inputs.built_in else size.extractor


def with_test(inputs: Inputs) -> Inputs:
    """Held-out images, where the data can make its own."""
    if inputs.test is None and inputs.built_in:
        return replace(inputs, test="shapes:2000@test")
    return inputs


def trial(
    inputs: Inputs, size: DiffusionScale, recipe: str, alpha: float, seed: int, conditional: bool | None = None
) -> Trial:
    """Train, draw samples, measure both. `conditional` is said where a table compares the two."""
    task = {} if conditional is None else {"task": "class-conditional" if conditional else "unconditional"}
    settings = {"recipe": recipe, **task, "alpha_min": alpha, "seed": seed}
    shared = {"labels": inputs.labels, "device": inputs.device}
    options = {"recipe": recipe, "alpha_min": alpha, "conditional": conditional, **size.training}
    train = command("pretrain", inputs.data, out=RUN, seed=seed, **options, **shared)
    extractor = command("pretrain", inputs.data, out=EXTRACTOR, seed=0, **extractor_options(inputs, size), **shared)
    draw = command("sample", RUN, out=f"{RUN}/samples", n=size.samples, seed=seed, device=inputs.device)
    measure = command(
        "evaluate",
        RUN,
        train=inputs.data,
        test=inputs.test,
        test_labels=inputs.test_labels,
        metrics=("linear", "knn", "rank", "frechet", "precision"),
        samples=f"{RUN}/samples",
        extractor=EXTRACTOR,
        baselines=False,
        **shared,
    )
    commands = ((*train, "--resume"), (*extractor, "--resume"), (*draw, "--resume"), measure)
    return Trial(name=trial_name(settings), settings=settings, commands=commands)
