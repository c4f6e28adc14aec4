"""How are scatter plots, heat maps and learning curves drawn as PNG? With matplotlib, without a display."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from math import log2
from pathlib import Path
from typing import Any

from torch import Tensor

from echoless.storage import write_bytes


def scatter(path: Path, points_N2: Tensor, labels_N: Tensor | None, names: Sequence[str] | None) -> Path:
    """A 2-d map with one colour per class."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 6), layout="constrained")
    axes = figure.add_subplot()
    groups = [None] if labels_N is None else sorted(set(labels_N.tolist()))
    for label in groups:
        chosen = points_N2 if label is None or labels_N is None else points_N2[labels_N == label]
        name = None if label is None else (names[label] if names and label < len(names) else str(label))
        axes.scatter(chosen[:, 0], chosen[:, 1], s=6, label=name)
    if labels_N is not None and len(groups) <= 20:
        axes.legend(markerscale=2, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title("t-SNE of pooled features")
    return _save(path, figure)


def heatmaps(
    path: Path,
    maps: Mapping[str, Mapping[str, Mapping[str, float]]],
    *,
    rows_title: str,
    columns_title: str,
    marked: tuple[str, str],
) -> Path:
    """Shares as coloured tables side by side, title -> row -> column -> value; one cell has a frame."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    figure = Figure(figsize=(1 + 5 * len(maps), 4.5), layout="constrained")
    for axes, (title, rows) in zip(figure.subplots(1, len(maps), squeeze=False)[0], maps.items()):
        row_names, column_names = list(rows), list(next(iter(rows.values())))
        values = [[100 * rows[row][column] for column in column_names] for row in row_names]
        image = axes.imshow(values, aspect="auto", cmap="viridis")
        middle = (image.norm.vmin + image.norm.vmax) / 2
        for i, line in enumerate(values):
            for j, value in enumerate(line):
                axes.text(j, i, f"{value:.1f}", ha="center", va="center", color="white" if value < middle else "black")
        corner = (column_names.index(marked[1]) - 0.5, row_names.index(marked[0]) - 0.5)
        axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="red", linewidth=3, clip_on=False))
        axes.set_xticks(range(len(column_names)), column_names)
        axes.set_yticks(range(len(row_names)), row_names)
        axes.set(title=title, xlabel=columns_title, ylabel=rows_title)
    return _save(path, figure)


def growth_plot(path: Path, panels: Mapping[str, Mapping[str, Mapping[int, Any]]]) -> Path:
    """Accuracy against images seen on a logarithmic axis: title -> curve -> images -> mean and interval (`Spread`)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1 + 5 * len(panels), 4.5), layout="constrained")
    for axes, (title, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items()):
        for name, points in curves.items():
            (line,) = axes.plot(list(points), [100 * p.mean for p in points.values()], marker=".", label=name)
            ends = [point.interval or (point.mean, point.mean) for point in points.values()]
            low, high = ([100 * end[side] for end in ends] for side in (0, 1))
            axes.fill_between(list(points), low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        axes.set_xscale("log", base=2)
        axes.set_xticks(*_doublings(curves.values()))
        axes.set(title=title, xlabel="images seen", ylabel="%")
        axes.legend(fontsize=8, frameon=False)
    return _save(path, figure)


def _doublings(curves: Iterable[Mapping[int, Any]]) -> tuple[list[float], list[str]]:
    """Places and names of marks from the largest number of images down, each half of the one before."""
    counts = [images for points in curves for images in points]
    marks = [max(counts) / 2**halvings for halvings in range(int(log2(max(counts) / min(counts))) + 1)]
    return marks, [f"{mark:,.0f}" for mark in marks]


def _save(path: Path, figure: Any) -> Path:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = io.BytesIO()
    figure.savefig(data, dpi=110)
    write_bytes(path, data.getvalue())
    return path
