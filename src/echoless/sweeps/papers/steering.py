"""Which settings of a published experiment may the user change? Each is applied to its commands, or refused by name.

Length, batch size, --latent and --over apply to the training of every row, --metrics and --extractor to what measures
it. Of a setting in which the rows differ, the values given choose among the rows. A fine-tuning whose length is in
steps has no more than --max-steps, so that a few steps try the whole of an experiment.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from echoless.config.metrics import YIELDS, info_of
from echoless.config.options import SweepOptions
from echoless.config.options.fields import given
from echoless.errors import ConfigError
from echoless.sweeps.commands import Words, option_of, with_options
from echoless.sweeps.experiment import Experiment, Quantity, Trial, trial_name
from echoless.sweeps.grid import Choices, parse_over, require_few, require_trainable
from echoless.sweeps.papers.scale import effective_over
from echoless.sweeps.papers.selecting import column, selected

TRAINING = ("epochs", "max_steps", "batch_size", "latent")  # options of `pretrain` that have a flag of their own
OF_SAMPLES = ("extractor", "reference")
OF_MASKS = ("masks", "test_masks", "mask_classes")
MEASURED_WITH_MASKS = {"spectral", "segprobe"}


def steered(experiment: Experiment, options: SweepOptions) -> Experiment:
    """The experiment with what the user gave; a note says what differs from the experiment's own settings."""
    _require_used(experiment, options)
    fixed = given(options, *TRAINING)
    wanted, choices = _rows_and_choices(experiment, options)
    experiment = selected(experiment, wanted)
    for name in (*fixed, *choices):
        _require_same_in_all_rows(experiment, name)
    require_few(len(experiment.trials), choices)
    changed = [f"{name} {value}" for name, value in fixed.items()]
    changed += [f"{name} {', '.join(map(str, values))}" for name, values in {**wanted, **choices}.items()]
    trials = tuple(
        _changed(trial, fixed, chosen, choices) for chosen in _combinations(choices) for trial in experiment.trials
    )
    _require_trainable(trials, options)
    experiment = replace(experiment, trials=trials)
    if options.extractor is not None:
        experiment = replace(experiment, trials=tuple(_compared(trial, options.extractor) for trial in trials))
        changed.append(f"extractor {options.extractor}")
    if options.metrics is not None:
        experiment = _measured(experiment, options.metrics)
        changed.append(f"metrics {', '.join(options.metrics)}")
    if not changed:
        return experiment
    return replace(experiment, notes=(*experiment.notes, f"Changed on request: {'; '.join(changed)}."))


def _rows_and_choices(experiment: Experiment, options: SweepOptions) -> tuple[Choices, Choices]:
    """What chooses among the rows, and what is set in each of them."""
    given_over = parse_over(options.over, taken=given(options, *TRAINING))
    if options.alpha_min is not None:
        if not column(experiment, "alpha_min"):
            _refuse("alpha_min", options.alpha_min, f"the experiment {experiment.name} sets its own")
        given_over["alpha_min"] = list(options.alpha_min)
    wanted = {name: values for name, values in given_over.items() if column(experiment, name)}
    return wanted, {name: values for name, values in given_over.items() if name not in wanted}


def _combinations(choices: Choices) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*choices.values()):
        yield dict(zip(choices, values))


def _changed(trial: Trial, fixed: Mapping[str, Any], chosen: Mapping[str, Any], choices: Choices) -> Trial:
    """One row with these settings; those with several values become columns and part of its name.

    A setting that the experiment shows anyway stays that column, with its new value: a row never names another network
    than the one that it trained.
    """
    train, *rest = trial.commands
    length = {"epochs": None, "max_steps": None} if {"epochs", "max_steps"} & set(fixed) else {}
    train = with_options(train, **{**length, **fixed, **chosen})
    rest = [_no_longer(words, fixed.get("max_steps")) for words in rest]
    varied = {name: value for name, value in chosen.items() if len(choices[name]) > 1}
    if shown := {name: value for name, value in chosen.items() if name in trial.settings}:
        settings = _with_its_reach({**varied, **trial.settings, **shown})
        name = trial_name({key: value for key, value in settings.items() if key != "effective"})
    else:
        settings = {**varied, **trial.settings}
        name = "_".join(filter(None, (trial_name(varied), trial.name)))
    return replace(trial, name=name, settings=settings, commands=(train, *rest))


