"""Which arguments does `import` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from echoless.config.options.fields import AnyPath


@dataclass(frozen=True)
class ImportOptions:
    """Convert a checkpoint of another project, for --init, evaluate, embed and sample.

    .pth files of facebookresearch/mae, of the paper's authors, of SiT, DiT and U-ViT, safetensors with the same names,
    and folders of transformers' ViTMAE and ViT and diffusers' DiT. A .pth may hold code: none of it can run.
    """

    file: AnyPath
    """The checkpoint: a file, or a folder of transformers or diffusers."""
    _: KW_ONLY
    out: AnyPath
    """A new or empty folder."""

    alpha_min: float | None = None
    """Weight of the last identity shortcut in a checkpoint of the paper's authors, which does not carry it."""
    heads: int | None = None
    """Attention heads of the encoder (default: what published ViTs of that width have)."""
    decoder_heads: int | None = None
    """Attention heads of the decoder (default: 16 for width 512)."""
    image_size: tuple[int, ...] | None = None
    """Height and width the positions were made for (default: a square)."""
    objective: Literal["velocity", "ddpm", "vp", "stable-diffusion"] | None = None
    """What a diffusion transformer predicts: velocity (SiT), or noise under a schedule (DiT: ddpm; U-ViT: the rest)."""
    classes: int | None = None
    """Classes of a diffusion transformer (default: one less than its rows of labels; the last is for no label)."""
    mean: tuple[float, ...] | None = None
    """Mean of each channel, for pixels in 0..1 (default: the folder's own, else ImageNet's; diffusion: -1..1)."""
    std: tuple[float, ...] | None = None
    """Standard deviation of each channel (default: likewise)."""
