"""What is the class of every pixel? Label maps: PNG files whose grey levels are classes, one for each image.

    --masks FOLDER             FOLDER/a/b.png belongs to image a/b.jpg; where names are unique, FOLDER/b.png does too
    --mask-classes FILE        lines VALUE NAME; values with the same name are one class, values not named are ignored
    --mask-ignore VALUE        without a file of classes: the grey level that is no class (255)

A map is cropped like its image and resized to the encoder's input by nearest neighbours.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from echoless.data.augment import centre_boxes
from echoless.data.classes import LISTS, list_lines
from echoless.data.resample import Array
from echoless.data.resizing import WHOLE, Framing, Size
from echoless.errors import DataError

VOID = -1  # the class of pixels that do not count
COCO_STUFF_27 = "coco-stuff-27"
_LEVELS = 2**16
_MOST_PIXELS = 2**28


@dataclass(frozen=True)
class MaskClasses:
    """The class of each grey level, VOID for those that are none; `names` is None where the levels are the classes."""

    class_of_level: Array
    names: tuple[str, ...] | None = None

    @staticmethod
    def plain(ignored: int = 255) -> MaskClasses:
        if not 0 <= ignored < _LEVELS:
            raise DataError(f"mask_ignore is {ignored}; allowed: a grey level, 0 to {_LEVELS - 1}")
        levels = np.arange(_LEVELS)
        levels[ignored] = VOID
        return MaskClasses(levels)

    @staticmethod
    def read(given: str | Path) -> MaskClasses:
        """From a file, or `coco-stuff-27`. Classes are numbered in the order in which they are first named."""
        file = LISTS / f"{COCO_STUFF_27}.txt" if str(given) == COCO_STUFF_27 else Path(given)
        levels, number = np.full(_LEVELS, VOID), dict[str, int]()
        for line in list_lines(file, "mask_classes", f"a file with lines VALUE NAME, or {COCO_STUFF_27}"):
            value, _, name = line.partition(" ")
            if not value.isdecimal() or int(value) >= _LEVELS or not name.strip():
                raise DataError(f"mask classes {file} have the line {line[:80]!r}; allowed: VALUE NAME, as in '7 road'")
            if levels[int(value)] != VOID:
                raise DataError(f"mask classes {file} name the grey level {value} twice")
            levels[int(value)] = number.setdefault(name.strip(), len(number))
        return MaskClasses(levels, tuple(number))


class LabelMaps:
    """The label map of each image, read when it is asked for."""

    def __init__(self, folder: Path, paths: Sequence[str], classes: MaskClasses) -> None:
        self.folder, self.classes = folder, classes
        self._files = _files_of(folder, paths)

    @property
    def names(self) -> tuple[str, ...] | None:
        return self.classes.names

    def read(self, index: int) -> Array:
        """classes_HW, int64, at the map's own size."""
        file = self._files[index]
        try:
            with Image.open(file, formats=("PNG",)) as opened:
                if opened.width * opened.height > _MOST_PIXELS:
                    raise DataError(f"mask {file} has {opened.width} x {opened.height} pixels; allowed: {_MOST_PIXELS}")
                if opened.mode not in ("1", "L", "P", "I;16", "I"):
                    raise DataError(f"mask {file} has the mode {opened.mode}; allowed: one channel of class numbers")
                levels_HW = np.asarray(opened).astype(np.int64)
        except (OSError, SyntaxError, ValueError) as error:  # what Pillow raises on damaged files
            raise DataError(f"mask {file} cannot be read: {error}") from None
        if int(levels_HW.min()) < 0 or int(levels_HW.max()) >= _LEVELS:
            raise DataError(f"mask {file} has a level of {int(levels_HW.max())}; allowed: 0 to {_LEVELS - 1}")
        return self.classes.class_of_level[levels_HW]

    def view(self, index: int, size: Size, image_shape: Size, framing: Framing = WHOLE) -> Array:
        """classes_HW at `size`: what evaluation shows the encoder of an image of `image_shape`, pixel by pixel."""
        whole = self.read(index)
        (height, width), (rows, columns) = whole.shape, image_shape
        # One pixel of the smaller of the two may be lost to rounding where an image was reduced.
        if abs(height * columns - width * rows) > max(height, width, rows, columns) * 1.5:
            raise DataError(
                f"mask {self._files[index]} is {height} x {width} and its image {rows} x {columns}; "
                "aspect ratios must be equal"
            )
        y, x = _places(image_shape, size, framing)
        rows_of, columns_of = (y * height / rows).astype(int), (x * width / columns).astype(int)
        return whole[np.ix_(rows_of.clip(0, height - 1), columns_of.clip(0, width - 1))]


def _places(image_shape: Size, size: Size, framing: Framing) -> tuple[Array, Array]:
    """Where in its image every row and column of the encoder's input has its centre: `resize_and_crop` backwards."""
    down, across = np.arange(size[0]) + 0.5, np.arange(size[1]) + 0.5
    if not framing.applies_to(np.empty((0, *image_shape))):
        box = centre_boxes(np.array([image_shape]), size)
        y = box.top_B[0] + down * box.height_B[0] / size[0]
        return y, box.left_B[0] + across * box.width_B[0] / size[1]
    fitted = framing.fit(size).shape_of(*image_shape)
    top, left = framing.corner(fitted, size)
    return (top + down) * image_shape[0] / fitted[0], (left + across) * image_shape[1] / fitted[1]


def _files_of(folder: Path, paths: Sequence[str]) -> list[Path]:
    """The map of each image: by its relative path, else by its name alone where that is unique."""
    if not folder.is_dir():
        raise DataError(f"masks is {str(folder)!r}; allowed: a folder of PNG label maps")
    by_path: dict[str, Path] = {}
    by_name: dict[str, list[Path]] = {}
    for root, _, files in os.walk(folder):
        for name in files:
            if name.lower().endswith(".png"):
                file = Path(root) / name
                by_path[file.relative_to(folder).with_suffix("").as_posix()] = file
                by_name.setdefault(file.stem, []).append(file)
    found = [by_path.get(_stem(path)) or _only(by_name.get(Path(path).stem)) for path in paths]
    missing = [path for path, file in zip(paths, found) if file is None]
    if missing:
        raise DataError(
            f"masks {folder} has no label map for {len(missing)} of {len(paths)} images, first {missing[0]!r}"
        )
    return [file for file in found if file is not None]


def _stem(path: str) -> str:
    return Path(path).with_suffix("").as_posix()


def _only(files: list[Path] | None) -> Path | None:
    return files[0] if files is not None and len(files) == 1 else None
