"""How do features change over training? The same numbers at every snapshot of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from echoless.config.metrics import Metric
from echoless.config.options.fields import path_text
from echoless.errors import RunError
from echoless.evaluation.context import Evaluation, FeatureSource
from echoless.evaluation.frozen import load
from echoless.evaluation.registry import MEASUREMENTS
from echoless.runs import RunFolder
from echoless.runtime import choose_device


def check_snapshots(evaluation: Evaluation) -> None:
    if not _folders(evaluation):
        raise RunError(
            f"{evaluation.run or evaluation.encoder.name} has no snapshots to measure; train with --snapshot-every N"
        )


def measure_snapshots(evaluation: Evaluation, names: Sequence[str]) -> list[Metric]:
    """Those of the named metrics that are followed over training."""
    followed = [MEASUREMENTS[name] for name in names if MEASUREMENTS[name].snapshots]
    metrics: list[Metric] = []
    for folder in _folders(evaluation):
        encoder = load(
            folder,
            device=str(choose_device(evaluation.options.device)),
            noise=evaluation.encoder.noise,
            latent=path_text(evaluation.options.latent),
        )
        source = FeatureSource(evaluation, "trained", encoder, {"step": int(folder.name.removeprefix("step-"))})
        metrics += [metric for measurement in followed for metric in measurement.measure(source)]
    return metrics


def _folders(evaluation: Evaluation) -> list[Path]:
    return [] if evaluation.run is None else RunFolder(evaluation.run).snapshot_folders()
