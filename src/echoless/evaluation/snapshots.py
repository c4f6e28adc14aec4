"""How do features change over training? The same numbers at every snapshot of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from echoless.config.metrics import Metric
from echoless.errors import RunError
from echoless.evaluation.bench import Bench, Subject
from echoless.evaluation.encoder import from_folder
from echoless.evaluation.registry import METRICS
from echoless.runs import RunFolder
from echoless.runtime import choose_device


def check_snapshots(bench: Bench) -> None:
    if not _folders(bench):
        raise RunError(f"{bench.run or bench.encoder.name} has no snapshots to measure; train with --snapshot-every N")


def measure_snapshots(bench: Bench, names: Sequence[str]) -> list[Metric]:
    """Those of the named metrics that are followed over training."""
    metrics: list[Metric] = []
    for folder in _folders(bench):
        encoder = from_folder(
            folder,
            str(choose_device(bench.options.device)),
            bench.encoder.noise,
            str(bench.options.latent) if bench.options.latent else None,
        )
        subject = Subject(bench, "trained", encoder, {"step": int(folder.name.removeprefix("step-"))})
        metrics += [metric for name in names if METRICS[name].snapshots for metric in METRICS[name].of(subject)]
    return metrics


def _folders(bench: Bench) -> list[Path]:
    return [] if bench.run is None else RunFolder(bench.run).snapshot_folders()
