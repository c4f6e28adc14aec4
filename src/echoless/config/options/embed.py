"""What may be asked of `embed`?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class EmbedOptions:
    """Settings of an embedding; the result does not depend on batch size or number of processes."""

    layer: str = "last"
    """last (of a diffusion model: the one in its middle), or a name such as block07/+mlp."""
    noise: float | None = None
    """Level at which a diffusion model is shown the images, 0 (none) to 1 (default: 0.1)."""
    latent: str | None = None
    """Where the autoencoder of a run on latents is now (default: where it was); another one is refused."""
    pooling: Literal["mean", "cls", "patch_mean"] = "mean"
    """How the tokens of an image become one vector."""
    dtype: Literal["fp32", "fp16"] = "fp32"
    """Precision of the stored features."""
    labels: str | None = None
    """A CSV file (path,label) whose labels are stored too."""
    batch_size: int = 64
    """Accepted for symmetry; features are computed in chunks of 64, so that digits never depend on it."""
    seed: int = 0
    """Accepted for symmetry; nothing here is random but the noise of diffusion models, which has a seed of its own."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    overwrite: bool = False
    """Replace the file in --out."""
