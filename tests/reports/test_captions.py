"""A chart says on what its numbers were measured, and draws images that training has seen only where it must."""

from __future__ import annotations

from dataclasses import replace

import pytest

from echoless.config.metrics import Metric
from echoless.reports.blocks import accuracy_by_block
from echoless.reports.captions import conditions
from echoless.reports.collect import RunData
from echoless.reports.compare import groups_of
from echoless.reports.learned import learned_figures

SEEN = "No test: 10 of 160 images trained the probe or, by label, the encoder."


def measured(value: float, **protocol) -> Metric:
    protocol = {"features": "trained", "pooling": "mean", "train": "photos", "test": "held-out", "k": 20} | protocol
    seen = {} if "overlap" not in protocol else {"test_set": "of copies"}
    return Metric(metric="knn", value=value, n=160 if seen else 60, protocol={**protocol, "train_set": "t", **seen})


def scans(value: float, **protocol) -> list[Metric]:
    """At three layers and, as snapshots, at three steps."""
    layers = [measured(value + 0.01 * n, layer=f"block0{n}/+mlp", scan="layers", **protocol) for n in range(3)]
    return [*layers, *(measured(value, layer="block02/+mlp", step=10 * n, **protocol) for n in range(1, 4))]


def run(tmp_path, *metrics: Metric, name: str = "run", alpha: float = 0.5) -> RunData:
    return RunData(path=tmp_path / name, name=name, config={"alpha_min": alpha}, results=list(metrics))


def charts(*runs: RunData) -> dict[str, tuple[str, str]]:
    """The caption and the drawing of each."""
    return {f.title: (f.caption, str(f.drawing)) for _, figures in learned_figures(runs) for f in figures}


@pytest.mark.parametrize("title", ["kNN accuracy by layer (%)", "kNN accuracy over training (%)"])
def test_a_curve_names_its_images_and_protocol_as_the_cards_beside_it_do(tmp_path, title):
    """Its caption was that of the intervals alone, so that it could be of another evaluation unnoticed."""
    found = charts(run(tmp_path, measured(0.4, layer="block02/+mlp"), *scans(0.3, k=5)))
    caption, _ = found[title]
    assert "n = 60. pooling mean, train photos, test held-out, k 5." in caption
    card, _ = found["kNN accuracy"]
    assert "n = 60. pooling mean, train photos, test held-out, k 20." in card


def test_curves_of_images_that_training_has_seen_say_so_and_are_drawn_only_where_there_are_no_others(tmp_path):
    seen, honest = scans(0.9, overlap=10), scans(0.3)
    caption, _ = charts(run(tmp_path, *seen))["kNN accuracy by layer (%)"]
    assert SEEN in caption and "n = 160." in caption
    for order in (seen + honest, honest + seen):
        caption, drawing = charts(run(tmp_path, *order))["kNN accuracy by layer (%)"]
        assert "No test" not in caption and "n = 60." in caption and "between 30 and 32" in drawing
    runs = [run(tmp_path, *scans(0.9, overlap=10), name="a", alpha=1.0), run(tmp_path, *honest, name="b")]
    both = charts(*runs)["kNN accuracy by layer (%)"]
    assert "a:" not in both[1] and "b: 30 at 0" in both[1], "a run without a test has no curve beside one that has"


def test_the_chart_by_block_names_them_too(tmp_path):
    runs = [run(tmp_path, *scans(0.3, overlap=10), name=name, alpha=a) for name, a in (("a", 1.0), ("b", 0.5))]
    figure = accuracy_by_block(groups_of(runs))
    assert SEEN in figure.caption and "train photos, test held-out, k 20." in figure.caption


def test_where_numbers_of_one_chart_differ_the_caption_has_each(tmp_path):
    """Names of one set are no difference; another number of neighbours is."""
    one, other = measured(0.3, k=5, train="here"), measured(0.4)
    assert conditions([one, other], over="step") == "n = 60. pooling mean, train here, test held-out, k 5 or 20. "
    moved = replace(other, n=80, protocol=other.protocol | {"train_set": "u"})
    assert conditions([one, moved]) == "n = 60 or 80. pooling mean, train here or photos, test held-out, k 5 or 20. "
    assert conditions([one, other], over="k") == "n = 60. pooling mean, train here, test held-out. "
    assert conditions([]) == ""
    part = measured(0.4, overlap=50_000)
    assert "No test: 160 of 160 images" in conditions([part]), "a scan measures a part of many images"


def test_curves_of_two_evaluations_are_told_apart_without_hashes(tmp_path):
    first, second = scans(0.3), scans(0.4, test="others", test_set="o")
    figures = learned_figures([run(tmp_path, *first, *second)])
    (chart,) = (f for _, several in figures for f in several if f.title == "kNN accuracy by layer (%)")
    assert [name for *_, name in chart.key] == ["test held-out", "test others"]
