"""Which supervised experiments are there? ViTs without shortcuts, and the rank of faded ResNets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from echoless.config.checks import require
from echoless.sweeps.commands import RUN, Inputs, Words, command, evaluate_command
from echoless.sweeps.experiment import Experiment, Published, Quantity, Trial, trial_name
from echoless.sweeps.papers.scale import NARROW_START, NORMALISED, RANK, Scale

ACCURACY = Quantity(metric="accuracy", protocol={})

PUBLISHED_START = (2.0, 0.6, 3.0)  # for a ViT-B

VIT_LENGTH: Mapping[str, Mapping[str, Any]] = {
    "tiny": {
        "recipe": "vit-tiny-supervised",
        "patch_size": 8,
        "batch_size": 128,
        "max_steps": 4000,
    },
    "cpu": {"recipe": "vit-tiny-supervised", "max_steps": 8000},
    "paper": {"recipe": "vit-supervised", **NORMALISED},
}
# Per 256 images, at the smallest scale. Chosen by the training loss of the network without shortcuts, initialised for
# it: at 2e-3 AdamW was still at chance after 850 steps, and SOAP reached 1.53 in 300 (1.96 at 6e-4).
LEARNING_RATE: Mapping[str, Mapping[str, Any]] = {"adamw": {"base_lr": 6e-4}, "soap": {"base_lr": 2e-3}}
RESNET_LENGTH: Mapping[str, Mapping[str, Any]] = {
    "tiny": {"recipe": "resnet-tiny-supervised", "batch_size": 128, "max_steps": 300},
    "cpu": {"recipe": "resnet-tiny-supervised", "max_steps": 8000},
    "paper": {"recipe": "resnet-supervised", **NORMALISED},
}


def skipless(inputs: Inputs, scale: Scale) -> Experiment:
    """ViTs with identity, faded and no shortcuts, the last with two initialisations (arXiv:2510.00345)."""
    start = PUBLISHED_START if scale.name == "paper" else NARROW_START
    kinds: dict[str, dict[str, Any]] = {
        "residual": {"variant": "identity"},
        "faded": {"alpha_min": 0.7},
        "none": {"variant": "none"},
        "none-initialised": {"variant": "none", "init_scheme": "skipless", "init_constants": start},
    }
    rates = LEARNING_RATE if scale.name == "tiny" else {}
    cells = [
        ({"shortcuts": kind, "optimizer": optimizer}, {**options, "optimizer": optimizer, **rates.get(optimizer, {})})
        for optimizer in ("adamw", "soap")
        for kind, options in kinds.items()
    ]
    published = {
        ("residual", "adamw"): 0.803,
        ("none", "adamw"): 0.614,
        ("none-initialised", "adamw"): 0.781,
        ("residual", "soap"): 0.801,
        ("none", "soap"): 0.770,
        ("none-initialised", "soap"): 0.808,
    }
    return Experiment(
        name="skipless",
        title=f"supervised ViTs on {inputs.data}, with and without shortcuts",
        trials=_trials(inputs, VIT_LENGTH[scale.name], cells, (), may_diverge=True),
        quantities=(ACCURACY,),
        contrast=("shortcuts",),
        published=tuple(
            Published(metric="accuracy", value=value, settings={"shortcuts": kind, "optimizer": optimizer})
            for (kind, optimizer), value in published.items()
        ),
        notes=(
            "paper: ViT-B on ImageNet-1k after 300 epochs, from notes on arXiv:2510.00345; another task and size.",
            f"initialisation of none-initialised: alpha {start[0]:g}, beta {start[1]:g}, c {start[2]:g}.",
        ),
    )


# Figure 7 and section B.2 of arXiv:2404.10947.
def fig7(inputs: Inputs, scale: Scale) -> Experiment:
    """Effective rank and accuracy of ResNets against depth and alpha_min (Figure 7, section B.2)."""
    cells = [
        ({"blocks": 6 + third_stage, "alpha_min": alpha_min}, {"third_stage": third_stage, "alpha_min": alpha_min})
        for third_stage in (2, 6, 10)
        for alpha_min in (1.0, 0.7, 0.5)
    ]
    length = {**RESNET_LENGTH[scale.name], "snapshots": 4 if scale.name == "tiny" else scale.snapshots}
    return Experiment(
        name="fig7",
        title=f"supervised ResNets on {inputs.data}: rank of the final features",
        trials=_trials(inputs, length, cells, (evaluate_command(inputs, ("rank",), snapshots=True),)),
        quantities=(ACCURACY, RANK),
        by=("step",),
        published=tuple(
            Published(metric="accuracy", value=value, settings={"blocks": 8, "alpha_min": alpha_min, "step": None})
            for alpha_min, value in ((1.0, 0.936), (0.7, 0.944))
        ),
        notes=(
            "paper: ResNet-18 on a small subset of ImageNet; it shows ranks as curves: lower with depth and alpha_min.",
            "rank: entropy in nats (Eq. 6), of the pooled map. Rows without a step are the end of training (7a); the "
            "rows with 8 blocks and a step are 7b.",
        ),
    )


def _trials(
    inputs: Inputs,
    length: Mapping[str, Any],
    cells: list[tuple[dict[str, Any], dict[str, Any]]],
    measures: tuple[Words, ...],
    may_diverge: bool = False,
) -> tuple[Trial, ...]:
    """One trial for each cell and seed; the accuracy is measured by the training itself, on --test."""
    require(inputs.test is not None, "test", inputs.test, "labelled images that are held out, such as shapes:2000@test")
    trials = []
    for seed in range(inputs.seeds):
        for shown, options in cells:
            train = command(
                "pretrain",
                inputs.data,
                out=RUN,
                **length,
                **options,
                test=inputs.test,
                labels=inputs.labels,
                test_labels=inputs.test_labels,
                classes=inputs.classes,
                seed=seed,
                device=inputs.device,
                resume=True,
            )
            settings = {**shown, "seed": seed}
            cost = float(shown.get("blocks", 1))
            trials.append(
                Trial(
                    name=trial_name(settings),
                    settings=settings,
                    commands=(train, *measures),
                    cost=cost,
                    may_diverge=may_diverge,
                )
            )
    return tuple(trials)


SUPERVISED = {"skipless": skipless, "fig7": fig7}
