"""What was a run started with? Its recorded settings, which --resume and --config keep where nothing is given.

No torch: a resume that cannot be is refused before anything heavy is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from echoless.config import RunConfig, from_dict
from echoless.config.addresses import without_secrets
from echoless.config.counts import counted
from echoless.config.options import FinetuneOptions, PretrainOptions
from echoless.config.options.fields import AnyPath, filled, flag
from echoless.config.options.remembered import Remembered
from echoless.config.training import started_by
from echoless.errors import DataError, EcholessError, RunError
from echoless.storage.jsonfile import read_json_object
from echoless.verbs.early import is_missing

if TYPE_CHECKING:
    from echoless.data import Images

Options = TypeVar("Options", PretrainOptions, FinetuneOptions)
_INPUTS = ("data", "labels", "test", "test_labels", "probe_data", "probe_labels")  # that a run may have recorded


@dataclass(frozen=True)
class Record:
    """RUN/config.json, and what RUN/about.json remembers. `repeats`: of another run, which --config names."""

    config: RunConfig
    remembered: Remembered
    repeats: bool = False


def read_record(options: PretrainOptions | FinetuneOptions) -> Record | None:
    """Of the run to be resumed, else of the one to be repeated; None where there is neither, or nothing recorded."""
    out = Path(options.out)
    if not options.resume or options.overwrite or not (out / "config.json").is_file():
        return None if options.config is None else _read_repeated(Path(options.config))
    try:
        config = from_dict(RunConfig, read_json_object(out / "config.json"))
    except EcholessError:  # the checkpoints hold it too, and will say what differs
        return None
    return Record(config, _read_remembered(out))


def _read_repeated(file: Path) -> Record:
    file = file / "config.json" if file.is_dir() else file
    if not file.is_file():
        raise RunError(f"config is {str(file)!r}, which does not exist; give RUN/config.json of a run")
    return Record(from_dict(RunConfig, read_json_object(file), str(file)), _read_remembered(file.parent), repeats=True)


def _read_remembered(run: Path) -> Remembered:
    about = read_json_object(run / "about.json") if (run / "about.json").is_file() else {}
    known = dict(about.get("runtime", {}))
    if known.pop("tensorboard", False):  # as runs of version 0.1 have it
        known["track"] = ["tensorboard"]
    return from_dict(Remembered, known, f"{run / 'about.json'}: runtime")


def with_remembered(options: Options, record: Record | None) -> Options:
    """The options; what is not given and not part of the config is as it was recorded."""
    if record is None:
        return options
    known = record.remembered.to_json()
    return filled(options, {name: value for name, value in known.items() if hasattr(options, name)})


def require_found(asked: Options, options: Options, record: Record | None) -> None:
    """What was not asked for and is recorded by a relative path may lead nowhere from this folder."""
    if record is None:
        return
    run = asked.config if record.repeats else asked.out
    for name in _INPUTS:
        path = getattr(options, name, None)
        if path is None or getattr(asked, name) is not None or path == "none" or not is_missing(str(path)):
            continue
        word = "DATA" if name == "data" else flag(name)
        raise DataError(f"{run} records {word} {str(path)!r}, which is not found from this folder; give {word}")


def require_verb(verb: str, options: PretrainOptions | FinetuneOptions, record: Record | None) -> None:
    """A run is continued, or repeated, by the verb that started it."""
    if record is None:
        return
    started = started_by(record.config.recipe)
    if started != verb and record.repeats:
        raise RunError(f"{options.config} is of a run that was started by {started}; give it to echoless {started}")
    if started != verb:
        raise RunError(f"the run in {options.out} was started by {started}; continue it with echoless {started}")


def require_same_start(name: str, given: AnyPath | None, record: Record | None) -> None:
    """The weights a run started from cannot change. A folder that has been moved since is not another one."""
    recorded = record.remembered.init if record is not None else None
    if record is None or record.repeats or given is None or recorded is None or not Path(recorded).exists():
        return
    if Path(given).resolve() != Path(recorded).resolve():
        raise RunError(
            f"{name} is {str(given)!r}, but the run being resumed started from {str(recorded)!r}; give the same"
        )


def require_same_images(name: str, options: Options, images: Images, record: Record | None) -> None:
    """A run that is resumed goes on with its images, unless the user says so: two sets would be mixed in one run.

    Also where files were added, removed or replaced in the same place. What counts is content, by its fingerprint.
    """
    if record is None or record.repeats or options.new_data:
        return
    data, given = record.config.data, without_secrets(str(getattr(options, name)))
    if data.fingerprint in ("", images.fingerprint):
        return
    raise DataError(
        f"{name} is {given!r} ({_set(images.usable, images.fingerprint)}), but the run being resumed was trained on "
        f"{data.path!r} ({_set(data.count, data.fingerprint)}); give the same images, or --new-data to go on with these"
    )


def _set(count: int, fingerprint: str) -> str:
    return f"{counted(count, 'image')}, fingerprint {fingerprint[:12]}"
