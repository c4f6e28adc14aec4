"""Which quantities are computed from a run's log? Final loss, feature norms, stability, learned alphas."""

from __future__ import annotations

import re
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from echoless.config.metrics import Metric
from echoless.sweeps.experiment import Quantity

if TYPE_CHECKING:
    from echoless.runs import RunFolder

LOSS = Quantity(metric="final_loss")


def final_loss(run: Path) -> list[Metric]:
    """The mean training loss over the last tenth of the lines that were logged."""
    losses = [line["loss"] for line in _folder(run).read_metrics() if "loss" in line]
    last = losses[-max(1, len(losses) // 10) :]
    return [_reading("final_loss", statistics.fmean(last), len(last))] if losses else []


def norm_growth(run: Path) -> list[Metric]:
    """Mean token norm of the last block's output: at the first step, at its largest, and at the end."""
    recorded = [line["feature_norm"] for line in _folder(run).read_metrics() if "feature_norm" in line]
    if not recorded:
        return []
    block = max(recorded[0])
    norms = [norm_of[block] for norm_of in recorded]
    return [
        _reading("norm_first", norms[0], len(norms), block=block),
        _reading("norm_largest", max(norms), len(norms), block=block),
        _reading("norm_last", norms[-1], len(norms), block=block),
    ]


def stability(run: Path) -> list[Metric]:
    """How far training came, its largest rise of the loss above the lowest value so far, and its largest gradient.

    The gradient norm is compared with its median.
    """
    folder = _folder(run)
    lines = [line for line in folder.read_metrics() if "loss" in line]
    if not lines:
        return []
    lowest, setback = float("inf"), 0.0
    for line in lines:
        lowest = min(lowest, line["loss"])
        setback = max(setback, line["loss"] - lowest)
    gradients = [line["gradient_norm"] for line in lines]
    typical = statistics.median(gradients)
    return [
        _reading("completed", lines[-1]["step"] / folder.read_config()["steps"], len(lines)),
        _reading("setback", setback, len(lines)),
        _reading("gradient_peak", max(gradients) / typical if typical else 0.0, len(lines)),
    ]


# The name of a parameter, as ViT has it.
_ALPHA_NAME = re.compile(r"blocks\.(\d+)\.(attn|mlp)_shortcut\.alpha")


def learned_alphas(run: Path) -> list[Metric]:
    """The alpha of every shortcut where it is a parameter (Table 5 of arXiv:2404.10947 counts from 1)."""
    if not (run / "encoder").is_dir():
        return []
    from echoless.runs import load_weights

    found = []
    for name, tensor in load_weights(run / "encoder").tensors.items():
        if match := _ALPHA_NAME.fullmatch(name):
            sublayer = {"attn": "attention", "mlp": "FFN"}[match[2]]
            found.append(_reading("alpha", float(tensor), 1, block=int(match[1]) + 1, sublayer=sublayer))
    return found


def _folder(run: Path) -> RunFolder:
    """Imported when a run is read: the names of the experiments are needed without torch, by a shell."""
    from echoless.runs import RunFolder

    return RunFolder(run)


def _reading(name: str, value: float, n: int, **protocol: Any) -> Metric:
    return Metric(metric=name, value=value, n=n, protocol={"features": "trained", **protocol})
