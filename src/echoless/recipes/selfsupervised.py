"""Which recipes compare views (MoCo v3, DINO)? Each docstring gives the command, the cost and the result.

Both have standard shortcuts, as published: `--alpha-min 0.7` fades them, `--variant none` removes them. Branches are
not zero-initialised at any alpha: the class token, which the losses read, would not depend on the image. An encoder
without shortcuts needs `--init-scheme skipless` to learn (arXiv:2510.00345; its constants for DINO: `--init-constants
1.8 1 3`). The tiny recipes have a lower momentum and a higher learning rate than published, because they run for few
steps.
"""

from __future__ import annotations

from dataclasses import replace

from echoless.config import (
    DataConfig,
    DINOConfig,
    DistillationConfig,
    InfoNCEConfig,
    MoCoConfig,
    OptimConfig,
    RunConfig,
    ShortcutConfig,
    ViTConfig,
)
from echoless.config.facts import DataFacts, Recipe, natural_size, steps_for


def _encoder(facts: DataFacts, width: int, depth: int, heads: int) -> ViTConfig:
    """With the final norm that both publications have."""
    image_size, patch = natural_size(facts)
    return ViTConfig(
        image_size=image_size,
        patch_size=patch,
        channels=facts.channels,
        width=width,
        depth=depth,
        heads=heads,
        final_norm=True,
        zero_init=False,
        shortcuts=ShortcutConfig(alpha_min=1.0),
    )


def infonce_tiny(facts: DataFacts) -> RunConfig:
    """MoCo-v3 (arXiv:2104.02057) for two CPU cores: encoder 64 x 8, patch 4 at 32 x 32, two views.

    echoless pretrain shapes --out RUN --recipe infonce-tiny
    """
    return RunConfig(
        recipe="infonce-tiny",
        model=MoCoConfig(encoder=_encoder(facts, 64, 8, 2), hidden=256, output=64),
        objective=InfoNCEConfig(momentum=0.95),
        data=DataConfig(crop_scale=(0.3, 1.0)),
        optim=OptimConfig(base_lr=2e-3, betas=(0.9, 0.999), weight_decay=0.1, warmup=0.1, clip=1.0),
        batch_size=128,
        steps=steps_for(10, facts.count, 128),
    )


def dino_tiny(facts: DataFacts) -> RunConfig:
    """DINO (arXiv:2104.14294) for two CPU cores: encoder 64 x 8, patch 4 at 32 x 32, two large views and four small.

    echoless pretrain shapes --out RUN --recipe dino-tiny
    Unlike the publication: weight decay is constant, no drop path, gradients are clipped by their global norm.
    """
    return RunConfig(
        recipe="dino-tiny",
        model=DINOConfig(encoder=_encoder(facts, 64, 8, 2), hidden=256, bottleneck=64, prototypes=1024),
        objective=DistillationConfig(momentum=0.98, local_views=4, local_scale=(0.1, 0.4), freeze_prototypes=0.1),
        data=DataConfig(crop_scale=(0.4, 1.0)),
        optim=OptimConfig(base_lr=2e-3, betas=(0.9, 0.999), weight_decay=0.04, warmup=0.1, clip=3.0),
        batch_size=128,
        steps=steps_for(10, facts.count, 128),
    )


def infonce_small(facts: DataFacts) -> RunConfig:
    """MoCo-v3 as published for ViT-S/16 (arXiv:2104.02057): batch 4096, 300 epochs; the patch embedding is trained.

    torchrun --nproc-per-node 8 -m echoless pretrain DATA --out RUN --recipe infonce-small
    Cost: 300 epochs on several GPUs. Not reproduced here.
    """
    return RunConfig(
        recipe="infonce-small",
        model=MoCoConfig(encoder=_encoder(replace(facts, accelerated=True), 384, 12, 12)),
        objective=InfoNCEConfig(),
        data=DataConfig(crop_scale=(0.08, 1.0), cache_side="original"),
        optim=OptimConfig(
            base_lr=1.5e-4,
            betas=(0.9, 0.999),
            weight_decay=0.1,
            weight_decay_on="all",  # as in the authors' code
            warmup=40 / 300,
            clip=None,
        ),
        batch_size=4096,
        steps=steps_for(300, facts.count, 4096),
    )


def dino_small(facts: DataFacts) -> RunConfig:
    """DINO as published for ViT-S/16 (arXiv:2104.14294): batch 1024, 300 epochs, two large views and eight small.

    torchrun --nproc-per-node 8 -m echoless pretrain DATA --out RUN --recipe dino-small
    Cost: 300 epochs on several GPUs. Not reproduced here. Weight decay rises from 0.04 to 0.4 by a cosine, the student
    has drop path 0.1 (0 with --variant none), and gradients are clipped for every parameter, as published.
    """
    return RunConfig(
        recipe="dino-small",
        model=DINOConfig(encoder=_encoder(replace(facts, accelerated=True), 384, 12, 6)),
        objective=DistillationConfig(teacher_temperature=(0.04, 0.07), freeze_prototypes=1 / 300, drop_path=0.1),
        data=DataConfig(crop_scale=(0.4, 1.0), cache_side="original"),
        optim=OptimConfig(
            base_lr=5e-4,
            betas=(0.9, 0.999),
            weight_decay=0.04,
            weight_decay_end=0.4,
            weight_decay_on="authors",
            warmup=10 / 300,
            min_lr=1e-6,
            clip=3.0,
            clip_by="parameter",
        ),
        batch_size=1024,
        steps=steps_for(300, facts.count, 1024),
    )


SELF_SUPERVISED: dict[str, Recipe] = {
    "infonce-tiny": infonce_tiny,
    "infonce-small": infonce_small,
    "dino-tiny": dino_tiny,
    "dino-small": dino_small,
}
