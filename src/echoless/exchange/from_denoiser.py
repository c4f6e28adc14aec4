"""What do the published diffusion transformers have in common, when their files come in? Sizes and labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from echoless.config import DiffusionConfig, FlowConfig, ShortcutConfig, SiTConfig, UViTConfig
from echoless.config.options import ImportOptions
from echoless.errors import ConfigError, UntrustedFile
from echoless.exchange.foreign import HEADS, image_size, mlp_ratio

# As every published one of that width has them; U-ViT's small model differs from ViTs of width 512.
DENOISER_HEADS = HEADS | {512: 8}


@dataclass(frozen=True, kw_only=True)
class ImportedDenoiser:
    """A network, and what it was trained to predict."""

    model: UViTConfig | SiTConfig
    state: dict[str, Tensor]
    objective: DiffusionConfig | FlowConfig
    dropped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what was assumed


def denoiser_sizes(
    patch_weight_DCpp: Tensor, positions: int, hidden: int, options: ImportOptions, heads: int | None = None
) -> dict[str, Any]:
    """Fields of a config, from the shapes of the weights."""
    if options.alpha_min not in (None, 1.0):
        raise ConfigError(
            f"alpha_min is {options.alpha_min}, but published diffusion transformers are plain; allowed here: 1"
        )
    if patch_weight_DCpp.ndim != 4 or patch_weight_DCpp.shape[2] != patch_weight_DCpp.shape[3]:
        shape = tuple(patch_weight_DCpp.shape)
        raise UntrustedFile(f"the patch convolution has the shape {shape}; allowed: (width, channels, patch, patch)")
    width, channels, patch, _ = patch_weight_DCpp.shape
    heads = options.heads or heads or DENOISER_HEADS.get(width)
    if heads is None:
        raise ConfigError(f"the file does not say how many heads its network of width {width} has; give --heads")
    return {
        "image_size": image_size(positions, patch, options),
        "patch_size": patch,
        "channels": channels,
        "width": width,
        "heads": heads,
        "mlp_ratio": mlp_ratio(width, hidden),
        "shortcuts": ShortcutConfig(variant="identity", alpha_min=1.0),
    }


def label_rows(table_RD: Tensor, options: ImportOptions) -> tuple[int, Tensor, tuple[str, ...]]:
    """The number of classes, a table whose last row is the null label, and what was assumed about it."""
    rows = len(table_RD)
    classes = rows - 1 if options.classes is None else options.classes
    if classes == rows - 1:
        return (
            classes,
            table_RD,
            (f"row {rows} of the label table is the null label (--classes {rows} if it is not)",),
        )
    if classes != rows:
        raise ConfigError(f"classes is {classes} and the file has {rows} rows of labels; allowed: {rows - 1}, {rows}")
    nobody = table_RD.float().mean(dim=0, keepdim=True).to(table_RD.dtype)
    return classes, torch.cat([table_RD, nobody]), ("no null-label row: the mean label embedding is used instead",)