def _with_its_reach(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A column of effective alphas follows those of depth and alpha_min."""
    if "effective" not in settings:
        return dict(settings)
    return {**settings, "effective": f"{effective_over(settings['depth'], settings['alpha_min']):.1e}"}


def _no_longer(words: Words, max_steps: int | None) -> Words:
    """A fine-tuning of at most `max_steps`; one whose length is in epochs keeps it."""
    own = option_of(words, "max_steps") if words[0] == "finetune" else None
    if max_steps is None or own is None:
        return words
    return with_options(words, max_steps=min(max_steps, int(own[0])))


def _compared(trial: Trial, extractor: str) -> Trial:
    """Samples compared by another network; the one that the experiment would train for it is not trained."""
    own = {option_of(words, "extractor") for words in trial.commands if words[0] == "evaluate"}
    kept = [words for words in trial.commands if words[0] != "pretrain" or option_of(words, "out") not in own]
    changed = [with_options(words, extractor=extractor) if option_of(words, "extractor") else words for words in kept]
    return replace(trial, commands=tuple(changed))


def _measured(experiment: Experiment, metrics: Sequence[str]) -> Experiment:
    """Other measurements: columns that come from elsewhere stay, those that are no longer measured go."""
    trials = [
        replace(trial, commands=tuple(_measuring(words, metrics) for words in trial.commands))
        for trial in experiment.trials
    ]
    yielded = {metric for metrics_of_one in YIELDS.values() for metric in metrics_of_one}
    wanted = [YIELDS[name] for name in dict.fromkeys(metrics) if YIELDS[name]]
    now = {metric for metrics_of_one in wanted for metric in metrics_of_one}
    kept = [column for column in experiment.quantities if column.metric not in yielded or column.metric in now]
    shown = {column.metric for column in kept}
    new = [Quantity(metric=metrics_of_one[0]) for metrics_of_one in wanted if not shown & set(metrics_of_one)]
    return replace(experiment, trials=tuple(trials), quantities=(*kept, *new))


def _measuring(words: Words, metrics: Sequence[str]) -> Words:
    return with_options(words, metrics=tuple(metrics)) if words[0] == "evaluate" else words


def _require_used(experiment: Experiment, options: SweepOptions) -> None:
    """Refuses an option that no command of the experiment takes."""
    commands = [words for trial in experiment.trials for words in trial.commands]
    measured = [words for words in commands if words[0] == "evaluate"]
    if options.train is not None and not any(_learns_from_other_images(trial) for trial in experiment.trials):
        _refuse("train", str(options.train), f"the experiment {experiment.name} learns from DATA and its labels")
    for name, value in given(options, *OF_SAMPLES).items():
        if all(option_of(words, name) is None for words in measured):
            _refuse(name, value, f"the experiment {experiment.name} compares no samples")
    for name, value in given(options, *OF_MASKS).items():
        if not any(_reads_masks(words, name, options.metrics) for words in measured):
            _refuse(name, str(value), f"the experiment {experiment.name} segments no images")
    if options.metrics is None:
        return
    if not measured:
        _refuse("metrics", " ".join(options.metrics), f"{experiment.name} is measured by its training alone")
    samples = [name for name in options.metrics if any(info_of(m).kind == "samples" for m in YIELDS[name])]
    if samples and all(option_of(words, "samples") is None for words in measured):
        _refuse("metrics", samples[0], f"the experiment {experiment.name} draws no samples")


def _learns_from_other_images(trial: Trial) -> bool:
    """Whether it is pretrained without labels and then measured with images of their own."""
    pretraining, *rest = trial.commands
    learned = {option_of(words, "train") for words in rest if words[0] in ("evaluate", "finetune")} - {None}
    return option_of(pretraining, "test") is None and bool(learned - {(pretraining[1],)})


def _reads_masks(words: Words, name: str, metrics: Sequence[str] | None) -> bool:
    """Whether this `evaluate` is given the option and measures something by it."""
    measured = metrics if metrics is not None else option_of(words, "metrics") or ()
    return option_of(words, name) is not None and not MEASURED_WITH_MASKS.isdisjoint(measured)


def _require_same_in_all_rows(experiment: Experiment, name: str) -> None:
    """Refuses to change what the rows of the experiment are about."""
    values = {option_of(trial.commands[0], name) for trial in experiment.trials}
    if len(values) > 1:
        _refuse("over", name, f"the rows of {experiment.name} differ in it")


def _require_trainable(trials: Sequence[Trial], options: SweepOptions) -> None:
    """Refuses what `pretrain` would, once for every recipe."""
    settings = given(options, *TRAINING, "accumulate", "workers")
    for recipe in {(option_of(trial.commands[0], "recipe") or (None,))[0] for trial in trials}:
        for chosen in _combinations(parse_over(options.over)):
            require_trainable({"recipe": recipe, **settings, **chosen})


def _refuse(name: str, value: Any, why: str) -> None:
    raise ConfigError(f"{name} is {value!r}, but {why}; leave it out")
