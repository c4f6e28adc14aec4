"""Which runs does a grid have? Every combination of the values given, each with every seed. No torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from echoless.config import DataConfig
from echoless.config.checks import nearest, require, require_number
from echoless.config.facts import DataFacts
from echoless.config.metrics import YIELDS
from echoless.config.options import PretrainOptions, SweepOptions
from echoless.recipes.resolve import resolve
from echoless.sweeps.commands import RUN, Inputs, Words, command, evaluate_command
from echoless.sweeps.experiment import Experiment, Quantity, Trial, trial_name

MOST_TRIALS = 10_000
# Settings of pretrain that are one word each and decide the result.
SHORTCUTS = ("alpha_min", "variant", "schedule", "per", "fade")
SWEPT = (
    *SHORTCUTS[1:],
    *("decoder", "depth", "width", "decoder_depth", "zero_init"),
    *("mask_ratio", "normalize_pixels", "optimizer", "base_lr", "weight_decay", "warmup", "decay", "clip", "ema"),
    *("batch_size", "patch_size"),
)


def grid(data: str, options: SweepOptions) -> Experiment:
    """Refuses, before any work, whatever `pretrain` would refuse of any of its runs."""
    inputs, choices = Inputs.of(data, options), _choices(options)
    varied = [name for name, values in choices.items() if len(values) > 1 or name == "alpha_min"]
    trials: dict[str, Trial] = {}
    for chosen in _combinations(choices):
        _check(chosen, options)
        for seed in range(options.seeds):
            settings = {name: chosen[name] for name in varied if name in chosen} | {"seed": seed}
            trial = Trial(
                name=trial_name(settings),
                settings=settings,
                commands=(_pretrain_command(inputs, options, chosen, seed), evaluate_command(inputs, options.metrics)),
                cost=float(chosen.get("depth", 1)) * float(chosen.get("width", 1)) ** 2,
            )
            trials.setdefault(trial.name, trial)
    ordered = sorted(trials.values(), key=lambda trial: trial.settings["seed"])
    title = f"{' x '.join(varied)} on {data}, recipe {options.recipe}"
    columns = [YIELDS[name][0] for name in dict.fromkeys(options.metrics) if YIELDS[name]]
    quantities = tuple(Quantity(metric=metric) for metric in columns)
    contrast = tuple(name for name in SHORTCUTS if len(choices.get(name, ())) > 1) or tuple(varied)
    return Experiment(name="grid", title=title, trials=tuple(ordered), quantities=quantities, contrast=contrast)


def _pretrain_command(inputs: Inputs, options: SweepOptions, chosen: Mapping[str, Any], seed: int) -> Words:
    return command(
        "pretrain",
        inputs.data,
        out=RUN,
        recipe=options.recipe,
        epochs=options.epochs,
        max_steps=options.max_steps,
        labels=inputs.labels,
        classes=inputs.classes,
        **chosen,
        seed=seed,
        device=inputs.device,
        resume=True,
    )


def _choices(options: SweepOptions) -> dict[str, list[Any]]:
    require(bool(options.alpha_min), "alpha_min", options.alpha_min, "one or more numbers in [0, 1]")
    for value in options.alpha_min:
        require_number("alpha_min", value, 0, 1)
    choices: dict[str, list[Any]] = {"alpha_min": [float(value) for value in dict.fromkeys(options.alpha_min)]}
    if options.batch_size is not None:
        choices["batch_size"] = [options.batch_size]
    known = [name for name in SWEPT if name in {field.name for field in fields(PretrainOptions)}]
    for setting in options.over:
        name, _, values = setting.partition("=")
        name = name.strip().replace("-", "_")
        allowed = f"NAME=VALUE,VALUE with a name of {', '.join(known)}{nearest(name, known)}"
        require(name in known and bool(values.strip(", ")), "over", setting, allowed)
        require(name not in choices, "over", setting, "each setting once")
        choices[name] = list(dict.fromkeys(_value(text.strip()) for text in values.split(",") if text.strip()))
    count = options.seeds
    for values_of_one in choices.values():
        count *= len(values_of_one)
    require(count <= MOST_TRIALS, "the number of runs", count, f"at most {MOST_TRIALS}")
    return choices


def _combinations(choices: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """alpha_min applies only to the faded variant: other variants are run once, not once per alpha_min."""
    for values in itertools.product(*choices.values()):
        chosen = dict(zip(choices, values))
        if chosen.get("variant", "faded") != "faded":
            del chosen["alpha_min"]
        yield chosen


def _check(chosen: Mapping[str, Any], options: SweepOptions) -> None:
    """What `pretrain` checks before it looks at the data."""
    length = {"epochs": options.epochs, "max_steps": options.max_steps, "recipe": options.recipe}
    wanted = PretrainOptions(options.data, out=options.out, **(length | dict(chosen)))
    resolve(wanted, DataFacts(3, 64, 64, 1000), DataConfig())


def _value(text: str) -> Any:
    """12, 0.5, true, or the word itself."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)
