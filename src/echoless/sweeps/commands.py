"""Which commands does a trial run? Arguments of `echoless`, with a placeholder for the trial's folder.

A trial is resumed only if its commands equal the recorded ones, so the order of options is part of the format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echoless.config.checks import require_whole
from echoless.config.options import SweepOptions
from echoless.config.options.evaluate import INCEPTION
from echoless.config.shapes import count_and_split

RUN = "{run}"  # a word that begins so stands for the trial's own folder: `{run}`, `{run}-tuned`
BESIDE = f"{RUN}/../"  # a word that begins so, for a folder that all trials share
Words = tuple[str, ...]
_FROM_OPTIONS = (
    *("train", "test", "labels", "test_labels", "classes", "masks", "test_masks", "mask_classes"),
    *("latent", "extractor", "reference"),
)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What the user gave: images to train and to test on, their labels, and the number of seeds."""

    data: str
    train: str | None = None  # labelled images to learn from, where they are not DATA
    test: str | None = None
    labels: str | None = None
    test_labels: str | None = None
    seeds: int = 3
    device: str | None = None
    classes: str | None = None
    masks: str | None = None
    test_masks: str | None = None
    mask_classes: str | None = None
    latent: str | None = None  # autoencoder of diffusion models
    extractor: str | None = None  # network whose features compare samples with images
    reference: str | None = None
    max_steps: int | None = None  # of every training, where it is not the experiment's own
    epochs: float | None = None  # the same

    @property
    def labelled(self) -> str:
        """What kNN, probes and fine-tuning learn from; --labels and --masks belong to it."""
        return self.train or self.data

    @property
    def data_labels(self) -> str | None:
        """The labels file of DATA."""
        return self.labels if self.train is None else None

    @property
    def through_inception(self) -> bool:
        """Whether samples are compared in the features of published FIDs."""
        return self.extractor is not None and self.extractor.startswith(INCEPTION)

    @property
    def built_in(self) -> bool:
        """Whether it is the built-in set, which has labels, masks and held-out images."""
        return count_and_split(self.data) is not None

    @staticmethod
    def of(data: str, options: SweepOptions) -> Inputs:
        require_whole("seeds", options.seeds, 1, 100)
        given = {name: getattr(options, name) for name in _FROM_OPTIONS}
        paths: dict[str, Any] = {name: str(path) for name, path in given.items() if path is not None}
        device = None if options.device == "auto" else options.device
        return Inputs(
            data=data,
            seeds=options.seeds,
            device=device,
            max_steps=options.max_steps,
            epochs=options.epochs,
            **paths,
        )


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


def option_of(words: Words, name: str) -> Words | None:
    """The values given for an option, `("10",)` for max_steps; empty for a flag, None where it is not given."""
    span = _span(words, name)
    return None if span is None else words[span.start + 1 : span.stop]


def with_options(words: Words, **options: Any) -> Words:
    """The command with these options, in the place of those of the same name or at the end; None removes one."""
    for name, value in options.items():
        span, spelt = _span(words, name), command("", **{name: value})[1:]
        words = (*words, *spelt) if span is None else (*words[: span.start], *spelt, *words[span.stop :])
    return words


def _span(words: Words, name: str) -> slice | None:
    """Where an option and its values are. No value begins with two dashes."""
    flags = [index for index, word in enumerate(words) if word.startswith("--")]
    spellings = {f"--{name.replace('_', '-')}", f"--no-{name.replace('_', '-')}"}
    for index, end in zip(flags, [*flags[1:], len(words)]):
        if words[index] in spellings:
            return slice(index, end)
    return None


def evaluate_command(inputs: Inputs, metrics: Sequence[str], **more: Any) -> Words:
    """`echoless evaluate` of the trial's run, without baselines: they would be the same for many runs."""
    data = {"train": inputs.labelled, "test": inputs.test, "labels": inputs.labels, "test_labels": inputs.test_labels}
    data |= {"classes": inputs.classes, "masks": inputs.masks, "test_masks": inputs.test_masks}
    data |= {"mask_classes": inputs.mask_classes}
    return command("evaluate", RUN, **data, metrics=tuple(metrics), device=inputs.device, baselines=False, **more)


def in_folder(word: str, run: Path) -> str:
    """The argument with the placeholder replaced by the folder `run`."""
    if word.startswith(BESIDE):
        return str(run.parent / word.removeprefix(BESIDE))
    return f"{run}{word.removeprefix(RUN)}" if word.startswith(RUN) else word
