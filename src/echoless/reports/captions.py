"""On what was measured what a chart shows? The words that its caption has in common with the other charts."""

from __future__ import annotations

from collections.abc import Sequence

from echoless.config.headline import no_test
from echoless.config.metrics import NAMES_OF_SETS, Metric, describe, on_same_images, without_fingerprints

# Entries that say which value of a chart it is, and those of the overlap, which has a sentence of its own.
_OF_A_VALUE = ("features", "layer", "layers", "scan", "overlap", "overlap_by_label")


def conditions(metrics: Sequence[Metric], over: str = "") -> str:
    """`n = 160. train photos, test held-out, k 20. `: what these numbers were measured on, and whether it is a test.

    over: the entry of their protocols that the chart is drawn over. Where they differ in another, `k 5 or 20`.
    """
    if not metrics:
        return ""
    first = metrics[0]
    one_set = all(on_same_images(first, metric) for metric in metrics)
    shown: dict[str, dict[str, None]] = {}
    for metric in metrics:
        for name, value in without_fingerprints(metric.protocol).items():
            one_name = one_set and name in NAMES_OF_SETS and name in shown  # a set may have several
            if name not in (*_OF_A_VALUE, over) and value is not None and not one_name:
                shown.setdefault(name, {})[str(value)] = None
    sizes = " or ".join(map(str, sorted({metric.n for metric in metrics})))
    seen = dict.fromkeys(clause for metric in metrics if (clause := no_test(metric)))
    how = describe({name: " or ".join(values) for name, values in shown.items()})
    return "".join(f"{part}. " for part in (f"n = {sizes}", how, *(f"No test: {clause}" for clause in seen)) if part)
