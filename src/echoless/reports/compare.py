"""Which run is better, and how certain is that? Runs that differ only in their seed form a group; groups are compared.

Within one run, an interval is over test images and says nothing of other seeds; across seeds it is Student's. The
difference of two single runs is paired over their test images, where both keep which of them they got right. Else it
has the interval of two independent ones: wide, so it may hide a difference but not make one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from echoless.config import RunConfig, from_dict
from echoless.config.headline import comparable
from echoless.config.metrics import NAMES_OF_SETS, Metric, info_of
from echoless.config.words import independent
from echoless.errors import EcholessError
from echoless.measures.intervals import MOST_SEEDS, mean_interval, sign_flip_test
from echoless.reports.collect import RunData
from echoless.reports.gains import over_images, verdict

# Settings that were measured: other images have others, and they say nothing more.
_MEASURED = (
    *("data.fingerprint", "data.label_fingerprint", "data.mean", "data.std"),
    *("budget", "budget.seconds", "budget.images_per_second"),
)
# Where something lies -> the hash of what lies there, which decides.
_HASH_OF = {"data.path": "data.fingerprint", "data.labels": "data.label_fingerprint"}
FEWEST_FLIPPED = 6  # seeds: of n differences of one sign, the sign-flip test gives 2 / 2^n, which is 0.06 with five
_MAY_DIFFER = ("seed", "steps_done", *NAMES_OF_SETS)  # entries of a protocol in which two comparable numbers may differ


@dataclass(frozen=True)
class Group:
    """Runs that are one setting under several seeds. `first` is the place of its first run, which gives the colour."""

    name: str
    runs: tuple[RunData, ...]
    first: int

    @property
    def seeds(self) -> int:
        return _count_seeds(self.runs)


@dataclass(frozen=True)
class Estimate:
    """A value with its interval: over test images of one run, or over the seeds of a group."""

    value: float
    interval: tuple[float, float] | None
    seeds: int


@dataclass(frozen=True)
class Difference:
    """Against the first group, with the exact sign-flip p-value where both have the same seeds."""

    value: float
    interval: tuple[float, float] | None
    p: float | None
    pairs: int
    images: int = 0  # test images over which two single runs are paired
    verdict: str = ""  # where it is paired by seed

    @property
    def over_seeds(self) -> str:
        """Where it is paired by seed the verdict, with p where so many seeds could give one below 0.05 at all."""
        if self.p is None:
            return ""
        p = f", p = {self.p:.3g}" if self.pairs >= FEWEST_FLIPPED else ""
        return f"{self.verdict}, paired over {self.pairs} seeds{p}"


@dataclass(frozen=True)
class ComparedMetric:
    """One metric under one protocol in every group; `sets`: what the first run calls the images it was measured on."""

    metric: str
    protocol: dict[str, Any]
    sets: dict[str, Any]
    estimates: tuple[Estimate | None, ...]
    differences: tuple[Difference | None, ...]
    best: int | None


def groups_of(runs: Sequence[RunData]) -> list[Group]:
    """Equal configs up to the seed; a run without a config is a group of its own."""
    found: dict[str, list[tuple[int, RunData]]] = {}
    for place, run in enumerate(runs):
        every = flatten(run.config)
        settings = {
            name: value
            for name, value in every.items()
            if name not in ("seed", *_only_a_name(run))
            and not name.startswith("budget")
            and not every.get(_HASH_OF.get(name, ""))
        }
        found.setdefault(repr(sorted(settings.items())) if settings else f"run {place}", []).append((place, run))
    varied = [name for name, _ in readable_settings(runs) if name not in ("seed", "images")]
    groups = []
    for members in found.values():
        place, run = members[0]
        name = run.name
        if len(members) > 1:
            values = [flatten(run.config).get(setting) for setting in varied]
            words = [f"{setting} {value}" for setting, value in zip(short_names(varied), values)]
            seeds = _count_seeds([member for _, member in members])
            name = f"{', '.join(words) or 'one setting'} ({seeds} seeds)" if seeds > 1 else run.name
        groups.append(Group(name, tuple(member for _, member in members), place))
    return groups


def _only_a_name(run: RunData) -> tuple[str, ...]:
    """Settings that say nothing where all others are resolved: one recipe may be called for by two names."""
    return ("recipe",) if run.config.get("model") else ()


def _count_seeds(runs: Sequence[RunData]) -> int:
    return len({repr(run.seed) for run in runs})


def differing_settings(runs: Sequence[RunData]) -> list[tuple[str, list[Any]]]:
    """The settings in which the runs differ, with each run's value."""
    settings = [flatten(run.config) for run in runs if run.config]
    names = sorted({name for each in settings for name in each})
    return [
        (name, [flatten(run.config).get(name) for run in runs])
        for name in names
        if len({repr(each.get(name)) for each in settings}) > 1
    ]


def readable_settings(runs: Sequence[RunData]) -> list[tuple[str, list[Any]]]:
    """The same for people: other images are told by a letter, not by their hash and 16 digits of their mean.

    Equal images and labels are no difference, however their place is written, nor is the name of the recipe where what
    it decides is listed.
    """
    differing = dict(differing_settings(runs))
    settings = [flatten(run.config) for run in runs if run.config]
    alike = [
        place for place, its in _HASH_OF.items() if its not in differing and any(each.get(its) for each in settings)
    ]
    names = [name for name in ("recipe",) if all(name in _only_a_name(run) for run in runs if run.config)]
    shown = [(name, values) for name, values in differing.items() if name not in (*_MEASURED, *alike, *names)]
    hashes = [flatten(run.config).get("data.fingerprint") for run in runs]
    distinct = list(dict.fromkeys(hashes))
    if len(distinct) > 1:
        letters = [f"set {chr(ord('A') + distinct.index(each) % 26)}" if each else "not recorded" for each in hashes]
        shown.insert(0, ("images", letters))
    return shown


