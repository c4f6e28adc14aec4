"""What is typed after `echoless` in a trial? Words, in which the trial's own folder is left open.

Trials are resumed by comparing their words with those that were begun: the order of options is part of the format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echoless.config.checks import require_whole
from echoless.config.options import SweepOptions

RUN = "{run}"  # a word that begins so stands for the trial's own folder: `{run}`, `{run}-tuned`
BESIDE = f"{RUN}/../"  # a word that begins so, for a folder that all trials share
Words = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What the user gave: images to train and to test on, their labels, and the number of seeds."""

    data: str
    test: str | None = None
    labels: str | None = None
    test_labels: str | None = None
    seeds: int = 3
    device: str | None = None

    @property
    def built_in(self) -> bool:
        """Whether it is the built-in set, which has labels, masks and held-out images."""
        from echoless.data.synthetic import parse_shapes  # with torch, which a grid does not need

        return parse_shapes(self.data) is not None

    @staticmethod
    def of(data: str, options: SweepOptions) -> Inputs:
        require_whole("seeds", options.seeds, 1, 100)
        device = None if options.device == "auto" else options.device
        given = {name: getattr(options, name) for name in ("test", "labels", "test_labels", "seeds")}
        return Inputs(data=data, device=device, **given)


def command(verb: str, *positional: str, **options: Any) -> Words:
    """`("pretrain", "DATA", "--max-steps", "10")`: None is left out, True and False are `--flag` and `--no-flag`."""
    words = [verb, *positional]
    for name, value in options.items():
        flag = name.replace("_", "-")
        if value is True or value is False:
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, tuple | list):
            words += [f"--{flag}", *map(str, value)]
        elif value is not None:
            words += [f"--{flag}", str(value)]
    return tuple(words)


def evaluate_command(inputs: Inputs, metrics: Sequence[str], **more: Any) -> Words:
    """`echoless evaluate` of the trial's run, without baselines: they would be the same for many runs."""
    data = {"train": inputs.data, "test": inputs.test, "labels": inputs.labels, "test_labels": inputs.test_labels}
    return command("evaluate", RUN, **data, metrics=tuple(metrics), device=inputs.device, baselines=False, **more)


def in_folder(word: str, run: Path) -> str:
    """The word as it is typed where the trial's folder is `run`."""
    return f"{run}{word.removeprefix(RUN)}" if word.startswith(RUN) else word
