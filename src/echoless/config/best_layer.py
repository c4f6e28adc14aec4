"""Which layer is the best, and does it beat the usual one and raw pixels? In words, from the records of a scan.

The highest of many cells is above any number by chance, too: intervals of its differences allow for the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from echoless.config.metrics import Metric, interval_text, number, on_same_images

# Values of `scan` in the protocols of the numbers that are compared. They keep which answers were right, and `cells`,
# among how many the best was chosen. Raw pixels are measured on the same folds, under BEST.
BEST, USUAL = "best layer", "usual layer"
OF_THE_CHOICE = (BEST, USUAL)
MOST_CELLS = 1000  # layers times poolings; an interval among more would take minutes
CELL = ("layer", "pooling")  # what the choice found: another choice among as many cells replaces it
# The 95 % interval of one minus another, of which there are so many that this is the largest: `paired_interval`.
Differ = Callable[[Metric, Metric, int], tuple[float, float] | None]


def best_layer(metrics: Sequence[Metric], differ: Differ) -> str:
    """Of the scan whose best cell it is; nothing where there is none."""
    best = best_cell(metrics)
    if best is None:
        return ""
    cells = _cells(best)
    same = [m for m in metrics if on_same_images(m, best) and _scan(m) == _scan(best)]
    usual, raw = _newest(same, USUAL, "trained"), _newest(same, BEST, "raw pixels")
    k, folds, rows = (best.protocol.get(name) for name in ("k", "folds", "train_n"))
    is_usual = usual is not None and _cell(usual) == _cell(best)
    parts = [
        f"Best layer by kNN (k {k}), {folds}-fold cross-validation on {rows} training images: "
        f"{'the usual one, ' if is_usual else ''}{_cell(best)}: {number(best)}{interval_text(best)}, the highest of "
        f"{cells} on the same images."
    ]
    if usual is not None and not is_usual:
        parts.append(
            _beside(best, usual, f"the usual {_cell(usual)}", "is above", differ(best, usual, max(1, cells - 1)))
        )
    if raw is not None:
        parts.append(_beside(best, raw, "raw pixels", "beats", differ(best, raw, cells)))
    if not is_usual:
        parts.append(
            f"embed takes it by --layer {best.protocol.get('layer')} --pooling {best.protocol.get('pooling')}."
        )
    return " ".join(filter(None, parts))


def best_cell(metrics: Sequence[Metric]) -> Metric | None:
    """That of the scan of most cells, then of the newest."""
    most = max(map(_cells, metrics), default=0)
    return _newest([metric for metric in metrics if _cells(metric) == most > 0], BEST, "trained")


def _cells(metric: Metric) -> int:
    """Among how many it was chosen; 0 of other numbers, and of what no scan writes: a file may hold anything."""
    count = metric.protocol.get("cells") if metric.protocol.get("scan") == BEST else 0
    return count if isinstance(count, int) and 0 < count <= MOST_CELLS else 0


def _newest(metrics: Sequence[Metric], scan: str, features: str) -> Metric | None:
    found = (m for m in reversed(metrics) if m.protocol.get("scan") == scan and m.protocol.get("features") == features)
    return next(found, None)


def _scan(metric: Metric) -> list[object]:
    return [metric.protocol.get(name) for name in ("cells", "k", "folds", "train_n", "seed")]


def _cell(metric: Metric) -> str:
    return f"{metric.protocol.get('layer')}, {metric.protocol.get('pooling')} pooling"


def _beside(best: Metric, other: Metric, name: str, above: str, interval: tuple[float, float] | None) -> str:
    """Nothing where the two cannot be paired over their images."""
    if interval is None:
        return ""
    low, high = interval
    verb = above if low > 0 else "is worse than" if high < 0 else "does not clearly differ from"
    return (
        f"It {verb} {name} ({number(other)}): difference {100 * (best.value - other.value):+.1f} points "
        f"[{100 * low:+.1f}, {100 * high:+.1f}], corrected for the choice."
    )
