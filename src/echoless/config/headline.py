"""Which number stands for a run that was evaluated several times? That of the strongest evaluation, by `strength`.

An evaluation is what was measured on the same images and by the same labels. Lists, pages and cards choose here, so
that they agree, and say in the words of this file on what a number was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from echoless.config.metrics import FINGERPRINTS, NAMES_OF_SETS, Metric, describe, on_same_images, without_fingerprints

_SETS = (*NAMES_OF_SETS, "labels", *FINGERPRINTS)
# The rule of `strength` among numbers of one checkpoint, in words.
RULE = "a test set before cross-validation, then the most images, then the newest"


def single(metric: Metric) -> bool:
    """A number of its own: not of a scan over layers or snapshots, nor of test images seen in training."""
    return not {"scan", "step", "overlap"} & set(metric.protocol)


def comparable(metric: Metric) -> bool:
    """Numbers of the trained run: no baselines either."""
    return _trained(metric) and single(metric)


def _trained(metric: Metric) -> bool:
    return metric.protocol.get("features", "trained") == "trained"


def no_test(metric: Metric) -> str:
    """A clause on images that training has seen, where its protocol counts any; else nothing."""
    seen, n = metric.protocol.get("overlap"), metric.n
    if isinstance(seen, int) and isinstance(n, int):  # a file may hold anything
        seen = min(seen, n)  # a scan measures a part of many images
    return f"{seen} of {n} images {_SEEN[seen_by(metric)]}" if seen else ""


Seen = Literal["train", "labels", "either"]
_SEEN: dict[Seen, str] = {
    "train": "are in the training set too",
    "labels": "trained the encoder by their labels",
    "either": "trained the probe or, by label, the encoder",
}


def seen_by(metric: Metric) -> Seen:
    """Why the images that its protocol counts are no test. Records of earlier versions leave it open, but in folds: no
    image is learned from and predicted by one probe there."""
    seen, by_label = (metric.protocol.get(name) for name in ("overlap", "overlap_by_label"))
    if by_label == seen or not {"test", "test_set"} & set(metric.protocol):
        return "labels"
    return "train" if by_label == 0 else "either"


# Of a run without any number on other images.
ONLY_SEEN = "measured only on images that are also in train, of the probe or, by label, of the encoder"


def only_seen(metrics: Sequence[Metric]) -> tuple[str, ...]:
    """The metrics of which there are numbers of the trained run, and none on images that training has not seen."""
    numbers = [metric for metric in metrics if _trained(metric) and not {"scan", "step"} & set(metric.protocol)]
    tested = {metric.metric for metric in numbers if single(metric)}
    return tuple(dict.fromkeys(metric.metric for metric in numbers if metric.metric not in tested))


def unseen(runs: Sequence[Sequence[Metric]]) -> list[list[Metric]]:
    """The numbers of each run on images that training has not seen; where no run has one, all numbers."""
    tests = [[metric for metric in found if not no_test(metric)] for found in runs]
    return tests if any(tests) else [list(found) for found in runs]


def strength(metric: Metric) -> tuple[float, bool, int]:
    """Of several numbers that of the last weights is the strongest, then one on a test set, then that of most images.

    A quick look at a few images, taken later, says less than what is known already. The value itself decides nothing.
    """
    step, n = metric.protocol.get("checkpoint", math.inf), metric.n
    known = [value if isinstance(value, int | float) else 0 for value in (step, n)]  # a file may hold anything
    return float(known[0]), bool({"test", "test_set"} & set(metric.protocol)), int(known[1])


def strongest(metrics: Sequence[Metric]) -> Metric | None:
    """Of equals the newest, which is the last."""
    return max(reversed(metrics), key=strength, default=None)


def strongest_of_each(metrics: Iterable[Metric]) -> dict[str, Metric]:
    """The strongest number of every metric, which may be of several evaluations."""
    found: dict[str, list[Metric]] = {}
    for metric in metrics:
        found.setdefault(metric.metric, []).append(metric)
    return {name: max(reversed(same), key=strength) for name, same in found.items()}


def evaluations(metrics: Iterable[Metric]) -> list[list[Metric]]:
    """The numbers of each evaluation, in order; one that needs no labels is of the first with its images."""
    found: list[list[Metric]] = []
    for metric in metrics:
        fitting = (each for each in found if all(on_same_images(metric, other) for other in each))
        group = next(fitting, None)
        if group is None:
            found.append([metric])
        else:
            group.append(metric)
    return found


def most_shared(runs: Sequence[Sequence[Metric]]) -> Metric | None:
    """A number on the images on which most of the runs were measured; of several, the strongest."""

    def shared(metric: Metric) -> tuple[int, tuple[float, bool, int]]:
        return sum(any(on_same_images(metric, other) for other in found) for found in runs), strength(metric)

    newest_first = [metric for found in runs for metric in reversed(found)]
    return max(newest_first, key=shared, default=None)


def side_by_side(runs: Sequence[Sequence[Metric]]) -> list[dict[str, Metric]]:
    """For each run, the number of every metric: on the images that most runs share, else its strongest."""
    trained = [[metric for metric in found if comparable(metric)] for found in runs]
    chosen: list[dict[str, Metric]] = [{} for _ in runs]
    for name in dict.fromkeys(metric.metric for found in trained for metric in found):
        measured = [[metric for metric in found if metric.metric == name] for found in trained]
        common = most_shared(measured)
        for numbers, found in zip(chosen, measured):
            same = [metric for metric in found if common is not None and on_same_images(metric, common)]
            if (number := strongest(same or found)) is not None:
                numbers[name] = number
    return chosen


def sets_of(metric: Metric) -> dict[str, Any]:
    """The entries of its protocol that say on which images and by which labels it was measured."""
    return {name: metric.protocol[name] for name in _SETS if name in metric.protocol}


def told_apart(metrics: Sequence[Metric], protocols: Sequence[Mapping[str, Any]]) -> list[str]:
    """Protocols in words; where two would read alike, with the number of images, and if need be with fingerprints."""
    short = [describe(without_fingerprints(protocol)) for protocol in protocols]
    sized = [text if short.count(text) == 1 else f"{text}, n {m.n}".lstrip(", ") for text, m in zip(short, metrics)]
    return [text if sized.count(text) == 1 else describe(dict(protocol)) for text, protocol in zip(sized, protocols)]