def short_names(settings: Sequence[str]) -> list[str]:
    """The last part of each; with the part before it where two would be called alike, such as two kinds."""
    short = [_last_parts(setting, 1) for setting in settings]
    longer = [_last_parts(setting, 2) if short.count(each) > 1 else each for setting, each in zip(settings, short)]
    return [setting if longer.count(each) > 1 else each for setting, each in zip(settings, longer)]


def _last_parts(setting: str, count: int) -> str:
    return "optimizer" if setting == "optim.name" else ".".join(setting.split(".")[-count:])


def flatten(config: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """`{"model": {"depth": 6}}` as `{"model.depth": 6}`."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{path}.{key}" if path else str(key)
        found |= flatten(value, name) if isinstance(value, Mapping) else {name: value}
    return found


def compare(groups: Sequence[Group]) -> list[ComparedMetric]:
    """Every number that at least two groups have under the same protocol, or a single group of several seeds."""
    rows, last = [], _last_layers(groups)
    for name, protocol in _common(groups, last):
        measured = [_by_seed(group, name, protocol, last.get(place)) for place, group in enumerate(groups)]
        estimates = tuple(estimate_of(list(values.values())) for values in measured)
        differences = tuple(
            None if place == 0 else _difference(measured[0], values) for place, values in enumerate(measured)
        )
        first = next(iter(next(values for values in measured if values).values()))
        sets = {key: first.protocol[key] for key in NAMES_OF_SETS if key in first.protocol}
        rows.append(ComparedMetric(name, protocol, sets, estimates, differences, best_of(name, estimates)))
    return rows


def _last_layers(groups: Sequence[Group]) -> dict[int, str]:
    """By the place of its group, what a run calls its last layer, where runs of several depths call it differently."""
    names: dict[int, str] = {}
    for place, group in enumerate(groups):
        if not group.runs[0].config.get("model"):  # the default model is not its own
            return {}
        try:
            body: Any = from_dict(RunConfig, group.runs[0].config).model.body
        except (EcholessError, TypeError, ValueError):  # of a run that is damaged, or not ours
            return {}
        names[place] = body.feature_layers[-1]
    return names if len(set(names.values())) > 1 else {}


def _common(groups: Sequence[Group], last: Mapping[int, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    seen: dict[str, tuple[str, dict[str, Any], set[int]]] = {}
    for place, group in enumerate(groups):
        for metric in (metric for run in group.runs for metric in run.results if comparable(metric)):
            protocol = _key(metric.protocol, last.get(place))
            key = f"{metric.metric} {sorted(protocol.items(), key=repr)!r}"
            seen.setdefault(key, (metric.metric, protocol, set()))[2].add(place)
    fewest = min(2, len(groups))
    return ((name, protocol) for name, protocol, places in seen.values() if len(places) >= fewest)


def _key(protocol: Mapping[str, Any], last: str | None) -> dict[str, Any]:
    """Its entries but those that may differ. last: the layer that is only called the last one."""
    kept = {name: value for name, value in protocol.items() if name not in _MAY_DIFFER}
    return kept | {"layer": "the last"} if last is not None and kept.get("layer") == last else kept


def _by_seed(group: Group, name: str, protocol: Mapping[str, Any], last: str | None) -> dict[Any, Metric]:
    """The number of each run of the group, by the run's seed."""
    found: dict[Any, Metric] = {}
    for place, run in enumerate(group.runs):
        for metric in run.results:
            if metric.metric == name and _key(metric.protocol, last) == protocol:
                found.setdefault(run.seed if len(group.runs) > 1 else f"only {place}", metric)
    return found


def estimate_of(metrics: Sequence[Metric]) -> Estimate | None:
    """Of one run, or the mean over several seeds."""
    if not metrics:
        return None
    if len(metrics) == 1:
        return Estimate(metrics[0].value, metrics[0].interval, 1)
    value, low, high = mean_interval([metric.value for metric in metrics])
    return Estimate(value, (low, high), len(metrics))


def _difference(base: Mapping[Any, Metric], other: Mapping[Any, Metric]) -> Difference | None:
    if not base or not other:
        return None
    both = [seed for seed in base if seed in other]
    if len(both) >= 2:
        pairs = [(other[seed], base[seed]) for seed in both]
        gains = [one.value - another.value for one, another in pairs]
        value, low, high = mean_interval(gains)
        return Difference(value, (low, high), sign_flip_test(gains[:MOST_SEEDS]), len(both), verdict=verdict(pairs))
    if len(base) == len(other) == 1:
        (one,), (another,) = base.values(), other.values()
        if (paired := over_images(one, another)) is not None:
            return Difference(paired.value, (paired.low, paired.high), None, 1, one.n)
    ours, theirs = estimate_of(list(other.values())), estimate_of(list(base.values()))
    assert ours is not None and theirs is not None
    interval = independent(ours.value, ours.interval, theirs.value, theirs.interval)
    return Difference(ours.value - theirs.value, interval, None, len(both))


def best_of(name: str, estimates: Sequence[Estimate | None]) -> int | None:
    """The place of the best value, if its interval overlaps no other; ranks have no best value."""
    sign = info_of(name).better
    known = [(place, each) for place, each in enumerate(estimates) if each is not None]
    if sign == 0 or len(known) < 2 or any(each.interval is None for _, each in known):
        return None
    place, best = max(known, key=lambda item: sign * item[1].value)
    worst_of_best = min(sign * end for end in best.interval or ())
    rivals = [max(sign * end for end in each.interval or ()) for other, each in known if other != place]
    return place if all(worst_of_best > rival for rival in rivals) else None
