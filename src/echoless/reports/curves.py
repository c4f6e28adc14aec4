"""How are several lines over one axis drawn? Panels side by side, with one legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Panel(NamedTuple):
    """`lines` maps a name to its values; they stand at 1, 2, ... unless `places` says where."""

    title: str
    axis: str
    lines: Mapping[str, Sequence[float]]
    places: Sequence[float] | None = None
    logarithmic: bool = False


def draw_panels(path: Path, *panels: Panel) -> Path:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(5.2 * len(panels), 4.2), layout="constrained")
    for index, panel in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), index + 1)
        for name, values in panel.lines.items():
            axes.plot(panel.places or range(1, len(values) + 1), values, marker="o", markersize=4, label=name)
        if panel.logarithmic:
            axes.set_yscale("log")
        if panel.places is None:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_title(panel.title, fontsize=10)
        axes.set_xlabel(panel.axis)
        axes.grid(alpha=0.3)
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path
