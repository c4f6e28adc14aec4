"""Which recipes train diffusion models (U-ViT, SiT)? Each docstring gives the command, the cost and the result.

Published learning rates are absolute and belong to one batch size; `_per_256` converts them to a base_lr.
"""

from __future__ import annotations

from echoless.config import (
    DataConfig,
    DiffusionConfig,
    FlowConfig,
    OptimConfig,
    RunConfig,
    ShortcutConfig,
    SiTConfig,
    UViTConfig,
    sit_preset,
    uvit_preset,
)
from echoless.config.diffusion import SIT_SIZES, UVIT_SIZES
from echoless.config.facts import DataFacts, Recipe, fitted, natural_size


def _per_256(lr: float, batch_size: int) -> float:
    return lr * 256 / batch_size


def _space(facts: DataFacts, patch: int) -> dict[str, object]:
    """Images at their own size in the published patches; large ones as every recipe takes them."""
    if not facts.small:
        size, patch = natural_size(facts)
    else:
        size = fitted((facts.height, facts.width), patch)
    return {"image_size": size, "patch_size": patch, "channels": facts.channels, "classes": facts.classes}


def _pixels(facts: DataFacts) -> DataConfig:
    """Pixels in -1 to 1 in all channels, whatever the data; random flips, no random crops."""
    half = (0.5,) * facts.channels
    return DataConfig(mean=half, std=half, crop_scale=None)


def _uvit(name: str, facts: DataFacts, alpha_min: float) -> UViTConfig:
    """zero_init is on at any alpha, so that runs that differ in alpha_min differ in nothing else."""
    space = _space(facts, UVIT_SIZES[name].patch_size)
    return uvit_preset(name, **space, zero_init=True, shortcuts=ShortcutConfig(alpha_min=alpha_min))  # type: ignore[arg-type]


def _sit(name: str, facts: DataFacts, alpha_min: float) -> SiTConfig:
    space = _space(facts, SIT_SIZES[name].patch_size)
    return sit_preset(name, **space, shortcuts=ShortcutConfig(alpha_min=alpha_min))  # type: ignore[arg-type]


def uvit_small(facts: DataFacts) -> RunConfig:
    """U-ViT-S/2 on small photographs as published (arXiv:2209.12152), with alpha_min 0.7 (Table 4 of the paper).

    echoless pretrain DATA --out RUN --recipe uvit-small --no-conditional
    Cost: 500,000 steps of 128 images on a GPU. The paper reports FID 8.99 (alpha_min 1: 14.34) and 66.9 % linear
    probing (62.5 %) on CIFAR-100; not reproduced here.
    """
    return RunConfig(
        recipe="uvit-small",
        model=_uvit("uvit-small", facts, alpha_min=0.7),
        objective=DiffusionConfig(),
        data=_pixels(facts),
        optim=OptimConfig(
            base_lr=_per_256(2e-4, 128),
            betas=(0.99, 0.999),
            weight_decay=0.03,
            weight_decay_on="all",
            warmup=2500 / 500_000,
            decay="constant",
            clip=None,
            ema=0.9999,
        ),
        batch_size=128,
        steps=500_000,
    )


def uvit_mid(facts: DataFacts) -> RunConfig:
    """U-ViT-M/2 with the settings published for latents of 256 x 256 images, and alpha_min 0.7.

    echoless pretrain DATA --out RUN --recipe uvit-mid
    Cost: 300,000 steps of 1024 latents on several GPUs. The paper reports FID 5.11 (alpha_min 1: 6.93) on
    ImageNet-100 with classes; not reproduced here.
    """
    return RunConfig(
        recipe="uvit-mid",
        model=_uvit("uvit-mid", facts, alpha_min=0.7),
        objective=DiffusionConfig(label_dropout=0.15),
        data=_pixels(facts),
        optim=OptimConfig(
            base_lr=_per_256(2e-4, 1024),
            betas=(0.99, 0.99),
            weight_decay=0.03,
            weight_decay_on="all",
            warmup=5000 / 300_000,
            decay="constant",
            clip=None,
            ema=0.9999,
        ),
        batch_size=1024,
        steps=300_000,
    )


