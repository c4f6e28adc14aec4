"""With which settings is an encoder fine-tuned? Those of He et al. 2022 (arXiv:2111.06377, Table 9), by its depth.

They are the defaults of `finetune`, so a recipe has no name to type: the encoder decides it.
"""

from __future__ import annotations

from typing import NamedTuple

from echoless.config import OptimConfig, RunConfig
from echoless.config.facts import steps_for
from echoless.config.supervised import ClassifierConfig, SupervisedConfig

BATCH_SIZE, WARMUP_EPOCHS = 1024, 5


class Finetuning(NamedTuple):
    """What differs between the sizes."""

    depth: int  # of the smallest encoder that it is for
    epochs: int
    base_lr: float
    layer_decay: float
    drop_path: float


SIZES = (
    Finetuning(depth=32, epochs=50, base_lr=1e-3, layer_decay=0.75, drop_path=0.3),  # ViT-H
    Finetuning(depth=24, epochs=50, base_lr=1e-3, layer_decay=0.75, drop_path=0.2),  # ViT-L
    Finetuning(depth=1, epochs=100, base_lr=5e-4, layer_decay=0.65, drop_path=0.1),  # ViT-B
)


def finetuning(depth: int, count: int, *, rand_augment: bool) -> RunConfig:
    """For an encoder of this depth and this many images; rand_augment: whether their pixels allow it."""
    size = next(size for size in SIZES if depth >= size.depth)
    batch_size = min(BATCH_SIZE, max(8, count // 8))
    return RunConfig(
        recipe="finetune",
        model=ClassifierConfig(),
        objective=SupervisedConfig(drop_path=size.drop_path, rand_augment=9.0 if rand_augment else None),
        optim=OptimConfig(
            base_lr=size.base_lr,
            betas=(0.9, 0.999),
            weight_decay=0.05,
            warmup=WARMUP_EPOCHS / size.epochs,
            min_lr=1e-6,
            layer_decay=size.layer_decay,
            clip=None,
        ),
        batch_size=batch_size,
        steps=steps_for(size.epochs, count, batch_size),
    )
