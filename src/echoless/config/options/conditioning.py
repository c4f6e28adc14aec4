"""Which arguments does `conditioning` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from echoless.config.checks import require_number, require_whole
from echoless.config.options.fields import AnyPath


@dataclass(frozen=True)
class ConditioningOptions:
    """Measure the condition number of every block's Jacobian in a fresh ViT.

    Three models: with shortcuts, without, and without but initialised for it. Prints the table, and writes
    conditioning.json and conditioning.png.
    """

    data: AnyPath = "shapes:64"
    """Images to measure on."""
    _: KW_ONLY
    out: AnyPath
    """The folder for the table and the figure."""

    width: int = 192
    """Channels."""
    depth: int = 12
    """Blocks."""
    heads: int = 3
    """Heads of attention."""
    image_size: int = 16
    """Side of the images in pixels."""
    patch_size: int = 8
    """Side of a patch in pixels."""
    alpha: float = 2.0
    """Size of the random part of W_Q W_K^T."""
    beta: float = 0.6
    """Size of the identity in W_Q W_K^T."""
    c: float = 3.0
    """Gain of W_V and of W_O."""
    images: int = 2
    """Images to average over."""
    exact_up_to: int = 2048
    """Largest Jacobian (tokens x width) whose singular values are all computed; beyond it Lanczos gives a bound."""
    steps: int = 64
    """Steps of Lanczos."""
    seed: int = 0
    """Decides the weights."""

    def __post_init__(self) -> None:
        for name in ("images", "exact_up_to", "steps"):
            require_whole(name, getattr(self, name), 1)
        require_number("alpha", self.alpha, 0, 1e6)
        require_number("beta", self.beta, -1e6, 1e6)
        require_number("c", self.c, 0, 1e6, ends="(]")
