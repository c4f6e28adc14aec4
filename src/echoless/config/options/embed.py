"""Which arguments does `embed` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from echoless.config.options.fields import AnyPath, group


@dataclass(frozen=True)
class EmbedOptions:
    """Write one feature vector per image: columns path, feature and, if known, label.

    Images are not masked. The vectors are bitwise the same for any number of processes. If it is interrupted, repeat
    the command to continue.
    """

    EXAMPLES = (
        "echoless embed RUN PHOTOS --out features.parquet",
        "echoless embed RUN PHOTOS --out features.npy --layer block05/+mlp --pooling cls",
    )

    run: AnyPath
    """A run, an encoder folder, a transformers folder, or timm:NAME."""
    data: AnyPath
    """A folder of images, parquet, tar shards, .npz, or `shapes`; parquet and tar also at an address."""
    _: KW_ONLY
    out: AnyPath
    """Output file: features.parquet, features.csv, or features.npy (with the paths in features.paths.txt)."""
    layer: str = "last"
    """Layer to read: last (the final norm, where there is one; for a diffusion model, the middle block), or a name such
    as block07/+mlp or norm."""
    pooling: Literal["mean", "cls", "patch_mean"] | None = None
    """Pooling into one vector: mean over all tokens, class token, or mean over patch tokens (default: class token for
    MoCo v3 and DINO, mean for the others)."""
    dtype: Literal["fp32", "fp16"] = "fp32"
    """Precision of the stored features."""
    overwrite: bool = False
    """Replace the file in --out."""

    group("images and labels")
    tiles: int | None = None
    """Cut every image file into square tiles of this side; adds columns x and y (default: as the run was trained;
    0: whole images)."""
    labels: AnyPath | None = None
    """Labels to store: a CSV or parquet file (path,label), or `none`."""
    paths: Literal["relative", "absolute"] = "relative"
    """How images are named: relative to DATA, or by absolute path."""

    group("diffusion models")
    noise: float | None = None
    """Noise level of the images given to a diffusion model, 0 (none) to 1 (pure noise; default: 0.1)."""
    latent: AnyPath | None = None
    """Folder of the autoencoder used in training, for a latent-space run (default: the recorded path)."""

    group("machine")
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, xpu or mps."""
