"""What are the settings of the masked autoencoder's objective? No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from echoless.config.checks import require_number


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskedConfig:
    """Mean squared error on the hidden patches."""

    kind: ClassVar[str] = "masked"

    mask_ratio: float = 0.75
    normalize_pixels: bool = True  # each target patch to zero mean and unit variance (He et al. 2022)

    def __post_init__(self) -> None:
        require_number("mask_ratio", self.mask_ratio, 0, 1, ends="()")
