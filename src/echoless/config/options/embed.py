"""Which arguments does `embed` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from echoless.config.options.fields import AnyPath


@dataclass(frozen=True)
class EmbedOptions:
    """Write one feature vector per image: columns path, feature and, where known, label.

    Nothing is masked. The digits are the same for any number of processes, and an embedding that was interrupted
    continues where it stopped when the same command is given again.
    """

    run: AnyPath
    """A run, an encoder folder, a transformers folder, or timm:NAME."""
    data: AnyPath
    """A folder of images, parquet, tar shards, .npz, or `shapes`."""
    _: KW_ONLY
    out: AnyPath
    """features.parquet, or features.npy (with the paths in features.paths.txt)."""

    layer: str = "last"
    """last (of a diffusion model: the one in its middle), or a name such as block07/+mlp."""
    noise: float | None = None
    """Level at which a diffusion model is shown the images, 0 (none) to 1 (default: 0.1)."""
    latent: AnyPath | None = None
    """Where the autoencoder of a run on latents is now (default: its recorded path); another one is refused."""
    pooling: Literal["mean", "cls", "patch_mean"] = "mean"
    """How the tokens of an image become one vector."""
    dtype: Literal["fp32", "fp16"] = "fp32"
    """Precision of the stored features."""
    labels: AnyPath | None = None
    """A CSV file (path,label) whose labels are stored too."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    overwrite: bool = False
    """Replace the file in --out."""
