"""At what scale is a published experiment repeated? tiny (minutes), cpu (hours), or paper (as published)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from echoless.config.normalisation import IMAGENET_MEAN, IMAGENET_STD
from echoless.sweeps.commands import RUN, Inputs, Words, command, option_of
from echoless.sweeps.experiment import Experiment, Quantity, Trial, trial_name


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Sizes and lengths. Where the depth is not the published one, alpha_min keeps the published effective alpha."""

    name: str
    training: Mapping[str, Any]  # options of `pretrain`
    widths: Mapping[int, int]  # of the paper -> here
    depths: Mapping[int, int]  # likewise
    snapshots: int  # over the run, for experiments over training
    log_every: int  # steps between lines of metrics.jsonl, for experiments on the first steps
    imagenet100_probe: str = "quick"  # what stands for the linear probe of Tables 2 and 3
    imagenet1k_probe: str = "quick"  # and of Table 1
    finetuning: Mapping[str, Any] = field(default_factory=dict)


Build = Callable[[Inputs, Scale], Experiment]
KNN, LINEAR, RANK = (Quantity(metric=metric) for metric in ("knn", "linear", "rank_paper"))

# The published models of ImageNet see pixels normalised by these constants, not by statistics of the images.
NORMALISED: Mapping[str, Any] = {"mean": IMAGENET_MEAN, "std": IMAGENET_STD}
PUBLISHED_DEPTHS = {12: 12, 18: 18, 24: 24}
# Fine-tuning of a few minutes. With the rates and the augmentation of He et al., made for 100 epochs, 400 steps do not
# leave the loss of guessing (docs/results.md).
GENTLE: Mapping[str, Any] = {
    **{"base_lr": 4e-3, "layer_decay": 0.85, "drop_path": 0, "label_smoothing": 0},
    **{"mixup": 0, "cutmix": 0, "erase": 0, "rand_augment": 0},
}
SCALES = {
    # The settings of `echoless demo`: the fewest images at which plain and faded encoders differ beyond the spread of
    # seeds (docs/results.md). About 8 minutes of one core for each ViT-B of the paper.
    "tiny": Scale(
        name="tiny",
        training={"recipe": "demo", "optimizer": "soap", "max_steps": 3200, "batch_size": 64},
        widths={384: 32, 768: 64, 1024: 96},
        depths={12: 6, 18: 9, 24: 12},
        snapshots=8,
        log_every=1,
        finetuning={"max_steps": 400, "batch_size": 128, **GENTLE},
    ),
    "cpu": Scale(
        name="cpu",
        training={"recipe": "cifar10", "optimizer": "soap", "max_steps": 4000},
        widths={384: 64, 768: 128, 1024: 192},
        depths=PUBLISHED_DEPTHS,
        snapshots=10,
        log_every=2,
        finetuning={"max_steps": 2000, "batch_size": 128},
    ),
    # 800 epochs with a snapshot every 50.
    "paper": Scale(
        name="paper",
        training={"recipe": "mae-base", **NORMALISED},
        widths={384: 384, 768: 768, 1024: 1024},
        depths=PUBLISHED_DEPTHS,
        snapshots=16,
        log_every=10,
        imagenet100_probe="imagenet100",
        imagenet1k_probe="mae",
        finetuning={"precision": "bf16"},  # mixed, as He et al. 2022
    ),
}


# Of init_skipless_: what keeps attention near the identity over twelve narrow blocks; `echoless conditioning` shows it.
NARROW_START = (0.7, 4.0, 3.0)


class Cell(NamedTuple):
    """A row of a paper's table: what identifies it there, and the options of `pretrain` that make it here."""

    shown: Mapping[str, Any]
    options: Mapping[str, Any]


def vit(scale: Scale, shown: Mapping[str, Any], *, width: int = 768, depth: int = 12, **options: Any) -> Cell:
    """What stands for a masked autoencoder of the paper's width and depth; ViT-B unless said."""
    here = scale.depths[depth]
    if "alpha_min" in options:
        options["alpha_min"] = same_reach(options["alpha_min"], depth, here)
    return Cell(shown, {"width": scale.widths[width], "depth": here, **options})


def same_reach(alpha_min: float, depth: int, here: int) -> float:
    """The alpha_min that has at depth `here` the effective alpha that `alpha_min` has at `depth`, to three digits.

    >>> same_reach(0.6, 12, 6), same_reach(1.0, 12, 6), same_reach(0.6, 12, 12)
    (0.324, 1.0, 0.6)
    """
    if depth == here:
        return alpha_min
    from echoless.shortcuts import alpha_min_for

    return round(alpha_min_for(here, effective_over(depth, alpha_min)), 3)


def effective_over(depth: int, alpha_min: float) -> float:
    """The product of all alphas. Torch is imported here: the names of the experiments are known without it."""
    from echoless.shortcuts import alphas, effective_alpha

    return effective_alpha(alphas(depth, alpha_min=alpha_min))


def note_on_alphas(scale: Scale, trials: Sequence[Trial]) -> tuple[str, ...]:
    """For tables whose rows name the paper's alpha_min where the networks have another."""
    here, given = scale.depths[12], {option_of(trial.commands[0], "alpha_min") for trial in trials}
    if here == 12 or given <= {None, ("1.0",)}:
        return ()
    return (
        f"Rows are named by the paper's alpha_min. With {here} blocks instead of 12, {same_reach(0.6, 12, here)} "
        "stands for 0.6: both have the same effective alpha.",
    )


def pretraining_trials(
    inputs: Inputs, scale: Scale, cells: Sequence[Cell], measures: Sequence[Words], **rest: Any
) -> tuple[Trial, ...]:
    """One trial for each cell and seed; `rest` are further fields of Trial."""
    return tuple(
        Trial(
            name=trial_name({key: value for key, value in settings.items() if key != "effective"}),
            settings=settings,
            commands=(_training(inputs, {**scale.training, **cell.options}, settings["seed"]), *measures),
            cost=float(cell.options.get("depth", 12)) * float(cell.options.get("width", 1)) ** 2,
            **rest,
        )
        for seed in range(inputs.seeds)
        for cell in cells
        for settings in [{**cell.shown, "seed": seed}]
    )


def _training(inputs: Inputs, options: Mapping[str, Any], seed: int) -> Words:
    given = {"labels": inputs.data_labels, "classes": inputs.classes, "seed": seed, "device": inputs.device}
    return command("pretrain", inputs.data, out=RUN, **options, **given, resume=True)
