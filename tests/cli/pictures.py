"""Folders of images as people have them, twelve images each. Not a test itself."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def picture(number: int, height: int, width: int, channels: int) -> np.ndarray:
    """Smooth 8-bit HWC pixels, another for every number."""
    coarse = np.random.default_rng(number).random((channels, 4, 4)).astype(np.float32)
    planes = [Image.fromarray(plane).resize((width, height), Image.Resampling.BICUBIC) for plane in coarse]
    return (np.stack([np.asarray(plane) for plane in planes], -1).clip(0, 1) * 255).astype(np.uint8)


def write_images(folder: Path, names: list[str], height: int = 32, width: int = 32, channels: int = 3) -> Path:
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = picture(number, height, width, channels)
        Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels).save(path)
    return folder


def write_tiffs(folder: Path, channels: int) -> Path:
    tifffile = pytest.importorskip("tifffile", reason="NOT RUN: tifffile (extra: science) is not installed")
    folder.mkdir()
    for number in range(12):
        pixels = picture(number, 32, 32, channels).astype(np.uint16) * 257
        options = {"photometric": "minisblack", "planarconfig": "contig"} if channels > 1 else {}
        tifffile.imwrite(folder / f"{number:02d}.tif", pixels.squeeze(), **options)
    return folder


def jpegs(count: int = 12) -> list[str]:
    return [f"{number:03d}.jpg" for number in range(count)]


def write_shards(folder: Path) -> Path:
    folder.mkdir()
    for shard in range(2):
        with tarfile.open(folder / f"{shard:06d}.tar", "w") as tar:
            for number in range(shard * 6, shard * 6 + 6):
                file = io.BytesIO()
                Image.fromarray(picture(number, 32, 32, 3)).save(file, "PNG")
                entry = tarfile.TarInfo(f"{number:06d}.png")
                entry.size = file.tell()
                file.seek(0)
                tar.addfile(entry, file)
    return folder


def write_npz(path: Path) -> Path:
    np.savez(path, images=np.stack([picture(number, 32, 32, 3) for number in range(12)]))
    return path


MAKERS: dict[str, Callable[[Path], Path]] = {
    "flat JPEGs": lambda folder: write_images(folder / "flat", jpegs()),
    "nested classes": lambda folder: write_images(
        folder / "nested", [f"{'cat' if n % 2 else 'dog'}/{n}.jpg" for n in range(12)]
    ),
    "1-channel PNGs of 28 x 28": lambda folder: write_images(
        folder / "gray", [f"{n}.png" for n in range(12)], 28, 28, 1
    ),
    "16-bit TIFFs": lambda folder: write_tiffs(folder / "deep", 1),
    "5-channel TIFFs": lambda folder: write_tiffs(folder / "bands", 5),
    "images that are not square": lambda folder: write_images(folder / "wide", jpegs(), 24, 48),
    "tar shards": lambda folder: write_shards(folder / "shards"),
    "npz": lambda folder: write_npz(folder / "images.npz"),
}
