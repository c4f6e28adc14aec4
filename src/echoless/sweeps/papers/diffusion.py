"""What does fading do to a diffusion model? Section 5 of arXiv:2404.10947: its samples and its features.

Every experiment on diffusion models is made of the trials here: train, sample, measure. Without --latent they train on
pixels, with it on the latents of that autoencoder; the published networks and samplers follow from this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from echoless.errors import ConfigError
from echoless.sweeps.commands import BESIDE, RUN, Inputs, Words, command
from echoless.sweeps.experiment import Experiment, Published, Quantity, Trial, trial_name
from echoless.sweeps.papers.readings import LOSS, final_loss
from echoless.sweeps.papers.scale import Scale

EXTRACTOR = f"{BESIDE}extractor"
PROBES = ("linear", "knn", "rank")
PROBE_NOTE = "probe: at the layer and noise level chosen by cross-validation on the training set"
FID, IS = Quantity(metric="frechet"), Quantity(metric="inception-score")
SAMPLES = (FID, Quantity(metric="precision"), Quantity(metric="recall"))


@dataclass(frozen=True, kw_only=True)
class DiffusionScale:
    """Networks and lengths at one scale, on pixels or on latents.

    `extractor` are options of the masked autoencoder whose features compare samples with images where --extractor is
    not given; on the built-in set, which has labels, a classifier with the options `classifier` takes its place.
    """

    uvit: str
    sit: str | None  # None: the papers have none on pixels
    training: Mapping[str, Any] = field(default_factory=dict)
    extractor: Mapping[str, Any] | None = None  # None: --extractor must be given
    classifier: Mapping[str, Any] | None = None
    samples: int
    sampling: Mapping[str, Any] = field(default_factory=dict)  # of U-ViT
    guidance: float | None = None  # of a class-conditional U-ViT
    sit_sampling: Mapping[str, Any] = field(default_factory=dict)
    sit_steps: int = 400_000  # of training
    reference: str | None = None  # what samples are compared with, unless --reference is given

    def sampling_of(self, recipe: str, conditional: bool | None) -> dict[str, Any]:
        """Options of `sample`."""
        if recipe != self.uvit:
            return dict(self.sit_sampling)
        guided = {"guidance": self.guidance} if conditional and self.guidance is not None else {}
        return {**self.sampling, **guided}


# After 1000 steps of the tiny scale the samples are patches of colour and the probes near those of pixels
# (docs/results.md).
TINY_STEPS = 4000
TINY = DiffusionScale(
    uvit="uvit-tiny",
    sit="sit-tiny",
    training={
        **{"optimizer": "soap", "image_size": 16, "width": 128, "depth": 4, "batch_size": 64},
        "max_steps": TINY_STEPS,
    },
    extractor={"recipe": "demo", "image_size": 16, "patch_size": 4, "max_steps": 600},
    classifier={"recipe": "resnet-tiny-supervised", "image_size": 16, "max_steps": 800},
    samples=512,
    sit_steps=TINY_STEPS,
)
CPU = DiffusionScale(
    uvit="uvit-tiny",
    sit="sit-tiny",
    training={"optimizer": "soap"},
    extractor={"recipe": "cifar10", "max_steps": 2000},
    samples=2048,
    sit_steps=800,
)
# Settings of U-ViT (arXiv:2209.12152), which the paper takes over, and of SiT (arXiv:2401.08740), each from its code.
PAPER = DiffusionScale(
    uvit="uvit-small",
    sit=None,
    samples=50_000,
    sampling={"sampler": "em", "steps": 1000, "clip": False, "precision": "auto"},
    reference="train",
)
PAPER_LATENT = replace(
    PAPER,
    uvit="uvit-mid",
    sit="sit-xl2",
    sampling={"sampler": "dpm3", "steps": 50, "precision": "auto"},
    guidance=1.4,
    sit_sampling={"sampler": "sde", "steps": 250, "precision": "auto"},
)
SIZES = {"tiny": TINY, "cpu": CPU, "paper": PAPER}
# Table 4 of the paper, without classes: CIFAR-100 on pixels, ImageNet-100 on latents.
PUBLISHED = tuple(
    Published(metric="linear", value=value, settings={"recipe": recipe, "alpha_min": alpha})
    for recipe, values in (("uvit-small", (0.6247, 0.6686)), ("uvit-mid", (0.728, 0.761)))
    for alpha, value in zip((1.0, 0.7), values)
)


def size_for(name: str, inputs: Inputs, scale: Scale) -> DiffusionScale:
    """The networks and lengths of an experiment; refuses what it cannot be run without."""
    size = SIZES[scale.name]
    if scale.name == "paper":
        if inputs.extractor is None:
            raise ConfigError(f"--paper {name} at scale paper needs --extractor, such as inception:FILE")
        return size if inputs.latent is None else PAPER_LATENT
    if inputs.latent is not None:  # of images at their own size; patches as published
        training = {key: value for key, value in size.training.items() if key != "image_size"}
        return replace(size, training={**training, "patch_size": 2})
    return size


def diffusion(inputs: Inputs, scale: Scale) -> Experiment:
    """Section 5: U-ViT and SiT, plain and faded; loss, samples, and the best probe over layers and noise levels."""
    size, inputs = size_for("diffusion", inputs, scale), with_test(inputs)
    published = scale.name == "paper"
    faded = {size.uvit: 0.7, size.sit: 0.8 if published else 0.7}
    # As published: the U-ViTs that are probed have no classes, SiT-XL/2 has. Elsewhere both have them with the data.
    conditional = {size.uvit: False, size.sit: True} if published else {}
    trials = [
        trial(inputs, size, recipe, alpha, seed, conditional=conditional.get(recipe))
        for seed in range(inputs.seeds)
        for recipe in (size.uvit, size.sit)
        if recipe is not None
        for alpha in (1.0, faded[recipe])
    ]
    return Experiment(
        name=f"diffusion-{scale.name}",
        title=f"Diffusion transformers with faded shortcuts ({scale.name})",
        trials=tuple(trials),
        quantities=(
            LOSS,
            *SAMPLES,
            Quantity(metric="linear", title="best linear probe %"),
            Quantity(metric="knn", title="kNN % at the same cell"),
        ),
        published=PUBLISHED,
        readings=(final_loss,),
        notes=(*notes_on_samples(inputs, size), PROBE_NOTE, "heat maps of the probe: OUT/NAME/figures/grid.png"),
    )


def notes_on_samples(inputs: Inputs, size: DiffusionScale) -> tuple[str, ...]:
    """How the numbers were measured."""
    against = {"train": inputs.data, "test": inputs.test, None: inputs.test or inputs.data}
    given = inputs.reference or size.reference
    trained = "" if inputs.extractor else f" ({_extractor_options(inputs, size)['recipe']}, OUT/extractor)"
    return (
        "loss: mean over the last tenth of training; comparable between networks of one kind only",
        f"Frechet distance, precision, recall: {size.samples} samples against {against.get(given, given)}, in the "
        f"features of {inputs.extractor or 'a network of this sweep'}{trained}; comparable for equal extractors only",
        "samples: OUT/NAME/samples/grid.png",
    )


def _extractor_options(inputs: Inputs, size: DiffusionScale) -> Mapping[str, Any]:
    """Options of the network whose features compare samples with images."""
    chosen = size.classifier if size.classifier is not None and inputs.built_in else size.extractor
    assert chosen is not None  # size_for refused it
    return chosen


def with_test(inputs: Inputs) -> Inputs:
    """Held-out images, where the data can make its own."""
    if inputs.test is None and inputs.built_in:
        return replace(inputs, test="shapes:2000@test")
    return inputs


def trial(
    inputs: Inputs,
    size: DiffusionScale,
    recipe: str,
    alpha: float,
    seed: int,
    *,
    shown: Mapping[str, Any] | None = None,
    conditional: bool | None = None,
    probes: Sequence[str] = PROBES,
    snapshot: int | None = None,
    **options: Any,
) -> Trial:
    """Train, draw samples, measure both. `shown`: further columns; `snapshot`: a step whose samples are measured too;
    `options`: further ones of `pretrain`."""
    settings = {"recipe": recipe, **(shown or {}), "alpha_min": alpha, "seed": seed}
    given = {"labels": inputs.labels, "classes": inputs.classes, "device": inputs.device}
    options = {"conditional": conditional, **size.training, **options, "snapshot_every": snapshot, **given}
    options = {"seed": seed, "recipe": recipe, "alpha_min": alpha, "latent": inputs.latent, **options}
    commands = [(*command("pretrain", inputs.data, out=RUN, **options), "--resume")]
    if inputs.extractor is None:
        ours = command("pretrain", inputs.data, out=EXTRACTOR, seed=0, **_extractor_options(inputs, size), **given)
        commands.append((*ours, "--resume"))
    drawn = {f"{RUN}/samples": RUN}
    if snapshot is not None:
        drawn[f"{RUN}/samples-{snapshot}"] = f"{RUN}/snapshots/step-{snapshot:08d}"
    sampling = {"n": size.samples, "seed": seed, "device": inputs.device, **size.sampling_of(recipe, conditional)}
    for place, source in drawn.items():
        metrics = (*(probes if source == RUN else ()), *_sample_metrics(inputs))
        commands.append((*command("sample", source, out=place, **sampling), "--resume"))
        commands.append(_measured(inputs, size, metrics, place, given))
    return Trial(name=trial_name(settings), settings=settings, commands=tuple(commands))


def _sample_metrics(inputs: Inputs) -> tuple[str, ...]:
    """Precision needs images to compare with, and Inception Score the classes of Inception."""
    images = inputs.reference in (None, "train", "test")
    scored = ("inception-score",) if inputs.through_inception else ()
    return ("frechet", *(("precision",) if images else ()), *scored)


def _measured(
    inputs: Inputs, size: DiffusionScale, metrics: Sequence[str], samples: str, given: Mapping[str, Any]
) -> Words:
    return command(
        "evaluate",
        RUN,
        train=inputs.data,
        test=inputs.test,
        test_labels=inputs.test_labels,
        metrics=tuple(metrics),
        samples=samples,
        extractor=inputs.extractor or EXTRACTOR,
        reference=inputs.reference or size.reference,
        baselines=False,
        **given,
    )
