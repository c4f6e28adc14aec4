"""What is in a run folder, and who may write into it?

    RUN/config.json  metrics.jsonl  log.txt  about.json  results.json  report.html  taught.bin
    RUN/checkpoints/  RUN/encoder/  RUN/snapshots/step-00000123/  RUN/tensorboard/  RUN/wandb/

`open_run` is for training: it locks the folder, so that two processes never train into one. `RunFolder(path)` alone
reads, and writes what other verbs add (results, the encoder); it takes no lock.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from torch import Tensor

from echoless.errors import RunError
from echoless.runs import checkpoint
from echoless.runs.checkpoint import STEP_FOLDER, Found, folder_of
from echoless.runs.journal import Journal, MetricsJournal
from echoless.runs.results import merge_results, read_results, remove_results
from echoless.runs.taught import TAUGHT, mark_of
from echoless.runs.weights import save_weights
from echoless.storage.atomic import (
    clear_leftovers,
    discard_folder,
    explained,
    is_leftover,
    remove,
    sync_folder,
    temporary_beside,
    write_bytes,
)
from echoless.storage.jsonfile import read_json_object, write_json
from echoless.storage.lock import FileLock, is_locked
from echoless.storage.owned import require_ours, strangers

LOCK = ".lock"
_STEP = "step-" + 8 * "[0-9]"
SET_ASIDE = f"results-{_STEP}.json"  # numbers of a run that was complete and then continued
# What `sample` writes into its folder, as patterns.
SAMPLES = (
    *("samples.json", "samples.npz", "grid.png", LOCK),
    *(f"{digits * '[0-9]'}.png" for digits in (6, 7, 8)),
    f"parts/{8 * '[0-9]'}-{8 * '[0-9]'}.npy",
)
# Everything that a run may hold, as patterns: somebody else may have put a file into any of its folders.
_WRITTEN = (
    *("metrics.jsonl", "log.txt", "about.json", "results.json", ".results.json.lock", "results-removed.json"),
    *(SET_ASIDE, "report.html", TAUGHT, "encoder/model.safetensors", "encoder/config.json"),
    *(f"figures/{name}.png" for name in ("data", "grid", "spectral-*", "neighbours-*", "tsne", "reconstructions")),
    *("figures/tsne.json", "figures/tsne-images.jpg", f"features/{32 * '[0-9a-f]'}/*", f"snapshots/{_STEP}/*"),
    *("tensorboard/events.out.tfevents.*", "wandb/id.txt", "wandb/debug*.log", "wandb/latest-run"),
    *("wandb/run-*", "wandb/offline-run-*", *(f"samples/*/{name}" for name in SAMPLES)),
    *("checkpoints/latest", f"checkpoints/{_STEP}/*", "config.json", LOCK),
)
# What --overwrite deletes, in this order: the last two go last, so that a folder in which a deletion was interrupted
# still looks like a run. The lock stays.
_ENTRIES = tuple(dict.fromkeys(pattern.split("/")[0] for pattern in _WRITTEN if pattern != LOCK))


class RunFolder:
    """The one place where a run's files are named, written and read."""

    def __init__(self, path: Path, lock: FileLock | None = None, *, created: Sequence[Path] = ()) -> None:
        """`created`: the folders that this process made for it, itself first, then its parents."""
        self.path = Path(path)
        self._created = created
        self.metrics = MetricsJournal(self.path / "metrics.jsonl")
        self._log = Journal(self.path / "log.txt")
        self._lock = lock

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def encoder(self) -> Path:
        return self.path / "encoder"

    @property
    def snapshots(self) -> Path:
        return self.path / "snapshots"

    def write_config(self, config: Mapping[str, Any]) -> None:
        write_json(self.path / "config.json", dict(config))

    def read_config(self) -> dict[str, Any]:
        return read_json_object(self.path / "config.json")

    def write_about(self, about: Mapping[str, Any]) -> None:
        """Where, when and how long it ran: the one file in which equal runs differ."""
        write_json(self.path / "about.json", dict(about))

    def read_about(self) -> dict[str, Any]:
        """What `write_about` wrote; nothing where nothing was."""
        path = self.path / "about.json"
        return read_json_object(path) if os.path.lexists(path) else {}

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """One line of metrics.jsonl; give it a "step"."""
        self.metrics.record(record)

    def read_metrics(self) -> list[dict[str, Any]]:
        return list(self.metrics.read())

    def truncate_metrics(self, step: int) -> None:
        """On resume: drop what was recorded after `step`."""
        self.metrics.truncate_after(step)

    def log(self, text: str) -> None:
        """Append to log.txt, whole lines at a time. No time stamp: equal runs are equal bytes."""
        self._log.append(text.rstrip("\n").encode(errors="replace") + b"\n")

    def add_results(self, records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Merge metric records into results.json, by metric and protocol; returns all of them."""
        return merge_results(self.path / "results.json", records)

    def remove_results(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Move metric records to results-removed.json."""
        when = datetime.now(UTC).isoformat(timespec="seconds")
        remove_results(self.path / "results.json", self.path / "results-removed.json", records, when)

    def read_results(self) -> list[dict[str, Any]]:
        return read_results(self.path / "results.json")

    def save_checkpoint(
        self,
        step: int,
        tensors: Mapping[str, Mapping[str, Tensor]],
        state: Mapping[str, Any],
        manifest: Mapping[str, Any],
        keep: int = checkpoint.FEWEST_KEPT,
    ) -> Path:
        """`checkpoint.save_checkpoint`, after the metrics up to this step are safe on the disk."""
        self.metrics.sync()
        with explained(self.checkpoints):
            self.checkpoints.mkdir(exist_ok=True)
        return checkpoint.save_checkpoint(
            self.checkpoints, step, tensors, state, {**manifest, **mark_of(self.path)}, keep
        )

    def find_latest_valid(self) -> Found | None:
        return checkpoint.find_latest_valid(self.checkpoints)

    def save_encoder(
        self, tensors: Mapping[str, Tensor], config: Mapping[str, Any], shortcuts: Mapping[str, Any]
    ) -> None:
        save_weights(self.encoder, tensors, {**config, **mark_of(self.path)}, shortcuts)

    def set_results_aside(self, step: int) -> Path | None:
        """Before a complete run goes on: its numbers are of the weights after `step`, and stay under that name.

        Returns their file; None where nothing was measured.
        """
        if not (self.path / "results.json").exists():
            return None
        with explained(self.path):
            return (self.path / "results.json").replace(self.path / f"results-step-{step:08d}.json")

    def drop_encoder(self) -> None:
        """Before a complete run goes on: its encoder is no longer the result."""
        with explained(self.encoder):
            remove(self.encoder)

    def save_snapshot(
        self, step: int, tensors: Mapping[str, Tensor], config: Mapping[str, Any], shortcuts: Mapping[str, Any]
    ) -> Path:
        """An encoder-only snapshot, for measurements over training; it is never pruned."""
        with explained(self.snapshots):
            self.snapshots.mkdir(exist_ok=True)
        folder = folder_of(self.snapshots, step)
        save_weights(folder, tensors, {**config, **mark_of(self.path)}, shortcuts)
        return folder

    def snapshot_folders(self) -> list[Path]:
        """Every snapshot, oldest first."""
        if not self.snapshots.is_dir():
            return []
        return sorted(path for path in self.snapshots.iterdir() if STEP_FOLDER.fullmatch(path.name))

    def drop_snapshots_after(self, step: int) -> None:
        """On resume: remove snapshots of steps that will be trained again."""
        for folder in self.snapshot_folders():
            if int(folder.name[len("step-") :]) > step:
                with explained(folder):
                    discard_folder(folder)

    def close_unused(self) -> None:
        """Close after a refused start: a folder that this process created and nothing was written into is removed."""
        nothing = bool(self._created) and all(_is_nothing(path) for path in self.path.iterdir())
        self.close()
        if nothing:
            with explained(self.path):
                remove(self.path)
            for folder in self._created[1:]:
                with suppress(OSError):  # somebody else uses it by now
                    folder.rmdir()

    def close(self) -> None:
        """Close the files and let the next process in."""
        self.metrics.close()
        self._log.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_run(out: Path, *, resume: bool = False, overwrite: bool = False) -> RunFolder:
    """Open RUN for training, before any work is done: it exists, is ours alone, can be written, and holds no other run.

    A folder that holds something is refused unless `resume` or `overwrite`; `overwrite` deletes a run and nothing else.
    With several processes, only rank 0 opens it.
    """
    out = Path(out)
    if resume and overwrite:
        raise RunError(f"{out} cannot be both resumed and overwritten; give one of --resume and --overwrite")
    with explained(out):
        if out.exists() and not out.is_dir():
            raise RunError(f"{out} is not a folder; give --out a folder")
        created = [folder for folder in (out, *out.parents) if not folder.exists()]
        out.mkdir(parents=True, exist_ok=True)
    # Before the lock, so that a folder of somebody else does not even get a lock file; and after it, when nobody else
    # can change the answer.
    _check_content(out, resume, overwrite)
    lock = FileLock(out / LOCK, busy=f"{out} is being trained by another process; wait for it, or give another --out")
    try:
        _check_content(out, resume, overwrite)
        _prepare(out, overwrite, lock.held)
    except BaseException:
        lock.release()
        raise
    return RunFolder(out, lock, created=created)


def require_removable(path: Path) -> None:
    """Refuses to remove anything but a run that holds only what echoless wrote and that nobody trains."""
    if found := strangers(path, _WRITTEN):
        raise RunError(f"{path} is not removed: it also holds {', '.join(found[:5])}; move that away first")
    if path.is_symlink():
        raise RunError(f"{path} is not removed: it is a link; give the folder that it points to")
    if is_locked(path / LOCK):
        raise RunError(f"{path} is not removed: it is being trained by another process")


def remove_run(path: Path) -> None:
    """Deletes a run; a kill on the way leaves a leftover, never a run with half its files."""
    require_removable(path)
    lock = FileLock(path / LOCK, busy=f"{path} is not removed: it is being trained by another process")
    try:
        with explained(path):
            discard_folder(path)
    finally:
        lock.release()


def check_run(out: Path, *, overwrite: bool = False) -> None:
    """What `open_run` would refuse for what the folder holds, without touching it: for work that must come first."""
    if Path(out).is_dir():
        _check_content(Path(out), resume=False, overwrite=overwrite)


def _check_content(out: Path, resume: bool, overwrite: bool) -> None:
    with explained(out):
        present = {path.name for path in out.iterdir() if not _is_nothing(path)}
    looks_like_a_run = bool(present & {"config.json", "checkpoints"})
    if not present:
        return
    if overwrite:
        require_ours(out, _WRITTEN)
        if not looks_like_a_run:
            raise RunError(f"{out} is not overwritten: it does not look like a run; give another --out")
    if resume and not looks_like_a_run and present - set(_entries(present)):
        raise RunError(f"{out} cannot be resumed: it has neither config.json nor checkpoints; give --out a run")
    if not resume and not overwrite:
        how = "--resume to continue the run in it, --overwrite to replace it, or " if looks_like_a_run else ""
        raise RunError(f"{out} is not empty (it holds {', '.join(sorted(present)[:5])}); give {how}another --out")


def _entries(names: Iterable[str]) -> list[str]:
    """Those of the names that a run may hold, in the order in which they are deleted."""
    present = sorted(names)
    return [name for entry in _ENTRIES for name in present if fnmatchcase(name, entry)]


def _is_nothing(path: Path) -> bool:
    """What a run that was killed before its first step leaves, and what a rerun may ignore."""
    unused = path.name == "checkpoints" and path.is_dir() and not any(path.iterdir())
    return path.name == LOCK or is_leftover(path) or unused


def _prepare(out: Path, overwrite: bool, locked: bool) -> None:
    """The same writes a save will do, now: a read-only folder must fail before the first step, not after an epoch."""
    checkpoints = out / "checkpoints"
    _probe(out)
    if overwrite:
        for name in _entries(path.name for path in out.iterdir()):
            with explained(out / name):
                remove(out / name)
    clear_leftovers(out)  # other verbs write here without the lock
    for folder in (checkpoints, out / "snapshots"):
        clear_leftovers(folder, locked=locked)
    with explained(checkpoints):
        checkpoints.mkdir(exist_ok=True)
        sync_folder(out)
    _probe(checkpoints)


def _probe(folder: Path) -> None:
    # Named like a leftover, so that a kill in this instant leaves nothing that the next start would stumble over.
    probe = temporary_beside(folder / "probe")
    with explained(folder):
        write_bytes(probe, b"can this folder be written?\n")
        remove(probe)
