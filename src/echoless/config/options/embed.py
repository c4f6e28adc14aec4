"""Which arguments does `embed` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from echoless.config.checks import require, require_whole
from echoless.config.options.fields import AnyPath, group
from echoless.config.sizes import parse_bytes


@dataclass(frozen=True)
class EmbedOptions:
    """Write one feature vector per image: columns path, feature and, if known, label.

    Images are not masked. Several processes (torchrun) share the images, and the vectors are bitwise the same for any
    number of them. If it is interrupted, repeat the command to continue. `search` finds neighbours, duplicates and
    outliers in what it writes.
    """

    EXAMPLES = (
        "echoless embed RUN PHOTOS --out features.parquet",
        "echoless embed RUN PHOTOS --out features.npy --layer block05/+mlp --pooling cls",
        "echoless embed RUN PHOTOS --out patches.parquet --tokens --dtype fp16",
    )

    run: AnyPath
    """A run, an encoder folder, a transformers folder, or timm:NAME."""
    data: AnyPath
    """A folder of images, parquet, tar shards, .npz, or `shapes`; parquet and tar also at an address."""
    _: KW_ONLY
    out: AnyPath
    """Output: features.parquet, features.csv, or features.npy (with the paths in features.paths.txt). More than
    --part-size of features make features.parquet a folder of files; a name without an ending is always a folder."""
    layer: str = "last"
    """Layer to read: last (the final norm, where there is one; for a diffusion model, the middle block), or a name such
    as block07/+mlp or norm. Several, separated by commas, become one column each."""
    tokens: bool = False
    """Write the features of every patch instead: the column tokens holds rows of columns of vectors. The whole image is
    used, as for segmentation; block07/key is a layer, too. --dtype fp16 halves the size."""
    pooling: Literal["mean", "cls", "patch_mean"] | None = None
    """Pooling into one vector: mean over all tokens, class token, or mean over patch tokens (default: class token for
    MoCo v3 and DINO, mean for the others)."""
    dtype: Literal["fp32", "fp16"] = "fp32"
    """Precision of the stored features."""
    map: Literal["pca", "tsne"] | None = None
    """Add the columns x and y, the place of each image on a 2-d map: principal components, or t-SNE for up to 20,000
    images."""
    part_size: str = "1G"
    """Features in one parquet file at most, such as 200M; more make --out a folder of files."""
    overwrite: bool = False
    """Replace what is in --out."""

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
    workers: int = 2
    """Number of threads that prepare images, in each process."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, xpu or mps."""

    def __post_init__(self) -> None:
        require_whole("workers", self.workers, 0)
        require(parse_bytes("part_size", self.part_size) >= 1, "part_size", self.part_size, "1 byte or more")
