"""Which self-supervised experiments are there? InfoNCE, where low rank should hurt, and DINO without shortcuts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from echoless.config.metrics import YIELDS
from echoless.sweeps.commands import Inputs, evaluate_command
from echoless.sweeps.experiment import Experiment, Published, Quantity
from echoless.sweeps.papers.scale import (
    KNN,
    LINEAR,
    NARROW_START,
    NORMALISED,
    RANK,
    Build,
    Cell,
    Scale,
    pretraining_trials,
)

# Large patches at the smallest scale: the cost of a step is that of its tokens. The learning rates there are the best
# of three for both alphas, by the neighbours of cross-validated training images (docs/results.md).
TRAINING: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "infonce": {
        "tiny": {
            **{"recipe": "infonce-tiny", "optimizer": "soap", "base_lr": 6e-3},
            **{"max_steps": 2000, "batch_size": 128, "patch_size": 8},
        },
        "cpu": {"recipe": "infonce-tiny", "max_steps": 8000},
        "paper": {"recipe": "infonce-small", **NORMALISED},
    },
    "dino": {
        "tiny": {
            **{"recipe": "dino-tiny", "optimizer": "soap", "base_lr": 6e-3},
            **{"max_steps": 600, "batch_size": 128, "patch_size": 8},
        },
        "cpu": {"recipe": "dino-tiny", "max_steps": 8000},
        "paper": {"recipe": "dino-small", **NORMALISED},
    },
}
PUBLISHED_START = (1.8, 1.0, 3.0)  # for a ViT-S


def infonce(inputs: Inputs, scale: Scale) -> Experiment:
    """Contrastive learning, plain and faded: the counter-example of arXiv:2404.10947, where low rank should hurt."""
    cells = [Cell({"alpha_min": alpha_min}, {"alpha_min": alpha_min}) for alpha_min in (1.0, 0.7)]
    return Experiment(
        name="infonce",
        title=f"InfoNCE of MoCo-v3 with fading shortcuts, scale {scale.name}, class tokens",
        trials=pretraining_trials(
            inputs,
            replace(scale, training=TRAINING["infonce"][scale.name]),
            cells,
            measures=[evaluate_command(inputs, ("knn", "linear", "rank"), pooling="cls")],
        ),
        quantities=(KNN, LINEAR, RANK, Quantity(metric="rankme")),
        published=(
            Published(metric="knn", value=0.666, settings={"alpha_min": 1.0}),
            Published(metric="linear", value=0.767, settings={"alpha_min": 1.0}),
        ),
        notes=(
            "paper: MoCo-v3, ViT-B, ImageNet-1k, as Table 1 quotes it; of a faded one it says, without figures, that",
            "the method does not easily extend to contrastive learning, whose repulsion raises the rank (section 6)",
        ),
    )


def dino(inputs: Inputs, scale: Scale) -> Experiment:
    """DINO with ordinary, faded and no shortcuts: the self-supervised setting of arXiv:2510.00345."""
    start = PUBLISHED_START if scale.name == "paper" else NARROW_START
    cells = [
        Cell({"shortcuts": "residual"}, {"alpha_min": 1.0}),
        Cell({"shortcuts": "faded-0.7"}, {"alpha_min": 0.7}),
        Cell({"shortcuts": "none"}, {"variant": "none", "init_scheme": "skipless", "init_constants": start}),
    ]
    mapped = inputs.masks is not None and (inputs.test is None or inputs.test_masks is not None)
    dense = ("tokencut", "segprobe") if inputs.built_in else ("segprobe",) if mapped else ()
    metrics = ("knn", "linear", "rank", *dense)
    return Experiment(
        name="dino",
        title=f"DINO with and without shortcuts, scale {scale.name}, class tokens",
        trials=pretraining_trials(
            inputs,
            replace(scale, training=TRAINING["dino"][scale.name]),
            cells,
            measures=[evaluate_command(inputs, metrics, pooling="cls")],
            may_diverge=True,
        ),
        quantities=tuple(Quantity(metric=YIELDS[name][0]) for name in metrics),
        contrast=("shortcuts",),
        published=(
            Published(metric="tokencut-corloc", value=0.494, settings={"shortcuts": "residual"}),
            Published(metric="tokencut-corloc", value=0.632, settings={"shortcuts": "none"}),
            Published(metric="segprobe-miou", value=0.563, settings={"shortcuts": "residual"}),
            Published(metric="segprobe-miou", value=0.623, settings={"shortcuts": "none"}),
        ),
        notes=(
            "paper: ViT-S by DINO on VOC: TokenCut (SOAP), single-layer probe (AdamW); from notes on the paper, not",
            "the paper itself. CorLoc needs masks of single objects, as `shapes` has; the probe takes label maps too,",
            "--masks and --test-masks.",
            f"initialisation without shortcuts: alpha {start[0]:g}, beta {start[1]:g}, c {start[2]:g}.",
        ),
    )


SELF_SUPERVISED: dict[str, Build] = {"infonce": infonce, "dino": dino}
