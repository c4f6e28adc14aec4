"""What did the paper publish about diffusion models? Table 4, Figure 8 and SiT-XL/2 of arXiv:2404.10947.

FIDs are published through Inception, so they stand beside ours only where --extractor is inception:FILE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from echoless.errors import ConfigError
from echoless.sweeps.commands import Inputs
from echoless.sweeps.experiment import Experiment, Published, Quantity
from echoless.sweeps.papers.diffusion import (
    FID,
    IS,
    PROBE_NOTE,
    PROBES,
    SAMPLES,
    notes_on_samples,
    size_for,
    trial,
    with_test,
)
from echoless.sweeps.papers.readings import LOSS, final_loss
from echoless.sweeps.papers.scale import Build, Scale

ALPHAS = (1.0, 0.8, 0.7, 0.6)
_UNCONDITIONAL, _CONDITIONAL = "unconditional", "class-conditional"

# Table 4, by alpha_min: CIFAR-100 on pixels (U-ViT-small), ImageNet-100 on latents (U-ViT-Mid).
CIFAR100_PROBE = dict(zip(ALPHAS, (0.6247, 0.6358, 0.6686, 0.6463)))
CIFAR100_FID = dict(zip(ALPHAS, (14.34, 11.65, 8.99, 11.71)))
IMAGENET100_PROBE = dict(zip(ALPHAS, (0.728, 0.745, 0.761, 0.758)))
IMAGENET100_FID = dict(zip(ALPHAS, (44.40, 40.96, 41.17, 43.51)))
IMAGENET100_CLASS_FID = dict(zip(ALPHAS, (6.93, 5.75, 5.11, 4.98)))


def _published(metric: str, task: str, values: Mapping[float, float]) -> list[Published]:
    return [Published(metric=metric, value=v, settings={"task": task, "alpha_min": a}) for a, v in values.items()]


def _figures_of_table4(inputs: Inputs) -> tuple[Published, ...]:
    """Those of the data set that the space stands for; FIDs where they are comparable."""
    on_pixels = inputs.latent is None
    figures = _published("linear", _UNCONDITIONAL, CIFAR100_PROBE if on_pixels else IMAGENET100_PROBE)
    if inputs.through_inception:
        figures += _published("frechet", _UNCONDITIONAL, CIFAR100_FID if on_pixels else IMAGENET100_FID)
        figures += [] if on_pixels else _published("frechet", _CONDITIONAL, IMAGENET100_CLASS_FID)
    return tuple(figures)


def table4(inputs: Inputs, scale: Scale) -> Experiment:
    """Features and samples of U-ViT over alpha_min, without and with classes."""
    size, inputs = size_for("table4", inputs, scale), with_test(inputs)
    published_alone = scale.name == "paper" and inputs.latent is None  # CIFAR-100 has no row with classes
    trials = [
        trial(
            inputs,
            size,
            size.uvit,
            alpha,
            seed,
            shown={"task": _CONDITIONAL if conditional else _UNCONDITIONAL},
            conditional=conditional,
            probes=() if conditional else PROBES,
        )
        for seed in range(inputs.seeds)
        for conditional in ((False,) if published_alone else (False, True))
        for alpha in ALPHAS
    ]
    space = "pixels" if inputs.latent is None else f"latents of {inputs.latent}"
    return Experiment(
        name="table4",
        title=f"Table 4, arXiv:2404.10947, at scale {scale.name} on {inputs.data} ({space})",
        trials=tuple(trials),
        quantities=(LOSS, *SAMPLES, Quantity(metric="linear", title="best linear probe %")),
        published=_figures_of_table4(inputs),
        readings=(final_loss,),
        notes=(
            *notes_on_samples(inputs, size),
            PROBE_NOTE,
            "The paper's rows: CIFAR-100 on pixels with U-ViT-small, unconditional; ImageNet-100 on latents (--latent) "
            "with U-ViT-Mid, without and with classes. It probes models without classes only.",
            "Its FIDs (Inception, 50,000 samples) for alpha_min 1, 0.8, 0.7, 0.6: CIFAR-100 14.34, 11.65, 8.99, 11.71; "
            "ImageNet-100 44.40, 40.96, 41.17, 43.51 without and 6.93, 5.75, 5.11, 4.98 with classes.",
            "At scale paper: Euler-Maruyama with 1000 steps on pixels; DPM-Solver with 50 on latents, and guidance 1.4 "
            "with classes, the settings of U-ViT's code. The paper names no guidance.",
        ),
    )


def fig8(inputs: Inputs, scale: Scale) -> Experiment:
    """Samples of U-ViT, plain and faded to 0.6, side by side."""
    if scale.name == "paper" and inputs.latent is None:
        raise ConfigError("--paper fig8 at scale paper samples a class-conditional U-ViT-Mid, so it needs --latent")
    table = table4(inputs, scale)
    shown = [t for t in table.trials if t.settings["task"] == _CONDITIONAL and t.settings["alpha_min"] in (1.0, 0.6)]
    notes = ("Samples are OUT/NAME/samples/grid.png. The paper shows pictures and calls those at 0.6 the better ones.",)
    title = f"Figure 8, arXiv:2404.10947, at scale {scale.name} on {inputs.data}"
    return replace(
        table, name="fig8", title=title, trials=tuple(shown), quantities=(LOSS, *SAMPLES), published=(), notes=notes
    )


# Long skips, alpha_min, share of the training -> FID and, where given, Inception Score.
_SIT = {
    ("none", 1.0, 1.0): (17.2, None),
    ("long", 1.0, 1.0): (16.5, 74.8),
    ("long", 0.8, 0.5): (14.2, 79.7),
    ("long", 0.8, 1.0): (11.8, 91.8),
}


def _figures_of_sit(half: int | None) -> tuple[Published, ...]:
    """`half`: the step of the snapshot that stands for half of the training; None where there is none."""
    figures = []
    for (skips, alpha, share), values in _SIT.items():
        if share < 1 and half is None:
            continue
        row = {"skips": skips, "alpha_min": alpha, "step": half if share < 1 else None}
        for metric, value in zip(("frechet", "inception-score"), values):
            if value is not None:
                figures.append(Published(metric=metric, value=value, settings=row))
    return tuple(figures)


def sit(inputs: Inputs, scale: Scale) -> Experiment:
    """SiT-XL/2 with classes: as published, with long skips, and faded to 0.8, also at half of the training."""
    size, inputs = size_for("sit", inputs, scale), with_test(inputs)
    if size.sit is None:
        raise ConfigError("--paper sit at scale paper trains SiT-XL/2 on latents, so it needs --latent")
    # How many steps --epochs are depends on the images, which are not read here: then there is no row of the half.
    half = None if inputs.epochs is not None else (inputs.max_steps or size.sit_steps) // 2 or None
    trials = [
        trial(
            inputs,
            size,
            size.sit,
            alpha,
            seed,
            shown={"skips": skips},
            conditional=True,
            probes=(),
            snapshot=half if alpha < 1 else None,
            long_skips=skips == "long",
        )
        for seed in range(inputs.seeds)
        for skips, alpha in (("none", 1.0), ("long", 1.0), ("long", 0.8))
    ]
    return Experiment(
        name="sit",
        title=f"SiT-XL/2, arXiv:2404.10947, at scale {scale.name} on {inputs.data}",
        trials=tuple(trials),
        quantities=(LOSS, FID, *((IS,) if inputs.through_inception else ()), *SAMPLES[1:]),
        published=_figures_of_sit(half) if inputs.through_inception else (),
        by=("step",),
        readings=(final_loss,),
        notes=(
            *notes_on_samples(inputs, size),
            "The paper, on latents of ImageNet-1k at 256 x 256 after 400,000 steps: FID 17.2 as published, 16.5 with "
            "long skips (Inception Score 74.8), 11.8 faded to 0.8 (91.8); faded after 200,000 steps, 14.2 (79.7).",
            "Rows with a step are of a snapshot there. The values are from notes on the paper, which name no sampler; "
            "17.2 is that of SiT with 250 Euler-Maruyama steps and no guidance, which scale paper uses.",
        ),
    )


GENERATION: dict[str, Build] = {"table4": table4, "fig8": fig8, "sit": sit}
