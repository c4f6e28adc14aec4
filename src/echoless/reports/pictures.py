"""How are pictures laid out? Rows of images with a title each, as one PNG; Pillow is enough."""

from __future__ import annotations

import colorsys
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from echoless.storage import write_bytes

_GAP, _TITLE = 2, 20


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


def as_rgb(pixels_CHW: np.ndarray) -> Image.Image:
    """Pixels of 8 or 16 bits as a picture: grey is repeated, and of more than three channels the first are taken."""
    levels = (pixels_CHW >> 8).astype(np.uint8) if pixels_CHW.dtype == np.uint16 else pixels_CHW
    shown = levels[:3] if len(levels) >= 3 else np.repeat(levels[:1], 3, axis=0)
    return Image.fromarray(np.ascontiguousarray(shown.transpose(1, 2, 0)))


def rows(path: Path, titled: Mapping[str, Tensor], *, side: int = 64) -> Path:
    """Write a PNG with one row of images under each title."""
    strips = [(title, show(images, side)) for title, images in titled.items()]
    width = max(sum(picture.width + _GAP for picture in pictures) for _, pictures in strips)
    font = ImageFont.load_default(13)
    width = max(width, *(round(font.getlength(title)) + 2 for title, _ in strips))
    height = sum(max(picture.height for picture in pictures) + _TITLE + _GAP for _, pictures in strips)
    sheet = Image.new("RGB", (width, height), "white")
    pen, top = ImageDraw.Draw(sheet), 0
    for title, pictures in strips:
        pen.text((1, top + 2), title, fill="black", font=font)
        left = 0
        for picture in pictures:
            sheet.paste(picture, (left, top + _TITLE))
            left += picture.width + _GAP
        top += max(picture.height for picture in pictures) + _TITLE + _GAP
    return save_picture(path, sheet)


def tiles(images_ICHW: Tensor, *, columns: int, side: int, gap: int = 0) -> Image.Image:
    """Equal images side by side and below each other, `columns` to a row."""
    pictures = show(images_ICHW, side)
    width, height = (pictures[0].width + gap, pictures[0].height + gap)
    columns = min(columns, len(pictures))
    sheet = Image.new("RGB", (columns * width - gap, -(-len(pictures) // columns) * height - gap), "white")
    for index, picture in enumerate(pictures):
        sheet.paste(picture, (index % columns * width, index // columns * height))
    return sheet


_RIGHT, _WRONG, _UNKNOWN = (38, 150, 70), (205, 60, 50), (200, 200, 200)
_FRAME = 3


def gallery(
    path: Path, queries_QCHW: Tensor, near_QKCHW: Tensor, same_QK: Tensor | None, *, side: int = 64, space: int = 12
) -> Path:
    """Write a PNG with one row per query: the query, a space, then its neighbours, the most similar first.

    same_QK: whether a neighbour has the class of its query: its frame is green or red; grey where that is not known.
    """
    step = side + 2 * _FRAME + _GAP
    count, near = len(queries_QCHW), near_QKCHW.shape[1]
    sheet = Image.new("RGB", (step * (near + 1) + space, count * step), "white")
    for row, query in enumerate(show(queries_QCHW, side)):
        sheet.paste(query, (_FRAME, row * step + _FRAME))
        for place, picture in enumerate(show(near_QKCHW[row], side)):
            colour = _UNKNOWN if same_QK is None else _RIGHT if same_QK[row, place] else _WRONG
            framed = Image.new("RGB", (picture.width + 2 * _FRAME, picture.height + 2 * _FRAME), colour)
            framed.paste(picture, (_FRAME, _FRAME))
            sheet.paste(framed, (step * (place + 1) + space, row * step))
    return save_picture(path, sheet)


def labels_as_colours(labels_IHW: Tensor) -> Tensor:
    """(I, 3, H, W) in [0, 1]: label 0, the background, is grey; the others are hues that stay apart."""
    count = max(int(labels_IHW.max()), 1)
    hues = [
        colorsys.hsv_to_rgb(index / count, 0.55 + 0.35 * (index % 2), 0.95 - 0.3 * (index % 3) / 2)
        for index in range(count)
    ]
    palette = torch.tensor([(0.85, 0.85, 0.85), *hues])
    return palette[labels_IHW].permute(0, 3, 1, 2)


def save_picture(path: Path, picture: Image.Image, **settings: int) -> Path:
    """Write a picture in the format of its name, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = io.BytesIO()
    picture.save(data, Image.registered_extensions()[path.suffix], **settings)
    write_bytes(path, data.getvalue())
    return path
