"""How are curves and point clouds drawn? matplotlib, without a screen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor


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
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path
