"""What does an interactive t-SNE map consist of? Points, labels, nearest neighbours, and all images in one picture.

RUN/figures/tsne.json        x, y, labels (-1: none), class_names, names, neighbours (flat, K to a point), tile,
                             columns; root, the folder of the image files, where they are files
RUN/figures/tsne-images.jpg  the image of point i is tile i, row by row
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from echoless.reports.pictures import save_picture, tiles
from echoless.storage import write_bytes
from echoless.storage.jsonfile import json_bytes

NEIGHBOURS = 6
TILE = 64  # pixels, at most
NO_LABEL = "no label"  # what a legend says of the images without one
LONGEST_NAME = 120  # characters of a path that are kept, its end


def save_map(
    figures: Path,
    points_N2: Tensor,
    features_ND: Tensor,
    *,
    images_NCHW: Tensor,
    labels_N: Tensor | None,
    class_names: Sequence[str] | None,
    names: Sequence[str],
    about: str,
    root: Path | None = None,
) -> None:
    """The picture first, so that whoever finds the points finds their images. root: the folder of the image files."""
    side = min(TILE, max(images_NCHW.shape[2:]))
    columns = math.isqrt(len(points_N2) - 1) + 1
    sheet = tiles(images_NCHW, columns=columns, side=side)
    save_picture(figures / "tsne-images.jpg", sheet, quality=80)
    height, width = images_NCHW.shape[2:]
    record = {
        "about": about,
        "x": [round(value, 3) for value in points_N2[:, 0].tolist()],
        "y": [round(value, 3) for value in points_N2[:, 1].tolist()],
        "labels": None if labels_N is None else labels_N.tolist(),
        "class_names": None if class_names is None else list(class_names),
        "names": [name[-LONGEST_NAME:] for name in names],
        "neighbours": neighbours(features_ND, NEIGHBOURS).flatten().tolist(),
        "tile": [round(width * side / max(height, width)), round(height * side / max(height, width))],
        "columns": columns,
    } | ({} if root is None else {"root": str(root.resolve())})
    path = figures / "tsne.json"
    write_bytes(path, json_bytes(record, path, indent=None))


def neighbours(features_ND: Tensor, count: int) -> Tensor:
    """(N, count): the most similar others by cosine, nearest first."""
    unit = F.normalize(features_ND.double(), dim=1)
    rows = []
    for first in range(0, len(unit), 1024):
        similar = unit[first : first + 1024] @ unit.T
        here = torch.arange(len(similar))
        similar[here, first + here] = -math.inf
        rows.append(similar.topk(min(count, len(unit) - 1), dim=1).indices)
    return torch.cat(rows)
