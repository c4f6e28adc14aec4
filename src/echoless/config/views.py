"""What are the augmentation settings of a view? Frozen and validated; no torch."""

from __future__ import annotations

from dataclasses import dataclass

from echoless.config.checks import require, require_number, require_whole


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewConfig:
    """One random crop and what is done to it, in the order of the fields. A probability of 0 leaves a change out.

    Colours (saturation, hue, grey) exist with three channels only; other images pass those changes unchanged.
    """

    size: tuple[int, int]  # height, width
    scale: tuple[float, float] = (0.2, 1.0)  # share of the image's area
    flip: float = 0.5
    jitter: float = 0.8  # probability of the four changes that follow
    brightness: float = 0.4  # largest change of the factor, which is uniform in 1 -+ this
    contrast: float = 0.4
    saturation: float = 0.2
    hue: float = 0.1  # largest turn, as a share of the circle
    grey: float = 0.2
    blur: float = 0.5
    blur_sigma: tuple[float, float] = (0.1, 2.0)  # in pixels of an image with sides of 224; smaller ones blur less
    solarise: float = 0.0  # grey levels of one half and more are inverted

    def __post_init__(self) -> None:
        require(len(self.size) == 2, "size", self.size, "a height and a width")
        for side in self.size:
            require_whole("size", side, 1)
        low, high = self.scale
        require(0 < low <= high <= 1, "scale", self.scale, "two numbers, 0 < low <= high <= 1")
        for name in ("flip", "jitter", "brightness", "contrast", "saturation", "grey", "blur", "solarise"):
            require_number(name, getattr(self, name), 0, 1)
        require_number("hue", self.hue, 0, 0.5)
        low, high = self.blur_sigma
        require(0 < low <= high <= 100, "blur_sigma", self.blur_sigma, "two numbers, 0 < low <= high <= 100")
