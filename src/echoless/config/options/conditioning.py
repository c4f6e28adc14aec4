"""Which arguments does `conditioning` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from echoless.config.checks import require_number, require_whole
from echoless.config.options.fields import AnyPath, group


@dataclass(frozen=True)
class ConditioningOptions:
    """Measure the condition number of every block's Jacobian in a randomly initialised ViT.

    Compares three models: with shortcuts, without, and without but with the skipless initialisation
    (arXiv:2510.00345). Prints a table and writes conditioning.json and conditioning.png.
    """

    EXAMPLES = (
        "echoless conditioning --out DIR",
        "echoless conditioning PHOTOS --out DIR --depth 24 --width 384 --heads 6",
    )

    data: AnyPath = "shapes:64"
    """Images to measure on."""
    _: KW_ONLY
    out: AnyPath
    """Output folder for the table and the figure."""

    group("measurements")
    images: int = 2
    """Images to average over."""
    exact_up_to: int = 2048
    """Compute all singular values up to this size (tokens x width); above it, Lanczos gives a lower bound."""
    steps: int = 64
    """Number of Lanczos steps."""

    group("network")
    width: int = 192
    """Width (embedding dimension)."""
    depth: int = 12
    """Number of blocks."""
    heads: int = 3
    """Number of attention heads."""
    image_size: int = 16
    """Image height and width in pixels."""
    patch_size: int = 8
    """Patch height and width in pixels."""
    alpha: float = 2.0
    """Scale of the random part of W_Q W_K^T."""
    beta: float = 0.6
    """Scale of the identity in W_Q W_K^T."""
    c: float = 3.0
    """Gain of W_V and of W_O."""

    group("rarely needed")
    seed: int = 0
    """Random seed of the weights."""

    def __post_init__(self) -> None:
        for name in ("images", "exact_up_to", "steps"):
            require_whole(name, getattr(self, name), 1)
        require_number("alpha", self.alpha, 0, 1e6)
        require_number("beta", self.beta, -1e6, 1e6)
        require_number("c", self.c, 0, 1e6, ends="(]")
