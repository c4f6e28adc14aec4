"""What does the report read from a run folder? Plain values; missing or damaged files are noted, not refused.

A report may be made while a run trains, after it was killed, or of an imported model: every file is optional.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from echoless.config.metrics import Metric
from echoless.errors import EcholessError, RunError
from echoless.runs import RunFolder, checkpoint_folders
from echoless.runs.folder import LOCK
from echoless.runs.journal import MetricsJournal
from echoless.shortcuts import alphas
from echoless.storage import read_json_object
from echoless.storage.jsonfile import open_untrusted, read_small
from echoless.storage.lock import is_locked
from echoless.storage.tensorfile import read_tensors

PICTURE_LIMIT = 16 * 2**20  # bytes; a larger file is not looked at
MOST_ON_A_MAP = 65_535  # points, and any index among them
_SIGNATURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}
# Any of these makes a folder a run. config.json alone does not: models of every library have one.
_MARKS = ("metrics.jsonl", "results.json", "checkpoints")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Picture:
    """A PNG or JPEG file as it is on the disk."""

    data: bytes
    kind: str


@dataclass(frozen=True)
class Series:
    """A quantity over the steps of a run."""

    steps: list[int]
    values: list[float]

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, kw_only=True)
class RunData:
    """A run as it was found."""

    path: Path
    name: str
    config: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    alphas: tuple[float, ...] = ()
    lines: list[dict[str, Any]] = field(default_factory=list)
    results: list[Metric] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    pictures: dict[str, Picture] = field(default_factory=dict)
    map: dict[str, Any] | None = None
    saved_step: int = 0  # that of the newest checkpoint
    alive: bool | None = None  # whether a process trains it now; None where that is not known
    troubles: list[str] = field(default_factory=list)

    def series(self, key: str) -> Series:
        """The finite numbers under `key` in metrics.jsonl; "feature_norm/block03" looks one level down."""
        outer, _, inner = key.partition("/")
        steps, values = [], []
        for line in self.lines:
            value = line.get(outer)
            if inner:
                value = value.get(inner) if isinstance(value, dict) else None
            if is_number(value) and is_whole(line.get("step")):
                steps.append(line["step"])
                values.append(float(value))
        return Series(steps, values)

    def blocks(self, key: str) -> list[str]:
        """The names inside a quantity that has one value per block, in order."""
        return sorted({name for line in self.lines if isinstance(line.get(key), dict) for name in line[key]})

    @cached_property
    def steps_done(self) -> int:
        """Not every step has a line: a run that was stopped has saved some that have none."""
        recorded = max((line["step"] for line in self.lines if is_whole(line.get("step"))), default=0)
        return max(recorded, self.saved_step)

    @property
    def steps(self) -> int | None:
        steps = self.config.get("steps")
        return steps if is_whole(steps) and steps > 0 else None

    @property
    def newest_results(self) -> list[Metric]:
        """Without those of checkpoints before the newest: what starts from this run starts from other weights."""
        last = self.saved_step
        return [metric for metric in self.results if metric.protocol.get("checkpoint", last) == last]

    @property
    def seed(self) -> Any:
        return self.config.get("seed")

    @property
    def complete(self) -> bool:
        return self.steps is not None and self.steps_done >= self.steps


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a finite number that fits a float; JSON has integers that do not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and is_number(value)


def printable_path(path: Path) -> str:
    """A path as text for any page or address: bytes that are no UTF-8 are written as \\xff."""
    return os.fsencode(path.as_posix()).decode(errors="backslashreplace")


def looks_like_a_run(path: Path) -> bool:
    return any((path / name).exists() for name in _MARKS)


def collect(path: Path, name: str | None = None) -> RunData:
    """Read what is there. Only a folder that is not a run is refused."""
    if not path.is_dir():
        raise RunError(f"{path} does not exist or is not a folder; give a run folder")
    if not looks_like_a_run(path):
        raise RunError(f"{path} is not a run: it has none of {', '.join(_MARKS)}")
    troubles: list[str] = []

    def attempt(file: str, read: Callable[[], Value], otherwise: Value) -> Value:
        try:
            return read()
        except EcholessError as error:
            troubles.append(str(error))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            troubles.append(f"{path / file} cannot be read: {type(error).__name__}: {error}")
        return otherwise

    run = RunFolder(path)
    nothing: dict[str, Any] = {}
    config = attempt("config.json", lambda: run.read_config() if (path / "config.json").exists() else {}, nothing)
    manifest = attempt("checkpoints", lambda: _manifest(path), nothing)
    return RunData(
        path=path,
        name=name or printable_path(Path(path.resolve().name)),
        config=config,
        about=attempt("about.json", run.read_about, nothing),
        environment=_mapping(manifest.get("environment")),
        alphas=attempt("config.json", lambda: _alphas(path, config, manifest), ()),
        lines=attempt("metrics.jsonl", lambda: _lines(run.metrics, troubles), []),
        results=attempt("results.json", lambda: _results(run, troubles), []),
        log=attempt("log.txt", lambda: _log(path), []),
        pictures=attempt("figures", lambda: _pictures(path, troubles), {}),
        map=attempt("figures/tsne.json", lambda: _map(path), None),
        saved_step=manifest["step"] if is_whole(manifest.get("step")) else 0,
        alive=is_locked(path / LOCK),
        troubles=troubles,
    )


def collect_all(paths: list[Path]) -> list[RunData]:
    """Every run under a unique name: that of its folder, with as many parents as needed."""
    resolved = [path.resolve() for path in paths]
    if len(set(resolved)) < len(resolved):
        raise RunError(f"{_given_twice(paths, resolved)} is given twice; give each run once")
    for parts in range(1, 64):
        names = [printable_path(Path(*path.parts[-parts:])) for path in resolved]
        if len(set(names)) == len(names):
            break
    return [collect(path, name) for path, name in zip(paths, names)]


def _given_twice(paths: list[Path], resolved: list[Path]) -> Path:
    return next(path for path, real in zip(paths, resolved) if resolved.count(real) > 1)


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _manifest(path: Path) -> dict[str, Any]:
    """The manifest of the newest checkpoint. The weights are not verified."""
    folders = checkpoint_folders(path / "checkpoints") if (path / "checkpoints").is_dir() else []
    for folder in sorted(folders, reverse=True):
        if (folder / "MANIFEST.json").exists():
            return read_json_object(folder / "MANIFEST.json")
    return {}


def _alphas(path: Path, config: dict[str, Any], manifest: dict[str, Any]) -> tuple[float, ...]:
    """Alphas stored with the weights; before the first checkpoint, from the config; learned ones, from the encoder."""
    record = _mapping(manifest.get("shortcuts"))
    values = record.get("alphas")
    if isinstance(values, list) and values and all(is_number(value) for value in values):
        return tuple(float(value) for value in values)
    model = _mapping(config.get("model"))
    encoder = _mapping(model.get("encoder")) or model
    shortcuts = _mapping(encoder.get("shortcuts"))
    if shortcuts.get("variant") == "faded" and isinstance(encoder.get("depth"), int):
        wanted = {name: shortcuts[name] for name in ("alpha_min", "schedule", "per", "fade") if name in shortcuts}
        return alphas(encoder["depth"], **wanted)
    if shortcuts.get("variant") == "learnable" and (path / "encoder" / "model.safetensors").exists():
        tensors, _ = read_tensors(path / "encoder" / "model.safetensors")
        return tuple(float(tensor) for name, tensor in sorted(tensors.items()) if name.endswith("alpha"))
    return ()


def _lines(metrics: MetricsJournal, troubles: list[str]) -> list[dict[str, Any]]:
    """Up to the first line that cannot be read."""
    lines = []
    try:
        for line in metrics.read():
            lines.append(line)
    except EcholessError as error:
        troubles.append(f"{error}; the lines before it are shown")
    return lines


def _results(run: RunFolder, troubles: list[str]) -> list[Metric]:
    metrics = []
    for record in run.read_results():
        if not is_number(record["value"]):
            troubles.append(f"{run.path / 'results.json'} has a {record['metric'][:40]} without a finite value")
            continue
        interval: Any = record.get("interval")
        whole = isinstance(interval, list) and len(interval) == 2 and all(is_number(end) for end in interval)
        metrics.append(
            Metric(
                metric=record["metric"],
                value=record["value"],
                n=record["n"] if isinstance(record.get("n"), int) else 0,
                interval=(interval[0], interval[1]) if whole else None,
                protocol=record["protocol"],
                right=record["right"] if isinstance(record.get("right"), str) else "",
                groups=record.get("groups"),
            )
        )
    return metrics


def _log(path: Path) -> list[str]:
    if not (path / "log.txt").exists():
        return []
    return read_small(path / "log.txt").decode(errors="replace").splitlines()


def _pictures(path: Path, troubles: list[str]) -> dict[str, Picture]:
    """Every PNG and JPEG that the verbs left: RUN/figures/*, and the grid of samples."""
    found: dict[str, Picture] = {}
    files = [*sorted((path / "figures").glob("*")), path / "samples" / "grid.png", path / "samples.png"]
    for file in files:
        if file.suffix not in (".png", ".jpg") or not file.is_file() or file.is_symlink():
            continue
        picture = _picture(file)
        if picture is None:
            troubles.append(f"{file} is not a PNG or JPEG of at most {PICTURE_LIMIT} bytes: left out")
        else:
            found["samples" if file.parent.name == "samples" else file.stem] = picture
    return found


def _picture(file: Path) -> Picture | None:
    with open_untrusted(file) as opened:
        data = opened.read(PICTURE_LIMIT + 1)
    kind = next((kind for mark, kind in _SIGNATURES.items() if data.startswith(mark)), None)
    return None if kind is None or len(data) > PICTURE_LIMIT else Picture(data, kind)


def _map(path: Path) -> dict[str, Any] | None:
    file = path / "figures" / "tsne.json"
    if not file.exists():
        return None
    record = json.loads(read_small(file))
    count = len(record["x"])
    lengths = (len(record["y"]), len(record["names"]), len(record["labels"] or record["x"]))
    if set(lengths) != {count} or not count or len(record["neighbours"]) % count:
        raise ValueError("its lists have different lengths")
    _require_drawable(record)
    return record  # type: ignore[no-any-return]


def _require_drawable(record: dict[str, Any]) -> None:
    """Every value of a map is of the kind and size that a page can hold."""
    for key in ("x", "y"):
        if not all(is_number(value) for value in record[key]):
            raise ValueError(f"{key} has a value that is not a number")
    for key in ("neighbours", "labels", "tile"):
        if not all(is_whole(value) and -1 <= value <= MOST_ON_A_MAP for value in record[key] or ()):
            raise ValueError(f"{key} has a value that is not a whole number up to {MOST_ON_A_MAP}")
    names, tile = record.get("class_names"), record["tile"]
    if not (names is None or isinstance(names, list)) or len(tile) != 2 or min(tile) < 1:
        raise ValueError("class_names is not a list, or tile is not a height and a width")
    if not (is_whole(record["columns"]) and 1 <= record["columns"] <= MOST_ON_A_MAP):
        raise ValueError(f"columns is not a whole number from 1 to {MOST_ON_A_MAP}")
