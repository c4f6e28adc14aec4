"""By what are images normalised? Mean and deviation of each channel, of pixels scaled to 0..1, whatever their bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from echoless.config.checks import require
from echoless.config.counts import counted

Normalisation = tuple[tuple[float, ...], tuple[float, ...]]  # mean and deviation of each channel

# What published models of ImageNet are normalised by. The deviation of all its pixels is about 0.28, so measured
# statistics are no substitute.
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PROCESSOR = "preprocessor_config.json"  # of a transformers folder


def usual(channels: int) -> Normalisation:
    """That of a model of images which does not say its own."""
    return (IMAGENET_MEAN, IMAGENET_STD) if channels == 3 else ((0.5,) * channels, (0.25,) * channels)


def stated_by(processor: Mapping[str, Any], channels: int) -> tuple[Any, Any]:
    """Mean and deviation with which pixels in 0..1 become what this image processor makes of bytes; None: unsaid.

    transformers multiplies bytes by `rescale_factor` and subtracts and divides then; either step may be switched off.

    >>> stated_by({"image_mean": [0.5], "image_std": [0.25]}, 1)
    ([0.5], [0.25])
    >>> stated_by({"do_normalize": False}, 1), stated_by({"image_mean": [51.0], "do_rescale": False}, 1)
    (([0.0], [1.0]), ([0.2], None))
    """
    factor = processor.get("rescale_factor", 1 / 255) if processor.get("do_rescale", True) else 1.0
    require(
        isinstance(factor, int | float) and 0 < factor <= 1, "rescale_factor", factor, "a number above 0, at most 1"
    )
    scale = 255 * factor
    if not processor.get("do_normalize", True):
        return [0.0] * channels, [1 / scale] * channels
    mean, std = (_rescaled(processor.get(name), scale) for name in ("image_mean", "image_std"))
    return mean, std


def _rescaled(values: Any, scale: float) -> Any:
    """What is no list of numbers is left to whoever checks it."""
    numbers = isinstance(values, list) and all(isinstance(value, int | float) for value in values)
    return [value / scale for value in values] if numbers else values


class Assumption(NamedTuple):
    """That a model is normalised as usual, because it does not say how. `normalisation`: as records have it."""

    normalisation: str
    sentence: str


def assume_usual(model: Path, channels: int) -> Assumption:
    known = channels == 3
    by = "ImageNet's mean and deviation" if known else "mean 0.5 and deviation 0.25"
    name = "imagenet" if known else "mean 0.5, deviation 0.25"
    if not model.is_dir():
        more = "echoless import takes others by --mean and --std"
        return Assumption(name, f"{model} does not say how images are normalised: here by {by}; {more}")
    lacks = f"no image_mean in its {PROCESSOR}" if (model / PROCESSOR).is_file() else f"no {PROCESSOR}"
    more = "save the image processor beside it if it differs"
    return Assumption(name, f"{model} has {lacks}: images are normalised by {by}; {more}")


def require_statistics(name: str, values: Sequence[float], channels: int) -> None:
    """`name` is mean or std. Those of pixels in 0..255 would make every image nearly one grey, without a word."""
    require(len(values) == channels, name, values, f"{counted(channels, 'number')}, one for each channel")
    good = all(0 <= value <= 1 and (value > 0 or name == "mean") for value in values)
    span = "numbers in [0, 1]" if name == "mean" else "numbers above 0 and at most 1"
    require(good, name, values, f"{span}, for pixels scaled to 0..1 (divide by 255; 16 bit: by 65535)")
