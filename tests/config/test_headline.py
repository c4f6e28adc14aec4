"""Which of several evaluations of one run is shown: a quick look at few images never replaces a large test.

Pages, lists, galleries and cards choose by the same rule, and say that there are others.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from echoless.config.headline import RULE, strongest, strongest_of_each
from echoless.config.metrics import Metric
from echoless.config.words import in_words, spoken_of
from echoless.exchange.card import _results
from echoless.reports.collect import RunData
from echoless.reports.gallery import card
from echoless.reports.learned import learned_figures
from echoless.reports.listing import best_runs, list_folders
from echoless.reports.page import render
from echoless.reports.summary import summarise
from echoless.runs import RunFolder


def knn(value: float, n: int, *, test: str = "", **protocol: object) -> Metric:
    sets = {"train": "photos", "train_set": "aa"} | ({"test": test, "test_set": test} if test else {})
    known = {"features": "trained", "label_set": f"{test}{n}", **sets, **protocol}
    return Metric(metric="knn", value=value, n=n, interval=(value - 0.01, value + 0.01), protocol=known)


LARGE, QUICK, FOLDED = knn(0.61, 4000, test="held"), knn(0.72, 50, test="quick"), knn(0.83, 9000, folds=5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that was tested on 4,000 images, then in folds, then on 50."""
    run = tmp_path / "runs" / "one"
    run.mkdir(parents=True)
    (run / "config.json").write_text('{"steps": 1, "seed": 0}')
    (run / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
    RunFolder(run).add_results([metric.to_json() for metric in (LARGE, FOLDED, QUICK)])
    return tmp_path / "runs"


def test_a_test_set_counts_before_folds_then_the_most_images_then_the_newest():
    for order in permutations((LARGE, QUICK, FOLDED)):
        assert strongest(order) is LARGE
    again = replace(LARGE, value=0.5, protocol=LARGE.protocol | {"k": 7})
    assert strongest([LARGE, again, QUICK]) is again and strongest([again, LARGE]) is LARGE
    assert strongest([QUICK, FOLDED]) is QUICK and strongest([]) is None


def test_the_end_of_a_run_counts_before_a_checkpoint_with_more_images():
    """A large test of weights that have been trained since says nothing of these."""
    halfway, end = knn(0.9, 4000, test="held", checkpoint=10), knn(0.4, 50, test="quick")
    assert strongest([end, halfway]) is end and spoken_of([end, halfway]) is end


def test_a_record_without_a_number_of_images_is_the_weakest():
    broken = Metric(metric="knn", value=0.9, n="", protocol={"checkpoint": "x"})  # type: ignore[arg-type]
    assert strongest([QUICK, broken]) is QUICK and strongest_of_each([broken, QUICK]) == {"knn": QUICK}


def test_a_quick_look_afterwards_does_not_become_the_headline(folder):
    """A page was headed by the accuracy on 50 images, although 4,000 had been tested."""
    run = RunData(path=folder / "one", name="one", lines=[{"step": 1}], config={"steps": 1})
    run = replace(run, results=[LARGE, FOLDED, QUICK])
    said = summarise(run, [])
    assert "is 61.00 %" in said.verdict and "72.00 %" not in said.verdict
    assert said.measured.startswith("Measured with train photos, test held, n 4000. The run has 3 evaluations")
    assert RULE in said.measured
    assert card("one", run)["numbers"] == [("kNN accuracy", "61.00 %")]
    assert card("one", run)["measured"] == "measured on 4,000 images of held"
    ((_, (figure,)),) = learned_figures([run])
    assert "61.00 %" in str(figure.drawing) and "72.00 %" not in str(figure.drawing)
    assert "this one comes first by the rule" in render([run])


def test_of_a_single_evaluation_nothing_is_said(folder):
    run = RunData(path=folder / "one", name="one", lines=[{"step": 1}], config={"steps": 1}, results=[LARGE])
    assert not summarise(run, []).measured


def test_the_list_of_runs_shows_the_large_test_and_says_that_there_are_others(folder):
    text = str(list_folders([folder]))
    assert "61.00 %" in text and "72.00 %" not in text
    assert "measured with train photos, test held, n 4000" in text
    assert f"a run with several evaluations shows {RULE}" in " ".join(text.split())
    (row,) = list_folders([folder])
    assert row.evaluations == 3 and max(map(len, text.splitlines())) <= 100
    RunFolder(folder / "one").remove_results([FOLDED.to_json(), QUICK.to_json()])
    assert "evaluations" not in str(list_folders([folder]))


def test_rankings_begin_with_the_large_test(folder):
    assert [row.metrics["knn"].n for row in best_runs([folder], "knn")] == [4000, 50, 9000]


def test_the_card_of_an_export_has_the_large_test_and_its_own_baselines():
    raw = replace(LARGE, value=0.2, protocol=LARGE.protocol | {"features": "raw pixels"})
    quick_raw = replace(QUICK, value=0.3, protocol=QUICK.protocol | {"features": "raw pixels"})
    halfway = replace(LARGE, value=0.9, protocol=LARGE.protocol | {"checkpoint": 3})
    text = _results([metric.to_json() for metric in (LARGE, raw, QUICK, quick_raw, halfway)])
    assert "61.00 %" in text and "20.00 %" in text and "Measured with train photos, test held" in text
    assert not [value for value in ("72.00 %", "30.00 %", "90.00 %") if value in text]
    assert RULE in text and "The run has 3 more numbers" in text


def test_what_is_said_of_collapse_is_of_the_same_evaluation_where_there_are_no_labels():
    few, many = (
        Metric(metric="rankme", value=v, n=n, protocol={"train_set": str(n)}) for v, n in ((1.2, 20), (9, 4000))
    )
    assert "have not collapsed" in in_words([many, few]).verdict
