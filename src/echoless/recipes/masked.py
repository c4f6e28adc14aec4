"""Which recipes train masked autoencoders? Each docstring gives the command, the cost and the result."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

from echoless.config import DataConfig, MaskedConfig, OptimConfig, RunConfig, mae_preset
from echoless.config.facts import DataFacts, Recipe, natural_size, steps_for
from echoless.config.presets import SIZES


def _paper(name: str, size: str, facts: DataFacts, alpha_min: float | Literal["auto"]) -> RunConfig:
    """Appendix A.1 of arXiv:2404.10947: 800 epochs, 40 of them warm-up, batch 1024, peak learning rate 6e-4."""
    image_size, patch = natural_size(replace(facts, accelerated=True))
    if not facts.small:
        patch = SIZES[size].patch_size
    return RunConfig(
        recipe=name,
        model=mae_preset(
            size,
            image_size=image_size,
            patch_size=patch,
            channels=facts.channels,
            alpha_min=alpha_min,
            taps="authors",
        ),
        objective=MaskedConfig(mask_ratio=0.75, normalize_pixels=True),
        data=DataConfig(cache_side="original"),  # crops are cut from the file's own pixels (He et al. 2022)
        optim=OptimConfig(
            base_lr=1.5e-4,
            betas=(0.9, 0.95),
            weight_decay=0.05,
            weight_decay_on="authors",
            warmup=40 / 800,
            clip=None,
        ),
        batch_size=1024,
        steps=steps_for(800, facts.count, 1024),
    )


def mae_tiny(facts: DataFacts) -> RunConfig:
    """The paper's settings with a 192 x 12 encoder and a 128 x 6 decoder.

    echoless pretrain DATA --out RUN --recipe mae-tiny
    Cost: 800 epochs; about 200 images/s on two CPU cores at 32 x 32 in patches of 4.
    """
    return _paper("mae-tiny", "tiny", facts, alpha_min=0.6)


def mae_small(facts: DataFacts) -> RunConfig:
    """The paper's settings with a 384 x 12 encoder (Table 2, first row).

    echoless pretrain DATA --out RUN --recipe mae-small
    Cost: 800 epochs on a GPU. The paper reports 78.5 % linear probing on ImageNet-100; not reproduced here.
    """
    return _paper("mae-small", "small", facts, alpha_min=0.6)


def mae_base(facts: DataFacts) -> RunConfig:
    """The paper's ImageNet settings: ViT-B/16, alpha_min 0.6.

    torchrun --nproc-per-node 4 -m echoless pretrain DATA --out RUN --recipe mae-base
    Cost: 800 epochs, 200 hours on four A40 GPUs by the paper's account. The paper reports 72.7 % linear probing and
    63.9 % kNN on ImageNet-1k; not reproduced here.
    """
    return _paper("mae-base", "base", facts, alpha_min=0.6)


def mae_large(facts: DataFacts) -> RunConfig:
    """The paper's settings with a 1024 x 24 encoder; deeper, so alpha_min is 0.7 (Table 2, last row).

    torchrun --nproc-per-node 8 -m echoless pretrain DATA --out RUN --recipe mae-large
    Cost: 800 epochs on several GPUs. The paper reports 86.0 % linear probing on ImageNet-100; not reproduced here.
    """
    return _paper("mae-large", "large", facts, alpha_min=0.7)


def mae_huge(facts: DataFacts) -> RunConfig:
    """The paper's settings with the ViT-H/14 of He et al. 2022, an encoder of 1280 x 32 that the paper does not have.

    torchrun --nproc-per-node 8 -m echoless pretrain DATA --out RUN --recipe mae-huge
    Cost: 800 epochs on several GPUs. alpha_min is chosen from the depth, so that the effective alpha is in the paper's
    best range.
    """
    return _paper("mae-huge", "huge", facts, alpha_min="auto")


def _soap(lr: float, batch: int = 128) -> OptimConfig:
    """lr: at this batch size. SOAP needs far fewer steps than AdamW here: docs/results.md, "Which optimiser"."""
    return OptimConfig(name="soap", base_lr=lr * 256 / batch, clip=1.0)


class CpuSize(NamedTuple):
    """Encoder and decoder of a size that trains on a few cores; heads are 32 wide."""

    width: int
    depth: int
    decoder_width: int
    decoder_depth: int


FEMTO = CpuSize(64, 6, 32, 2)
PICO = CpuSize(96, 12, 64, 4)
NANO = CpuSize(128, 12, 96, 4)
MICRO = CpuSize(192, 12, 128, 6)


def _cpu(
    name: str,
    facts: DataFacts,
    size: CpuSize,
    *,
    steps: int,
    optim: OptimConfig,
    batch: int = 128,
    alpha_min: float | Literal["auto"] = 0.6,
) -> RunConfig:
    image_size, patch = natural_size(facts)
    model = mae_preset("tiny", image_size=image_size, patch_size=patch, channels=facts.channels, alpha_min=alpha_min)
    return RunConfig(
        recipe=name,
        model=replace(
            model,
            encoder=replace(model.encoder, width=size.width, depth=size.depth, heads=size.width // 32),
            decoder_width=size.decoder_width,
            decoder_depth=size.decoder_depth,
            decoder_heads=size.decoder_width // 32,
        ),
        optim=optim,
        batch_size=batch,
        steps=steps,
    )


def cifar10(facts: DataFacts) -> RunConfig:
    """Small photographs on two CPU cores: encoder 128 x 12, decoder 96 x 4, patch 4 at 32 x 32.

    echoless pretrain cifar10/train.parquet --out RUN --recipe cifar10
    """
    return _cpu("cifar10", facts, NANO, steps=steps_for(12, facts.count, 128), optim=_soap(3e-3))


def shapes(facts: DataFacts) -> RunConfig:
    """The built-in set on two CPU cores, in minutes.

    echoless pretrain shapes --out RUN --recipe shapes
    """
    return _cpu("shapes", facts, PICO, steps=steps_for(10, facts.count, 128), optim=_soap(3e-3))


def demo(facts: DataFacts) -> RunConfig:
    """What `echoless demo` trains: encoder 64 x 6, decoder 32 x 2, patch 4 at 32 x 32, 3200 steps of 64 images.

    echoless demo
    With six blocks, alpha_min 0.4 has the effective alpha that the paper finds best at any depth. Batch size and
    learning rate are those at which alpha 1 learns most: docs/results.md, "The settings of the demo".
    """
    config = _cpu("demo", facts, FEMTO, steps=3200, optim=_soap(6e-3, batch=64), batch=64, alpha_min=0.4)
    return replace(config, data=DataConfig(crop_scale=(0.6, 1.0)))  # shapes are not cut apart


def _timed(name: str, facts: DataFacts, size: CpuSize, lr: float) -> RunConfig:
    """A size that `auto` may choose on a CPU; `lr` for SOAP. A small set gets smaller batches, and AdamW: the bases of
    SOAP cost as much for a small batch as for a large one. Its rate does not fall with the batch: at a few images, that
    would be too small to learn anything (docs/results.md, "Few images").
    """
    batch = 128 if facts.count >= 1024 else max(32, min(128, facts.count // 8))
    optim = _soap(lr) if batch == 128 else OptimConfig(base_lr=lr / 3 * 256 / batch, clip=1.0)
    steps = min(50_000, steps_for(100, facts.count, batch))
    return _cpu(name, facts, size, steps=steps, optim=optim, batch=batch, alpha_min="auto")


def mae_femto(facts: DataFacts) -> RunConfig:
    """Encoder 64 x 6, decoder 32 x 2: the smallest that auto chooses on a CPU.

    echoless pretrain DATA --out RUN --recipe mae-femto
    Cost: 100 epochs, or as long as --time says.
    """
    return _timed("mae-femto", facts, FEMTO, lr=6e-3)


def mae_pico(facts: DataFacts) -> RunConfig:
    """Encoder 96 x 12, decoder 64 x 4: chosen by auto for longer budgets.

    echoless pretrain DATA --out RUN --recipe mae-pico
    Cost: 100 epochs, or as long as --time says.
    """
    return _timed("mae-pico", facts, PICO, lr=3e-3)


def mae_nano(facts: DataFacts) -> RunConfig:
    """Encoder 128 x 12, decoder 96 x 4: chosen by auto for longer budgets.

    echoless pretrain DATA --out RUN --recipe mae-nano
    Cost: 100 epochs, or as long as --time says.
    """
    return _timed("mae-nano", facts, NANO, lr=3e-3)


def mae_micro(facts: DataFacts) -> RunConfig:
    """Encoder 192 x 12, decoder 128 x 6: the largest that auto chooses on a CPU.

    echoless pretrain DATA --out RUN --recipe mae-micro
    Cost: 100 epochs, or as long as --time says.
    """
    return _timed("mae-micro", facts, MICRO, lr=1e-3)


def auto(facts: DataFacts) -> RunConfig:
    """The paper's method with size, patch and length chosen from the data, the machine and the time.

    echoless pretrain DATA --out RUN --time 3h
    Without a GPU, measures a few steps and chooses mae-femto to mae-micro, the patch and the number of steps for the
    time given, one hour by default. With --epochs or --max-steps nothing is measured, and mae-micro is trained.
    With a GPU, 800 epochs of mae-small for sets under 200,000 images and of mae-base above; --time changes the length.
    """
    if facts.accelerated:
        base = mae_base(facts) if facts.count >= 200_000 else mae_small(facts)
        return replace(base, recipe="auto")
    return replace(mae_micro(facts), recipe="auto")


MASKED: dict[str, Recipe] = {
    "auto": auto,
    "mae-femto": mae_femto,
    "mae-pico": mae_pico,
    "mae-nano": mae_nano,
    "mae-micro": mae_micro,
    "mae-tiny": mae_tiny,
    "mae-small": mae_small,
    "mae-base": mae_base,
    "mae-large": mae_large,
    "mae-huge": mae_huge,
    "cifar10": cifar10,
    "shapes": shapes,
    "demo": demo,
}
