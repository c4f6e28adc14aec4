"""Which rows of a published experiment are run? All, or those with the values that the user gave for its columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from echoless.errors import ConfigError
from echoless.sweeps.commands import option_of
from echoless.sweeps.experiment import Experiment
from echoless.sweeps.grid import Choices


def column(experiment: Experiment, name: str) -> list[Any]:
    """The values of a column that says, in every row, what `pretrain` is given; empty where there is no such column.

    A table that names its rows by the paper's alpha_min, or by the width of a ViT-B, is trained with other values.
    """
    rows = [(trial.settings.get(name), option_of(trial.commands[0], name)) for trial in experiment.trials]
    shown = list(dict.fromkeys(value for value, _ in rows))
    as_trained = all(trained == (str(value),) for value, trained in rows)
    return shown if as_trained and len(shown) > 1 else []


def selected(experiment: Experiment, wanted: Choices) -> Experiment:
    """Only the rows that have one of the wanted values in each of these columns."""
    for name, values in wanted.items():
        _require_there(experiment, name, values)
    kept = [
        trial for trial in experiment.trials if all(trial.settings[name] in values for name, values in wanted.items())
    ]
    return replace(experiment, trials=tuple(kept))


def _require_there(experiment: Experiment, name: str, values: list[Any]) -> None:
    there = column(experiment, name)
    for value in values:
        if value not in there:
            rows = f"the rows of {experiment.name} have {', '.join(map(str, there))}"
            raise ConfigError(f"{name} is {value}, but {rows}; choose among these")
