"""How are pictures and maps embedded in one small file? As data URIs, shared and shrunk to a size budget."""

from __future__ import annotations

import base64
import hashlib
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from PIL import Image, UnidentifiedImageError

from echoless.data.resample import Array
from echoless.reports.collect import MOST_ON_A_MAP, Picture, RunData
from echoless.reports.maps import LONGEST_NAME

PICTURE_BUDGET = 2_600_000  # bytes of all pictures of a page, before base64 adds a third
SPRITE_BUDGET = 2_400_000
NAME_BUDGET = 500_000  # characters of all image names
LOWEST_FRAME = 0.3  # height of a map whose points lie on a line, as a share of its width
MOST_POINTS = MOST_ON_A_MAP  # indices are sent as 16-bit numbers


def data_uri(picture: Picture) -> str:
    return f"data:{picture.kind};base64,{base64.b64encode(picture.data).decode()}"


def shrink_to_budget(pictures: Sequence[Picture], budget: int) -> list[Picture]:
    """The same pictures, the large ones smaller and as JPEG where together they exceed the budget."""
    if sum(len(picture.data) for picture in pictures) <= budget:
        return list(pictures)
    share = budget // len(pictures)
    return [shrink(picture, share) if len(picture.data) > share else picture for picture in pictures]


def shrink(picture: Picture, budget: int) -> Picture:
    """Halve the sides until it fits; a picture that cannot be read is left as it is."""
    try:
        with Image.open(io.BytesIO(picture.data)) as opened:
            image = opened.convert("RGB")
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError):
        return picture
    for quality in (80, 60, 60, 60, 60):
        data = io.BytesIO()
        image.save(data, "JPEG", quality=quality)
        if data.tell() <= budget or min(image.size) < 16:
            break
        if quality == 60:
            image = image.resize((image.width // 2, image.height // 2), Image.Resampling.BOX)
    return Picture(data.getvalue(), "image/jpeg")


def maps_of(runs: Sequence[RunData], folder: Path | None = None) -> dict[str, Any]:
    """`sets`: images with names and labels, each once; `maps`: where the points of each run lie.

    folder: of the page, where it is a file beside which the images may be.
    """
    mapped = [run for run in runs if run.map is not None and "tsne-images" in run.pictures]
    sets: dict[str, dict[str, Any]] = {}
    sprites: dict[str, Picture] = {}
    maps = []
    for run in mapped:
        assert run.map is not None
        key = _identity(run)
        sprites[key] = run.pictures["tsne-images"]
        sets.setdefault(key, _set(run.map, folder))
        maps.append(_map(run, list(sets).index(key)))
    for key, picture in zip(sprites, shrink_to_budget(list(sprites.values()), SPRITE_BUDGET)):
        sets[key]["sprite"] = data_uri(picture)
    _shorten_names(list(sets.values()))
    return {"sets": list(sets.values()), "maps": maps}


def _identity(run: RunData) -> str:
    assert run.map is not None
    words = [repr(run.map[key]).encode() for key in ("names", "labels", "tile", "columns")]
    return hashlib.sha256(b"\0".join([run.pictures["tsne-images"].data, *words])).hexdigest()


def _set(record: dict[str, Any], folder: Path | None) -> dict[str, Any]:
    names = record.get("class_names")
    labels = record["labels"]
    return {
        "names": [str(name) for name in record["names"][:MOST_POINTS]],
        "labels": None if labels is None else _base64_uint16(np.clip(labels[:MOST_POINTS], 0, 65535)),
        "classes": None if labels is None else _class_names(labels, names),
        "tile": [int(side) for side in record["tile"]],
        "columns": int(record["columns"]),
        "originals": None if folder is None else _originals(record, folder),
    }


def _originals(record: dict[str, Any], folder: Path) -> str | None:
    """The way from the page to the folder of the image files; None where there are none, or not any more."""
    root, names = record.get("root"), [str(name) for name in record["names"]]
    if not isinstance(root, str) or max(map(len, names)) >= LONGEST_NAME:
        return None
    try:
        there = all((Path(root) / name).is_file() for name in (names[0], names[-1]))
        return quote(Path(os.path.relpath(root, folder)).as_posix()) if there else None
    except (OSError, ValueError):  # ValueError: another drive has no way to it
        return None


def _class_names(labels: Sequence[int], names: Sequence[str] | None) -> list[str]:
    count = max(labels) + 1
    given = [str(name) for name in names or []]
    return (given + [str(index) for index in range(len(given), count)])[: max(count, 1)]


def _map(run: RunData, of: int) -> dict[str, Any]:
    assert run.map is not None
    points_N2 = np.asarray([run.map[axis][:MOST_POINTS] for axis in ("x", "y")], dtype=np.float64).T
    points_N2, height = in_frame(points_N2)
    count = len(run.map["x"])
    neighbours = np.asarray(run.map["neighbours"]).reshape(count, -1)[: len(points_N2)]
    return {
        "set": of,
        "run": run.name,
        "about": str(run.map.get("about", "")),
        "x": _base64_uint16(65535 * points_N2[:, 0]),
        "y": _base64_uint16(65535 * points_N2[:, 1]),
        "height": round(height, 4),
        "neighbours": _base64_uint16(np.clip(neighbours, 0, len(points_N2) - 1).ravel()),
        "each": int(neighbours.shape[1]),
    }


def in_frame(points_N2: Array) -> tuple[Array, float]:
    """The points in a frame of width 1, y downwards, and its height: distances keep their proportions.

    A t-SNE map has no upper side, so it is turned to where its frame is smallest, with the long side across.
    """
    angles = np.radians(np.arange(0, 90, 3))
    turns = [np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for a in angles]
    turned = min((points_N2 @ turn for turn in turns), key=lambda points: float(np.prod(np.ptp(points, axis=0))))
    if np.ptp(turned[:, 1]) > np.ptp(turned[:, 0]):
        turned = np.stack([turned[:, 1], -turned[:, 0]], axis=1)
    placed = (turned - turned.min(axis=0)) / max(float(np.ptp(turned[:, 0])), 1e-12)
    placed[:, 1] = placed[:, 1].max() - placed[:, 1]
    height = max(float(placed[:, 1].max()), LOWEST_FRAME)
    placed[:, 1] += (height - placed[:, 1].max()) / 2
    return placed, height


def _base64_uint16(values: Any) -> str:
    """Whole numbers of 16 bits, little-endian, as base64."""
    return base64.b64encode(np.round(np.asarray(values)).astype("<u2").tobytes()).decode()


def _shorten_names(sets: list[dict[str, Any]]) -> None:
    """Keep only the ends of names if they would make the page too large."""
    characters = sum(len(name) for each in sets for name in each["names"])
    if characters <= NAME_BUDGET:
        return
    most = max(8, NAME_BUDGET // max(1, sum(len(each["names"]) for each in sets)))
    for each in sets:
        each["names"] = [name[-most:] for name in each["names"]]
        each["originals"] = None
