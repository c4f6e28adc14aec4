"""Do the encoders of a sweep beat raw pixels? One run measures the baselines, which are the same for all.

Raw pixels and the untrained encoder are measured with the first trial that has an accuracy. A setting beats raw pixels
where the interval of the difference does not hold 0. That interval is over seeds and over test images, as of two
independent sources, and as wide as the choice of the best among several settings asks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from echoless.config.headline import no_test
from echoless.config.metrics import Metric, on_same_images
from echoless.config.words import BASELINES, SPOKEN_OF, VERBS
from echoless.reports.gains import over_seeds_and_images
from echoless.sweeps.commands import Words, option_of, with_options
from echoless.sweeps.experiment import Experiment, Quantity, Trial

Found = Mapping[str, Sequence[Metric]]  # numbers by trial


def measured_once(experiment: Experiment) -> Experiment:
    """The same trials, the first with an accuracy also measuring the baselines."""
    first = next((trial for trial in experiment.trials if any(map(_has_accuracy, trial.commands))), None)
    if first is None:
        return experiment
    commands = tuple(without_choice(words) if _has_accuracy(words) else words for words in first.commands)
    trials = [replace(trial, commands=commands) if trial is first else trial for trial in experiment.trials]
    return replace(experiment, trials=tuple(trials))


def _has_accuracy(words: Words) -> bool:
    return words[0] == "evaluate" and not set(SPOKEN_OF).isdisjoint(option_of(words, "metrics") or ())


def without_choice(words: Sequence[str]) -> Words:
    """The command without --baselines and --no-baselines: either measures the same run."""
    return with_options(tuple(words), baselines=None)


def is_baseline(metric: Metric) -> bool:
    return metric.protocol.get("features") in BASELINES


def measured_with(found: Found) -> tuple[str, ...]:
    """A sentence on the run whose untrained encoder it is; nothing where there are no baselines."""
    run = next((name for name, metrics in found.items() if any(map(is_baseline, metrics))), None)
    return () if run is None else (f"Raw pixels and the untrained encoder were measured once, with {run}.",)


def baselines_of(experiment: Experiment, found: Found) -> dict[str, dict[str, Metric]]:
    """By features and heading: the number on the images of the same trial's own."""
    known: dict[str, dict[str, Metric]] = {}
    for features in BASELINES:
        for quantity in experiment.quantities:
            numbers = (_baseline(quantity, features, found.get(trial.name, ())) for trial in experiment.trials)
            if (number := next(filter(None, numbers), None)) is not None:
                known.setdefault(features, {})[quantity.heading] = number
    return known


def _baseline(quantity: Quantity, features: str, metrics: Sequence[Metric]) -> Metric | None:
    trained = [metric for metric in metrics if quantity.belongs(metric) and _is_single(metric)]
    if not trained or "features" not in quantity.protocol:
        return None
    other = replace(quantity, protocol={**quantity.protocol, "features": features})
    same = [m for m in metrics if other.belongs(m) and _is_single(m) and on_same_images(m, quantity.choose(trained))]
    return other.choose(same) if same else None


def _is_single(metric: Metric) -> bool:
    """Neither of a scan nor of a snapshot."""
    return not {"scan", "step"} & set(metric.protocol)


def baseline_lines(
    known: Mapping[str, Mapping[str, Metric]], experiment: Experiment, header: Sequence[str]
) -> list[list[str]]:
    """A line of the table for each, below those of the settings."""
    lines = []
    for features, numbers in known.items():
        shown = {quantity.heading: quantity for quantity in experiment.quantities if quantity.heading in numbers}
        cells = [shown[name].number(numbers[name].value) if name in shown else "-" for name in header[1:]]
        lines.append([features, *cells])
    return lines


def against_raw_pixels(known: Mapping[str, Mapping[str, Metric]], experiment: Experiment, found: Found) -> list[str]:
    """For each accuracy a sentence on its best setting; then what it means where none beats raw pixels."""
    orders, sentences = [], []
    for quantity in experiment.quantities:
        raw = known.get("raw pixels", {}).get(quantity.heading)
        if raw is None or quantity.metric not in SPOKEN_OF or no_test(raw):
            continue
        settings = _by_setting(experiment, quantity, raw, found)
        order, sentence = _of_the_best(quantity, raw, settings)
        orders.append(order)
        sentences.append(sentence)
    if orders and max(orders) <= 0:
        sentences.append(
            "Features that do not beat raw pixels have learned nothing useful: train longer. A small gain shows only "
            "on more labelled images."
        )
    return sentences


def _by_setting(experiment: Experiment, quantity: Quantity, raw: Metric, found: Found) -> dict[str, list[Metric]]:
    """By the setting in words: the number of each seed on the images of the baseline."""
    settings: dict[str, list[Metric]] = {}
    for trial in experiment.trials:
        own = [m for m in found.get(trial.name, ()) if quantity.belongs(m) and _is_single(m) and on_same_images(m, raw)]
        if own:
            settings.setdefault(_named(trial), []).append(quantity.choose(own))
    return settings


def _named(trial: Trial) -> str:
    words = [f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in trial.group]
    return ", ".join(words)


def _of_the_best(quantity: Quantity, raw: Metric, settings: Mapping[str, list[Metric]]) -> tuple[int, str]:
    """Whether the best is clearly above raw pixels (1) or below (-1), and the sentence that says so."""
    best = max(settings, key=lambda name: fmean(metric.value for metric in settings[name]))
    numbers = settings[best]
    value = fmean(metric.value for metric in numbers)
    interval = over_seeds_and_images([(metric, raw) for metric in numbers], len(settings))
    order = 0 if interval is None else 1 if interval[0] > 0 else -1 if interval[1] < 0 else 0
    over = "over seeds and test images" if len(numbers) > 1 else "over test images"
    chosen = f", corrected for the choice among {len(settings)} settings" if len(settings) > 1 else ""
    ends = "" if interval is None else f" [{100 * interval[0]:+.1f}, {100 * interval[1]:+.1f}] {over}{chosen}"
    what = f"the best setting, {best}," if len(settings) > 1 else f"{best or 'the run'}"
    return order, (
        f"{quantity.heading}: {what} {VERBS[order]} raw pixels: {quantity.number(value)} against "
        f"{quantity.number(raw.value)}, difference {100 * (value - raw.value):+.1f} points{ends}."
    )
