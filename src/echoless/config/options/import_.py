"""What may be asked of `import`?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """What a foreign checkpoint does not say by itself."""

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
