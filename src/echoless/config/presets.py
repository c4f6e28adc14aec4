"""Which masked autoencoders have named sizes?

`mae_preset("base")`, `mae_preset("tiny-32", channels=1, alpha_min=0.7)`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from echoless.config.checks import require, require_one_of
from echoless.config.model import Decoder, Fade, MAEConfig, Per, Schedule, ShortcutConfig, Taps, Variant, ViTConfig


class ViTSize(NamedTuple):
    width: int
    depth: int
    heads: int
    patch_size: int = 16
    decoder_width: int = 512
    decoder_depth: int = 8
    decoder_heads: int = 16


SIZES = {
    "tiny": ViTSize(192, 12, 3, decoder_width=128, decoder_depth=6, decoder_heads=4),
    "small": ViTSize(384, 12, 6),
    "base": ViTSize(768, 12, 12),
    "base-deep": ViTSize(768, 18, 12),
    "large-shallow": ViTSize(1024, 12, 16),
    "large": ViTSize(1024, 24, 16),
    "huge": ViTSize(1280, 32, 16, patch_size=14),
}

# Side of a small image -> the patch that cuts it into 6 to 12 rows, as 16 does with 224 (14 rows).
SMALL_IMAGES = {16: 2, 24: 4, 28: 4, 32: 4, 48: 6, 64: 8, 96: 8, 128: 16}

PRESETS = (*SIZES, *(f"{size}-{side}" for size in ("tiny", "small", "base") for side in SMALL_IMAGES))


def mae_preset(
    name: str,
    *,
    image_size: tuple[int, int] | None = None,
    patch_size: int | None = None,
    channels: int = 3,
    decoder: Decoder = "long_skips",
    taps: Taps = "spread",
    zero_init: bool | None = None,
    norm_eps: float = 1e-6,
    variant: Variant = "faded",
    alpha_min: float | Literal["auto"] = "auto",
    schedule: Schedule = "linear",
    per: Per = "sublayer",
    fade: Fade = "both",
) -> MAEConfig:
    """A named size, 224 x 224 unless the name ends in a side ("tiny-32": 32 x 32 in patches of 4).

    Residual zero-initialisation is on with the long-skip decoder at any alpha, so that comparisons hold it equal.
    """
    size, default_image, default_patch = _named(name)
    require(patch_size is None or patch_size >= 1, "patch_size", patch_size, "a whole number, 1 or more")
    encoder = ViTConfig(
        image_size=image_size or (default_image, default_image),
        patch_size=patch_size or default_patch,
        channels=channels,
        width=size.width,
        depth=size.depth,
        heads=size.heads,
        norm_eps=norm_eps,
        final_norm=decoder == "plain",
        zero_init=decoder == "long_skips" if zero_init is None else zero_init,
        shortcuts=ShortcutConfig(variant=variant, alpha_min=alpha_min, schedule=schedule, per=per, fade=fade),
    )
    return MAEConfig(
        encoder=encoder,
        decoder=decoder,
        taps=taps,
        decoder_width=size.decoder_width,
        decoder_depth=size.decoder_depth,
        decoder_heads=size.decoder_heads,
    )


def _named(name: str) -> tuple[ViTSize, int, int]:
    """Size name, image size and patch size of a preset."""
    require_one_of("preset", name, PRESETS)
    stem, _, side = name.rpartition("-")
    if side.isdigit():
        return SIZES[stem], int(side), SMALL_IMAGES[int(side)]
    return SIZES[name], 224, SIZES[name].patch_size