# Appendix of arXiv:2401.08740: the settings of DiT, arXiv:2212.09748.
def _published_sit(name: str, facts: DataFacts) -> RunConfig:
    """AdamW 1e-4 without weight decay or warm-up, batch 256, 400,000 steps."""
    return RunConfig(
        recipe=name,
        model=_sit(name, facts, alpha_min=0.8),
        objective=FlowConfig(),
        data=_pixels(facts),
        optim=OptimConfig(
            base_lr=_per_256(1e-4, 256),
            betas=(0.9, 0.999),
            weight_decay=0.0,
            warmup=0.0,
            decay="constant",
            clip=None,
            ema=0.9999,
        ),
        batch_size=256,
        steps=400_000,
    )


def sit_s2(facts: DataFacts) -> RunConfig:
    """SiT-S/2 (384 x 12) as published, with long skips and alpha_min 0.8.

    echoless pretrain DATA --out RUN --recipe sit-s2
    Cost: 400,000 steps of 256 latents on GPUs. Not reproduced here.
    """
    return _published_sit("sit-s2", facts)


def sit_b2(facts: DataFacts) -> RunConfig:
    """SiT-B/2 (768 x 12) as published, with long skips and alpha_min 0.8.

    echoless pretrain DATA --out RUN --recipe sit-b2
    Cost: 400,000 steps of 256 latents on GPUs. Not reproduced here.
    """
    return _published_sit("sit-b2", facts)


def sit_l2(facts: DataFacts) -> RunConfig:
    """SiT-L/2 (1024 x 24) as published, with long skips and alpha_min 0.8.

    echoless pretrain DATA --out RUN --recipe sit-l2
    Cost: 400,000 steps of 256 latents on GPUs. Not reproduced here.
    """
    return _published_sit("sit-l2", facts)


def sit_xl2(facts: DataFacts) -> RunConfig:
    """SiT-XL/2 (1152 x 28) as published, with long skips and alpha_min 0.8.

    echoless pretrain DATA --out RUN --recipe sit-xl2
    Cost: 400,000 steps of 256 latents on GPUs. Not reproduced here.
    """
    return _published_sit("sit-xl2", facts)


def _cpu_optim(lr: float, batch_size: int) -> OptimConfig:
    """For fewer than a thousand steps: SOAP, a learning rate that falls to zero, and a short EMA.

    The loss with SOAP is lower than with AdamW at every step: "Which optimiser" in docs/results.md.
    """
    return OptimConfig(
        name="soap",
        base_lr=_per_256(lr, batch_size),
        betas=(0.9, 0.99),
        weight_decay=0.03,
        decay="cosine",
        clip=1.0,
        ema=0.99,
    )


def uvit_tiny(facts: DataFacts) -> RunConfig:
    """A U-ViT for two CPU cores: 128 x 9, patch 4 at 32 x 32, noise prediction.

    echoless pretrain shapes --out RUN --recipe uvit-tiny
    Cost: 102,400 images; 31 minutes on one core, 26 on two (66 images/s). Observed: loss 0.050; samples of 20 steps
    are patches of the right colours.
    """
    return RunConfig(
        recipe="uvit-tiny",
        model=_uvit("uvit-tiny", facts, alpha_min=0.7),
        objective=DiffusionConfig(),
        data=_pixels(facts),
        optim=_cpu_optim(3e-3, 128),
        batch_size=128,
        steps=800,
    )


def sit_tiny(facts: DataFacts) -> RunConfig:
    """A SiT for two CPU cores: 128 x 8, patch 4 at 32 x 32, velocities.

    echoless pretrain shapes --out RUN --recipe sit-tiny
    Cost: 102,400 images; 31 minutes on one core, 26 on two (66 images/s). Observed: loss 0.21; samples of 20 steps
    are objects on a shaded ground, their outlines not yet those of the ten classes.
    """
    return RunConfig(
        recipe="sit-tiny",
        model=_sit("sit-tiny", facts, alpha_min=0.7),
        objective=FlowConfig(),
        data=_pixels(facts),
        optim=_cpu_optim(3e-3, 128),
        batch_size=128,
        steps=800,
    )


DIFFUSION: dict[str, Recipe] = {
    "uvit-tiny": uvit_tiny,
    "uvit-small": uvit_small,
    "uvit-mid": uvit_mid,
    "sit-tiny": sit_tiny,
    "sit-s2": sit_s2,
    "sit-b2": sit_b2,
    "sit-l2": sit_l2,
    "sit-xl2": sit_xl2,
}
