"""What was the run in --out started with? Its recorded settings, which --resume keeps where nothing is given.

No torch: a resume that cannot be is refused before anything heavy is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from echoless.config import RunConfig, from_dict
from echoless.config.options import FinetuneOptions, PretrainOptions
from echoless.config.options.fields import AnyPath, filled
from echoless.config.options.remembered import Remembered
from echoless.errors import EcholessError, RunError
from echoless.storage.jsonfile import read_json_object

Options = TypeVar("Options", PretrainOptions, FinetuneOptions)


@dataclass(frozen=True)
class Record:
    """RUN/config.json, and what RUN/about.json remembers."""

    config: RunConfig
    remembered: Remembered


def read_record(options: PretrainOptions | FinetuneOptions) -> Record | None:
    """None where nothing is to be resumed, or nothing was recorded yet."""
    out = Path(options.out)
    if not options.resume or options.overwrite or not (out / "config.json").is_file():
        return None
    try:
        config = from_dict(RunConfig, read_json_object(out / "config.json"))
    except EcholessError:  # the checkpoints hold it too, and will say what differs
        return None
    about = read_json_object(out / "about.json") if (out / "about.json").is_file() else {}
    return Record(config, from_dict(Remembered, about.get("runtime", {}), f"{out / 'about.json'}: runtime"))


def with_remembered(options: Options, record: Record | None) -> Options:
    """The options; what is not given and not part of the config is as it was recorded."""
    if record is None:
        return options
    known = record.remembered.to_json()
    return filled(options, {name: value for name, value in known.items() if hasattr(options, name)})


def require_verb(verb: str, options: PretrainOptions | FinetuneOptions, record: Record | None) -> None:
    """A run is continued by the verb that started it."""
    if record is None:
        return
    started = "finetune" if record.config.recipe == "finetune" else "pretrain"
    if started != verb:
        raise RunError(f"the run in {options.out} was started by {started}; continue it with echoless {started}")


def require_same_start(name: str, given: AnyPath | None, record: Record | None) -> None:
    """The weights a run started from cannot change. A folder that has been moved since is not another one."""
    recorded = record.remembered.init if record is not None else None
    if given is None or recorded is None or not Path(recorded).exists():
        return
    if Path(given).resolve() != Path(recorded).resolve():
        raise RunError(
            f"{name} is {str(given)!r}, but the run being resumed started from {str(recorded)!r}; give the same"
        )
