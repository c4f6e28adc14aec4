"""Which runs does a grid have? Every combination of the values given, each with every seed. No torch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from echoless.config import DataConfig, RuntimeConfig
from echoless.config.checks import nearest, require, require_number
from echoless.config.facts import DataFacts
from echoless.config.metrics import YIELDS
from echoless.config.options import PretrainOptions, SweepOptions
from echoless.config.options.fields import given
from echoless.config.options.sweep import SWEPT, SWEPT_SHORTCUTS
from echoless.recipes.resolve import resolve
from echoless.sweeps.commands import RUN, Inputs, Words, command, evaluate_command
from echoless.sweeps.experiment import Experiment, Quantity, Trial, trial_name

MOST_TRIALS = 10_000
EPOCHS = 100.0  # of the recipe auto where no length is given
ALPHA_MIN, RECIPE, METRICS = (1.0, 0.9, 0.8, 0.7, 0.6), "auto", ("knn", "linear", "rank")
Choices = dict[str, list[Any]]
SHORTCUTS = ("alpha_min", *SWEPT_SHORTCUTS)


def grid(data: str, options: SweepOptions) -> Experiment:
    """Refuses, before any work, whatever `pretrain` would refuse of any of its runs."""
    inputs, choices = Inputs.of(data, options), _choices(options)
    metrics, recipe = METRICS if options.metrics is None else options.metrics, options.recipe or RECIPE
    varied = [name for name, values in choices.items() if len(values) > 1 or name == "alpha_min"]
    trials: dict[str, Trial] = {}
    for chosen in _combinations(choices):
        _check(chosen, options)
        for seed in range(options.seeds):
            settings = {name: chosen[name] for name in varied if name in chosen} | {"seed": seed}
            trial = Trial(
                name=trial_name(settings),
                settings=settings,
                commands=(_pretrain_command(inputs, options, chosen, seed), evaluate_command(inputs, metrics)),
                cost=float(chosen.get("depth", 1)) * float(chosen.get("width", 1)) ** 2,
            )
            trials.setdefault(trial.name, trial)
    ordered = sorted(trials.values(), key=lambda trial: trial.settings["seed"])
    fixed = [f", {name} {values[0]}" for name, values in choices.items() if name not in varied]
    title = f"{' x '.join(varied)} on {data}, recipe {recipe}{''.join(fixed)}"
    columns = [YIELDS[name][0] for name in dict.fromkeys(metrics) if YIELDS[name]]
    quantities = tuple(Quantity(metric=metric) for metric in columns)
    contrast = tuple(name for name in SHORTCUTS if len(choices.get(name, ())) > 1) or tuple(varied)
    return Experiment(name="grid", title=title, trials=tuple(ordered), quantities=quantities, contrast=contrast)


def _pretrain_command(inputs: Inputs, options: SweepOptions, chosen: Mapping[str, Any], seed: int) -> Words:
    return command(
        "pretrain",
        inputs.data,
        out=RUN,
        recipe=options.recipe or RECIPE,
        **_length(options),
        labels=inputs.data_labels,
        classes=inputs.classes,
        latent=inputs.latent,
        **chosen,
        seed=seed,
        device=inputs.device,
        resume=True,
    )


def _length(options: SweepOptions) -> dict[str, Any]:
    """The runs of a sweep have one length, so `auto` must not measure the time of each."""
    unsaid = (options.recipe or RECIPE) == "auto" and options.epochs is None and options.max_steps is None
    return {"epochs": EPOCHS if unsaid else options.epochs, "max_steps": options.max_steps}


def _choices(options: SweepOptions) -> Choices:
    swept = ALPHA_MIN if options.alpha_min is None else options.alpha_min
    require(bool(swept), "alpha_min", swept, "one or more numbers in [0, 1]")
    for value in swept:
        require_number("alpha_min", value, 0, 1)
    choices: Choices = {"alpha_min": [float(value) for value in dict.fromkeys(swept)]}
    if options.batch_size is not None:
        choices["batch_size"] = [options.batch_size]
    choices |= parse_over(options.over, taken=choices)
    require_few(options.seeds, choices)
    return choices


def parse_over(over: Iterable[str], taken: Container[str] = ()) -> Choices:
    """`NAME=VALUE,VALUE` for each setting of --over; `taken` are settings that have another option."""
    choices: Choices = {}
    known = [name for name in SWEPT if name in {field.name for field in fields(PretrainOptions)}]
    for setting in over:
        name, _, values = setting.partition("=")
        name = name.strip().replace("-", "_")
        allowed = f"NAME=VALUE,VALUE with a name of {', '.join(known)}{nearest(name, known)}"
        require(name in known and bool(values.strip(", ")), "over", setting, allowed)
        require(name not in choices and name not in taken, "over", setting, "each setting once")
        choices[name] = list(dict.fromkeys(_value(text.strip()) for text in values.split(",") if text.strip()))
    return choices


def require_few(runs: int, choices: Choices) -> None:
    count = runs * math.prod(len(values) for values in choices.values())
    require(count <= MOST_TRIALS, "the number of runs", count, f"at most {MOST_TRIALS}")


def _combinations(choices: Choices) -> Iterator[dict[str, Any]]:
    """alpha_min applies only to the faded variant: other variants are run once, not once per alpha_min."""
    for values in itertools.product(*choices.values()):
        chosen = dict(zip(choices, values))
        if chosen.get("variant", "faded") != "faded":
            del chosen["alpha_min"]
        yield chosen


def _check(chosen: Mapping[str, Any], options: SweepOptions) -> None:
    """What `pretrain` checks before it looks at the data."""
    names = ("epochs", "max_steps", "accumulate", "workers", "latent")
    require_trainable({**given(options, *names), "recipe": options.recipe or RECIPE, **chosen})


def require_trainable(settings: Mapping[str, Any]) -> None:
    """Refuses settings that `pretrain` would refuse for any data."""
    wanted = PretrainOptions("DATA", out="OUT", **settings)
    RuntimeConfig(**given(wanted, "workers"))
    resolve(wanted, DataFacts(3, 64, 64, 1000, classes=10), DataConfig())


def _value(text: str) -> Any:
    """12, 0.5, true, or the word itself."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)
