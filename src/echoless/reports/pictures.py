"""How are pictures laid out? Rows of images with a title each, as one PNG; Pillow is enough."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

_GAP, _TITLE = 2, 14


def show(images_ICHW: Tensor, side: int) -> list[Image.Image]:
    """Values in [0, 1] as RGB pictures, enlarged without blur. One channel is grey; of more than three, the first."""
    if images_ICHW.shape[1] not in (1, 3):
        images_ICHW = images_ICHW[:, :3] if images_ICHW.shape[1] > 3 else images_ICHW[:, :1]
    levels = (images_ICHW.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).numpy()
    pictures = []
    for level in levels:
        grey = level.shape[2] == 1
        picture = Image.fromarray(level[:, :, 0] if grey else np.ascontiguousarray(level)).convert("RGB")
        scale = side / max(picture.size)
        pictures.append(
            picture.resize((round(picture.width * scale), round(picture.height * scale)), Image.Resampling.NEAREST)
        )
    return pictures


def rows(path: Path, titled: Mapping[str, Tensor], *, side: int = 64) -> Path:
    """Write a PNG with one row of images under each title."""
    strips = [(title, show(images, side)) for title, images in titled.items()]
    width = max(sum(picture.width + _GAP for picture in pictures) for _, pictures in strips)
    width = max(width, *(8 * len(title) for title, _ in strips))
    height = sum(max(picture.height for picture in pictures) + _TITLE + _GAP for _, pictures in strips)
    sheet = Image.new("RGB", (width, height), "white")
    pen, top = ImageDraw.Draw(sheet), 0
    for title, pictures in strips:
        pen.text((1, top), title, fill="black")
        left = 0
        for picture in pictures:
            sheet.paste(picture, (left, top + _TITLE))
            left += picture.width + _GAP
        top += max(picture.height for picture in pictures) + _TITLE + _GAP
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path)
    return path
