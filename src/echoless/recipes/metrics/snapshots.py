"""How do features change over training? The same numbers at every snapshot of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from echoless.errors import RunError
from echoless.evaluation.encoder import from_folder
from echoless.recipes.metrics.bench import Bench, Subject
from echoless.runs import RunFolder
from echoless.training import choose_device


def check_snapshots(bench: Bench) -> None:
    if not _folders(bench):
        raise RunError("there are no snapshots to measure; train with --snapshot-every N")


def snapshots(bench: Bench) -> Iterator[Subject]:
    for folder in _folders(bench):
        encoder = from_folder(folder, str(choose_device(bench.options.device)), bench.encoder.noise)
        yield Subject(bench, "trained", encoder, {"step": int(folder.name.removeprefix("step-"))})


def _folders(bench: Bench) -> list[Path]:
    return [] if bench.run is None else RunFolder(bench.run).snapshot_folders()
