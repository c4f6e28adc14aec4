"""How is a large image brought to another size? By the filters of the published pipelines, one image at a time.

An image is large if its shorter side is more than 128 pixels. Large images are resized as torchvision does it:
antialiased, bicubic unless asked otherwise, in whole grey levels. The result of an image never depends on the others.
(Small ones: `resample`.)

Letters: C channels, H W pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from echoless.data.resample import Array, Boxes, resize

LARGE = 128
SHARE = 224 / 256  # of the resized side that the centre crop keeps
_CLEAR = 256  # short side at which images are kept for encoders that take far smaller ones

Filter = Literal["bilinear", "bicubic"]
Size = tuple[int, int]  # height, width


def is_large(image_CHW: Array) -> bool:
    return min(image_CHW.shape[1:]) > LARGE


@dataclass(frozen=True, slots=True)
class Fit:
    """How an image is resized to a height and width.

    cover: it just covers the size, in its own proportions (torchvision's Resize for a square). adm: likewise, halved by
    a box filter while it is at least twice as large (ADM, the crop of published latents). stretch: exactly the size,
    whatever the proportions. short: as in runs of earlier versions, bilinear, by the shorter side.
    """

    kind: Literal["cover", "adm", "stretch", "short"]
    size: Size
    filter: Filter = "bicubic"

    def shape_of(self, height: int, width: int) -> Size:
        """The height and width that an image of this one is given."""
        rows, columns = self.size
        if self.kind == "stretch":
            return self.size
        by_height = rows * width >= columns * height
        if self.kind == "cover":  # torchvision cuts fractions off
            return (rows, int(rows * width / height)) if by_height else (int(columns * height / width), columns)
        scale = rows / height if by_height else columns / width
        return max(round(height * scale), 1), max(round(width * scale), 1)

    def shrinks(self, height: int, width: int) -> bool:
        """Whether an image covers the size: then resizing it enlarges nothing."""
        return height >= self.size[0] and width >= self.size[1]

    def __call__(self, image_CHW: Array) -> Array:
        if self.kind == "adm":
            image_CHW = self._halved(image_CHW)
        height, width = image_CHW.shape[1:]
        target = self.shape_of(height, width)
        if target == (height, width):
            return image_CHW
        if self.kind == "cover" or self.kind == "stretch":
            return resize_large(image_CHW, target, self.filter)
        bilinear = self.kind == "short"
        if bilinear and image_CHW.dtype == np.uint16:
            return resize(image_CHW, target)
        return _with_pillow(image_CHW, target, Image.Resampling.BILINEAR if bilinear else Image.Resampling.BICUBIC)

    def _halved(self, image_CHW: Array) -> Array:
        while image_CHW.shape[1] >= 2 * self.size[0] and image_CHW.shape[2] >= 2 * self.size[1]:
            half = image_CHW.shape[1] // 2, image_CHW.shape[2] // 2
            image_CHW = _with_pillow(image_CHW, half, Image.Resampling.BOX)
        return image_CHW


@dataclass(frozen=True, slots=True)
class Framing:
    """Which part of an image evaluation sees: it is resized, and `share` of that is cut from the centre.

    Small images are used whole, by the filter of `resample`, unless `every` is set.
    """

    share: float = SHARE
    kind: Literal["cover", "adm", "stretch"] = "cover"
    filter: Filter = "bicubic"
    every: bool = False

    def applies_to(self, image_CHW: Array) -> bool:
        return self.every or is_large(image_CHW)

    def fit(self, size: Size) -> Fit:
        return Fit(self.kind, (round(size[0] / self.share), round(size[1] / self.share)), self.filter)

    def frame(self, image_CHW: Array, size: Size) -> Array:
        """Exactly `size`, in whole grey levels."""
        fitted = self.fit(size)(image_CHW)
        top, left = self.corner((fitted.shape[1], fitted.shape[2]), size)
        return fitted[:, top : top + size[0], left : left + size[1]]

    def corner(self, fitted: Size, size: Size) -> tuple[int, int]:
        """Top and left of the centre crop."""
        spare = fitted[0] - size[0], fitted[1] - size[1]
        # The published crops round half a pixel differently: torchvision to an even number, ADM down.
        top, left = (side // 2 if self.kind == "adm" else round(side / 2) for side in spare)
        return top, left

    def reduction(self, size: Size) -> Fit:
        """What may be done to an image when it is decoded, so that framing it later gives the same pixels.

        An image that small would count as small afterwards: then a little more is kept, and resized twice.
        """
        fit = self.fit(size)
        return fit if self.every or min(fit.size) > LARGE else Fit("cover", (_CLEAR, _CLEAR))

    def describe(self, size: Size) -> str:
        """For a protocol."""
        rows, columns = self.fit(size).size
        target = str(rows) if rows == columns else f"{rows} x {columns}"
        if self.kind == "stretch":
            return f"stretch {target}, {self.filter}"
        crop = str(size[0]) if size[0] == size[1] else f"{size[0]} x {size[1]}"
        return f"{'ADM ' if self.kind == 'adm' else ''}resize {target}, crop {crop}, {self.filter}"


BY_SIZE = Framing()
WHOLE = Framing(share=1.0)
DIFFUSION = Framing(share=1.0, kind="adm")


def resize_large(image_CHW: Array, size: Size, kind: Filter = "bicubic") -> Array:
    """Antialiased, in the type of the image."""
    pixels = np.array(image_CHW)[None]  # a copy: torch takes no array that is read-only
    if pixels.dtype == np.uint8:
        return F.interpolate(torch.from_numpy(pixels), size=size, mode=kind, antialias=True)[0].numpy()
    levels = torch.from_numpy(pixels.astype(np.float64))
    resized = F.interpolate(levels, size=size, mode=kind, antialias=True)[0].numpy()
    return np.clip(np.rint(resized), 0, np.iinfo(pixels.dtype).max).astype(pixels.dtype)


def resample_large(
    pixels: Array | list[Array], boxes: Boxes, size: Size, gain_C: Array | float = 1.0, shift_C: Array | float = 0.0
) -> Array:
    """Boxes of whole pixels, cut out and then resized (torchvision's RandomResizedCrop), flipped and normalised."""
    top_B, left_B, height_B, width_B = (field.astype(np.int64) for field in boxes[:4])
    levels = []
    for i, image in enumerate(pixels):
        box = image[:, top_B[i] : top_B[i] + height_B[i], left_B[i] : left_B[i] + width_B[i]]
        crop = resize_large(box, size)
        levels.append(crop[:, :, ::-1] if boxes.flip_B[i] else crop)  # torch flips no 16-bit pixels
    return normalised(levels, gain_C, shift_C)


def normalised(levels: list[Array], gain_C: Array | float, shift_C: Array | float) -> Array:
    """float32 BCHW of images of one size: grey levels times gain minus shift."""
    out = np.empty((len(levels), *levels[0].shape), dtype=np.float32)
    gain, shift = (np.asarray(value, dtype=np.float32).reshape(-1, 1, 1) for value in (gain_C, shift_C))
    for image, target in zip(levels, out):
        target[...] = image
        target *= gain
        target -= shift
    return out


def _with_pillow(image_CHW: Array, size: Size, how: Image.Resampling) -> Array:
    """Plane by plane, so that any number of channels works; 16-bit planes as floats."""
    planes: list[Any] = []
    for plane in image_CHW:
        source = Image.fromarray(np.ascontiguousarray(plane if plane.dtype == np.uint8 else plane.astype(np.float32)))
        planes.append(np.asarray(source.resize(size[::-1], how)))
    stacked = np.stack(planes)
    return np.clip(np.rint(stacked), 0, np.iinfo(image_CHW.dtype).max).astype(image_CHW.dtype)
