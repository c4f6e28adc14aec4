"""The best layer is said with its interval, and with whether it clearly differs from the usual one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from echoless.config.best_layer import best_layer
from echoless.config.metrics import Metric, interval_text, number
from echoless.config.options import EvaluateOptions
from echoless.evaluation.extract import View
from echoless.evaluation.layer_scan import _say_best
from echoless.measures import accuracy_interval
from echoless.measures.intervals import paired_accuracy_interval
from echoless.measures.outcomes import kept, unpack
from echoless.reports.collect import RunData, collect
from echoless.reports.gains import paired_interval
from echoless.reports.summary import summarise
from echoless.runs import RunFolder
from echoless.verbs.evaluate import evaluate

USUAL, OTHER, THIRD = View("block05/+mlp"), View("block03/+mlp"), View("block01/+mlp")


def measured(right: list[int], features: str = "trained", n: int = 60, **view: str) -> Metric:
    """kNN that is right on these of n images."""
    correct_N = torch.zeros(n, dtype=torch.bool)
    correct_N[right] = True
    value, low, high = accuracy_interval(correct_N, generator=torch.Generator().manual_seed(0))
    protocol = {"features": features, "k": 20, "folds": 5, "train_n": n, "seed": 0, **view}
    return Metric(metric="knn", value=value, n=n, interval=(low, high), protocol=protocol, **kept(correct_N))


def told(usual: list[int], other: list[int], raw: list[int] | None = None) -> str:
    """The closing sentences of a scan over three layers, which a page finds again in the records."""
    chosen = {
        view: measured(right, layer=view.layer, pooling=view.pooling)
        for view, right in ((USUAL, usual), (OTHER, other), (THIRD, []))
    }
    encoder = SimpleNamespace(default_layer=USUAL.layer, default_pooling="mean")
    evaluation = SimpleNamespace(encoder=encoder, pooling="mean", closing=[], say=lambda text: None)
    pixels = None if raw is None else measured(raw, "raw pixels", layer="output", pooling="mean")
    found = _say_best(evaluation, chosen, pixels)
    (closing,) = evaluation.closing
    assert best_layer(found, paired_interval) == closing
    return closing


def test_a_layer_that_two_more_images_chose_does_not_clearly_differ_from_the_usual_one():
    """It was called the best layer, with 30.00 % and no interval."""
    closing = told(usual=list(range(16)), other=list(range(10, 28)))
    opening = (
        "Best layer by kNN (k 20), 5-fold cross-validation on 60 training images: block03/+mlp, mean pooling: 30.00 % ["
    )
    assert closing.startswith(opening) and "], the highest of 3 on the same images." in closing
    assert (
        "It does not clearly differ from the usual block05/+mlp, mean pooling (26.67 %): difference +3.3 points [-"
        in closing
    )
    assert closing.endswith("embed takes it by --layer block03/+mlp --pooling mean.")


def test_the_difference_is_paired_over_the_images():
    """8 of 60 images more, and none less: clear, although the two intervals overlap."""
    usual, other = measured(list(range(16))), measured(list(range(24)))
    assert other.interval[0] < usual.interval[1]
    assert "It is above the usual block05/+mlp, mean pooling (26.67 %): difference +13.3 points [+" in told(
        usual=list(range(16)), other=list(range(24))
    )


def test_the_interval_allows_for_the_choice_among_many():
    """Of 18 cells that differ by chance alone, the highest was called clearly above the usual one."""
    usual, other = measured(list(range(12))), measured(list(range(1, 20)))
    assert paired_interval(other, usual)[0] > 0 > paired_interval(other, usual, among=17)[0]


def test_the_end_of_an_interval_among_many_is_not_that_of_one_lucky_draw():
    """Among 500 cells it was the second smallest of 10,000 draws, and moved by a third with other draws."""
    usual, other = measured(list(range(12))), measured(list(range(1, 20)))
    right = [unpack(metric.right, metric.n) for metric in (usual, other)]
    level = 1 - 0.05 / 500
    ends = [
        paired_accuracy_interval(*right, generator=torch.Generator().manual_seed(seed), level=level, resamples=10**6)
        for seed in range(5)
    ]
    kept = paired_interval(other, usual, among=500)
    assert max(abs(kept[0] - each.low) for each in ends) <= 1 / 60 and len({each.low for each in ends}) <= 2


def test_the_best_layer_is_compared_with_raw_pixels_too():
    """A layer 20 points above the usual one was praised, and nobody learned that raw pixels are as good."""
    usual, other = list(range(16)), list(range(30))
    assert "It does not clearly differ from raw pixels (48.33 %): difference +1.7 points [" in told(
        usual, other, list(range(29))
    )
    assert "It beats raw pixels (16.67 %): difference +33.3 points [" in told(usual, other, list(range(10)))
    assert "It is worse than raw pixels (100.00 %)" in told(usual, other, list(range(60)))
    closing = told(other, other, list(range(10)))
    assert "the usual one, " in closing and "It beats raw pixels" in closing, "also where the usual layer is the best"


def test_the_usual_layer_is_the_best_where_no_other_is_above_it():
    closing = told(usual=list(range(18)), other=list(range(18)))
    assert "the usual one, block05/+mlp, mean pooling: 30.00 % [" in closing and "embed" not in closing


@pytest.mark.parametrize("test", [None, "shapes:40@test"])
def test_a_scan_says_what_it_chose_by_and_keeps_no_answers(run, test):
    """The number that chose is that of the folds, with or without a test set."""
    said: list[str] = []
    wanted = {"train": "shapes:60", "layers": ("all",), "metrics": ("knn",), "k": (3,), "baselines": False}
    metrics = evaluate.run(EvaluateOptions(run, test=test, **wanted), said.append)
    scanned = [metric for metric in metrics if metric.protocol.get("scan") == "layers"]
    closing = metrics.closing[-1]
    assert closing.startswith("Best layer by kNN (k 3), ") and f", the highest of {len(scanned)} on the same" in closing
    if test is None:
        best = max(scanned, key=lambda metric: metric.value)
        assert f"{number(best)}{interval_text(best)}, the highest of" in closing
        assert any(line.startswith("best by kNN (k 3), ") and interval_text(best) in line for line in said)
    records = RunFolder(run).read_results()
    assert not any("right" in record for record in records if record["protocol"].get("scan") == "layers")
    assert any("right" in record for record in records if "scan" not in record["protocol"])


def test_the_page_has_the_finding_of_the_terminal_and_a_second_scan_replaces_it(run, tmp_path):
    """The terminal named the best layer with its interval; the card of the page advised to train longer."""
    run = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("results.json"))

    def said(*layers: str) -> str:
        wanted = {"train": "shapes:60", "layers": layers, "metrics": ("knn",), "k": (3,)}
        metrics = evaluate.run(EvaluateOptions(run, **wanted), lambda text: None)
        (line,) = [line for line in metrics.closing if line.startswith("Best layer")]
        return line

    for layers in (("block00/+mlp", "block01/+mlp"), ("block01/+mlp", "block02/+mlp"), ("all",)):
        line = said(*layers)
        assert "raw pixels (" in line and summarise(complete(run), []).layer == line
    assert said("block00/+mlp", "block01/+mlp") != line == summarise(complete(run), []).layer, "that of most layers"
    evaluate.run(EvaluateOptions(run, train="shapes:60", test="shapes:40@test", metrics=("knn",)), lambda text: None)
    elsewhere = summarise(complete(run), [])
    assert "test shapes:40@test" in elsewhere.measured, "a test set is spoken of before any scan"
    assert elsewhere.layer == f"{line} This was measured with train shapes:60, labels the data set."
    records = [record for record in RunFolder(run).read_results() if record["protocol"].get("scan") == "best layer"]
    cells = [(record["protocol"]["features"], record["protocol"]["cells"]) for record in records]
    assert sorted(cells) == [("raw pixels", 6), ("raw pixels", 18), ("trained", 6), ("trained", 18)]


def complete(run: Path) -> RunData:
    found = collect(run)
    return replace(found, config={**found.config, "steps": 1}, lines=[{"step": 1}])
