"""Which arguments does `import` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from echoless.config.options.fields import AnyPath, group


@dataclass(frozen=True)
class ImportOptions:
    """Convert a checkpoint of another project, for --init, evaluate, embed and sample.

    Reads .pth files of facebookresearch's mae and dinov2, of the authors of arXiv:2404.10947, and of SiT, DiT and
    U-ViT; safetensors files with the same tensor names; and folders of transformers (DINOv2, DINOv3, ViT, ViTMAE, DeiT,
    BEiT, I-JEPA) and diffusers (DiT). Code in a .pth file is never run.
    """

    EXAMPLES = (
        "echoless import mae_pretrain_vit_base.pth --out MAE",
        "echoless import DiT-XL-2-256x256.pt --out DIT --objective ddpm",
    )

    file: AnyPath
    """The checkpoint: a file, or a folder of transformers or diffusers."""
    _: KW_ONLY
    out: AnyPath
    """Output folder, new or empty."""

    group("images and labels")
    mean: tuple[float, ...] | None = None
    """Normalisation mean per channel, for pixels in 0..1 (default: the folder's, else ImageNet's; diffusion: -1..1)."""
    std: tuple[float, ...] | None = None
    """Normalisation standard deviation per channel (default: as for --mean)."""

    group("network")
    alpha_min: float | None = None
    """alpha_min that a checkpoint of the authors of arXiv:2404.10947 was trained with; the file does not store it."""
    heads: int | None = None
    """Attention heads of the encoder (default: as in published ViTs of that width)."""
    decoder_heads: int | None = None
    """Attention heads of the decoder (default: 16 for width 512)."""
    image_size: tuple[int, ...] | None = None
    """Image height and width of the position embedding (default: a square)."""

    group("diffusion models")
    objective: Literal["velocity", "ddpm", "vp", "stable-diffusion"] | None = None
    """What a diffusion transformer predicts: velocity (SiT), or noise under a schedule (DiT: ddpm; U-ViT: the rest)."""
    classes: int | None = None
    """Number of classes of a diffusion transformer (default: rows of its label table, less the null label)."""
