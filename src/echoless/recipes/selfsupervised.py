"""Which comparisons of views have a name? Functions that return a config; the docstring says command, cost, result.

Both have ordinary shortcuts, as published: `--alpha-min 0.7` fades them, `--variant none` removes them. Branches do not
start at zero at any alpha: the class token, which the losses read, would know nothing of the image. A residual-free
encoder starts by its own rule (arXiv:2510.00345).
"""

from __future__ import annotations

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
from echoless.recipes.facts import DataFacts, Recipe, natural_size, steps_for


def _encoder(facts: DataFacts) -> ViTConfig:
    """64 x 8 with the final norm that both publications have."""
    image_size, patch = natural_size(facts)
    return ViTConfig(
        image_size=image_size,
        patch_size=patch,
        channels=facts.channels,
        width=64,
        depth=8,
        heads=2,
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
        model=MoCoConfig(encoder=_encoder(facts), hidden=256, output=64),
        objective=InfoNCEConfig(),
        data=DataConfig(crop_scale=(0.3, 1.0)),
        optim=OptimConfig(base_lr=1e-3, betas=(0.9, 0.999), weight_decay=0.1, warmup=0.1, clip=1.0),
        batch_size=128,
        steps=steps_for(10, facts.count, 128),
    )


def dino_tiny(facts: DataFacts) -> RunConfig:
    """DINO (arXiv:2104.14294) for two CPU cores: encoder 64 x 8, patch 4 at 32 x 32, two large views and four small.

    echoless pretrain shapes --out RUN --recipe dino-tiny
    Unlike the publication: weight decay stays at its first value, gradients are clipped as a whole.
    """
    return RunConfig(
        recipe="dino-tiny",
        model=DINOConfig(encoder=_encoder(facts), hidden=256, bottleneck=64, prototypes=1024),
        objective=DistillationConfig(local_views=4, local_scale=(0.1, 0.4), freeze_prototypes=0.1),
        data=DataConfig(crop_scale=(0.4, 1.0)),
        optim=OptimConfig(base_lr=1e-3, betas=(0.9, 0.999), weight_decay=0.04, warmup=0.1, clip=3.0),
        batch_size=128,
        steps=steps_for(10, facts.count, 128),
    )


SELF_SUPERVISED: dict[str, Recipe] = {"infonce-tiny": infonce_tiny, "dino-tiny": dino_tiny}
