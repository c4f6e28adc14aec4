"""A value is called best only where its interval says so, and differences over seeds are those of scipy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch

from echoless.config.metrics import Metric
from echoless.measures.outcomes import kept, pack, unpack, unpack_groups
from echoless.reports.collect import RunData
from echoless.reports.compare import Estimate as E
from echoless.reports.compare import best_of, compare, differing_settings, groups_of, readable_settings, short_names
from echoless.reports.gallery import card
from echoless.reports.learned import learned_figures
from echoless.reports.summary import summarise


def run(name: str, alpha: float, seed: int, value: float, half: float = 0.01, metric: str = "knn") -> RunData:
    config = {"model": {"shortcuts": {"alpha_min": alpha}}, "seed": seed, "steps": 10}
    number = Metric(
        metric=metric, value=value, n=100, interval=(value - half, value + half), protocol={"k": 20, "seed": seed}
    )
    return RunData(path=Path(name), name=name, config=config, results=[number])


def test_runs_that_differ_in_their_seed_alone_are_a_group():
    runs = [run("a0", 1.0, 0, 0.3), run("b0", 0.6, 0, 0.4), run("a1", 1.0, 1, 0.31), run("b1", 0.6, 1, 0.42)]
    groups = groups_of(runs)
    assert [[member.name for member in group.runs] for group in groups] == [["a0", "a1"], ["b0", "b1"]]
    assert groups[1].name == "alpha_min 0.6 (2 seeds)"
    assert [name for name, _ in differing_settings(runs)] == ["model.shortcuts.alpha_min", "seed"]


def test_equal_images_are_no_difference_however_their_folder_is_written():
    """`photos` and `/data/photos` stood there as a setting in which the runs differ, and were two settings."""

    def of(path: str, seed: int, fingerprint: str = "f", **data: str) -> RunData:
        made = run("r", 1.0, seed, 0.3)
        return replace(made, config=made.config | {"data": {"path": path, "fingerprint": fingerprint, **data}})

    one, other = of("photos", 0), of("/data/photos", 1)
    assert [name for name, _ in readable_settings([one, other])] == ["seed"]
    assert [group.seeds for group in groups_of([one, other])] == [2]
    labelled = [of("p", 0, labels=file, label_fingerprint="l") for file in ("a.csv", "/data/a.csv")]
    assert readable_settings(labelled) == []
    moved = [one, of("/data/photos", 1, "g")]
    assert [name for name, _ in readable_settings(moved)] == ["images", "data.path", "seed"]
    unknown = [of(path, 0, "", labels=path) for path in ("a", "b")]
    assert [name for name, _ in readable_settings(unknown)] == ["data.labels", "data.path"], "no hash was recorded"


def test_two_names_of_one_recipe_are_no_difference():
    """A planned run is repeated by the line of its plan, which names the recipe that `auto` chose."""

    def of(recipe: str, alpha: float, seed: int = 0, **without: object) -> RunData:
        made = run(recipe, alpha, seed, 0.3)
        return replace(made, config=made.config | {"recipe": recipe} | without)

    auto, named = of("auto", 0.5), of("mae-femto", 1.0)
    assert [name for name, _ in readable_settings([auto, named])] == ["model.shortcuts.alpha_min"]
    assert [group.seeds for group in groups_of([auto, of("mae-femto", 0.5, 1)])] == [2]
    unknown = [of(recipe, 1.0, model={}) for recipe in ("auto", "mae-femto")]
    assert [name for name, _ in readable_settings(unknown)] == ["recipe"], "nothing else says what was trained"


def test_differences_over_seeds_are_paired_and_agree_with_scipy():
    plain, faded = [0.30, 0.33, 0.29, 0.35], [0.41, 0.42, 0.37, 0.47]
    runs = [run(f"p{i}", 1.0, i, value) for i, value in enumerate(plain)]
    runs += [run(f"f{i}", 0.6, i, value) for i, value in enumerate(faded)]
    (row,) = compare(groups_of(runs))
    difference = row.differences[1]
    test = scipy.stats.ttest_rel(faded, plain)
    low, high = test.confidence_interval(0.95)
    assert difference is not None and difference.pairs == 4
    assert difference.interval == pytest.approx((low, high)) and difference.value == pytest.approx(0.1, abs=1e-9)
    gains = np.array(faded) - np.array(plain)
    flips = scipy.stats.permutation_test((gains,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert difference.p == pytest.approx(flips.pvalue)


def test_a_mean_over_seeds_has_the_interval_of_student():
    values = [0.3, 0.35, 0.31]
    runs = [run(f"a{seed}", 1.0, seed, value) for seed, value in enumerate(values)]
    (row,) = compare(groups_of([*runs, run("b", 0.6, 0, 0.4)]))
    estimate, single = row.estimates
    low, high = scipy.stats.t.interval(0.95, 2, np.mean(values), scipy.stats.sem(values))
    assert estimate is not None and single is not None and (estimate.seeds, single.seeds) == (3, 1)
    assert estimate.value == pytest.approx(np.mean(values)) and estimate.interval == pytest.approx((low, high))


def test_runs_that_differ_in_their_seed_alone_have_means_over_seeds():
    """Of two seeds of one setting the page said that no metric was measured under the same protocol."""
    values = [0.3, 0.35, 0.31]
    groups = groups_of([run(f"a{seed}", 1.0, seed, value) for seed, value in enumerate(values)])
    (row,) = compare(groups)
    low, high = scipy.stats.t.interval(0.95, 2, np.mean(values), scipy.stats.sem(values))
    assert groups[0].name == "one setting (3 seeds)" and row.best is None and row.differences == (None,)
    assert row.estimates[0] == E(pytest.approx(np.mean(values)), (pytest.approx(low), pytest.approx(high)), 3)


def of_depth(depth: int, value: float, layer: str = "", **scan: object) -> RunData:
    """Measured after its last block, or after another."""
    known = {"layer": layer or f"block{depth - 1:02d}/+mlp", "test_set": "aa", **scan}
    config = {"model": {"kind": "mae", "encoder": {"depth": depth}}, "seed": 0}
    number = Metric(metric="knn", value=value, n=100, interval=(value - 0.01, value + 0.01), protocol=known)
    return RunData(path=Path(str(depth)), name=str(depth), config=config, results=[number])


def test_runs_of_different_depths_are_compared_at_their_last_layers():
    """The last layer of six blocks is not called as that of four, so that the page had nothing to compare."""
    (row,) = compare(groups_of([of_depth(6, 0.3), of_depth(4, 0.4)]))
    assert row.protocol["layer"] == "the last" and row.differences[1].value == pytest.approx(0.1)
    (row,) = compare(groups_of([of_depth(6, 0.3, "block03/+mlp"), of_depth(8, 0.4, "block03/+mlp")]))
    assert row.protocol["layer"] == "block03/+mlp"
    assert not compare(groups_of([of_depth(6, 0.3, "block03/+mlp"), of_depth(4, 0.4)])), "the fourth is not the last"
    (row,) = compare(groups_of([of_depth(6, 0.3), replace(of_depth(6, 0.4), config={})]))
    assert row.protocol["layer"] == "block05/+mlp", "of a run whose depth is not known, the name of the layer counts"


def test_two_runs_of_one_seed_are_one_seed():
    twins = groups_of([run("a", 1.0, 0, 0.3), run("again", 1.0, 0, 0.3), run("b", 0.6, 0, 0.4)])
    assert [(group.name, group.seeds) for group in twins] == [("a", 1), ("b", 1)]


def test_single_runs_are_compared_as_independent():
    (row,) = compare(groups_of([run("a", 1.0, 0, 0.3, 0.03), run("b", 0.6, 0, 0.4, 0.04)]))
    difference = row.differences[1]
    assert difference is not None and difference.interval == pytest.approx((0.05, 0.15)) and difference.p is None
    assert row.best == 1


@pytest.mark.parametrize(
    ("name", "estimates", "best"),
    [
        ("knn", [E(0.3, (0.29, 0.31), 1), E(0.4, (0.39, 0.41), 1)], 1),
        ("knn", [E(0.3, (0.25, 0.36), 1), E(0.4, (0.35, 0.45), 1)], None),
        ("knn", [E(0.3, (0.29, 0.31), 1), E(0.4, None, 1)], None),
        ("frechet", [E(30, (29, 31), 1), E(40, (39, 41), 1)], 0),
        ("tokencut-corloc", [E(0.3, (0.29, 0.31), 1), E(0.4, (0.39, 0.41), 1)], 1),
        ("segprobe-miou", [E(0.3, (0.29, 0.31), 1), E(0.4, (0.39, 0.41), 1)], 1),
        ("somebody_elses", [E(0.3, (0.29, 0.31), 1), E(0.4, (0.39, 0.41), 1)], None),
        ("rankme", [E(3, (2.9, 3.1), 1), E(4, (3.9, 4.1), 1)], None),
        ("knn", [E(0.3, (0.29, 0.31), 1), None], None),
    ],
)
def test_the_best_is_marked_only_where_the_intervals_support_it(name, estimates, best):
    assert best_of(name, estimates) == best


def test_numbers_of_different_protocols_are_not_compared():
    other = run("b", 0.6, 0, 0.4)
    other.results[0].protocol["k"] = 5
    assert compare(groups_of([run("a", 1.0, 0, 0.3), other])) == []


def answered(name: str, alpha: float, correct_N: np.ndarray, seed: int = 0) -> RunData:
    right, protocol = pack(torch.from_numpy(correct_N)), {"k": 20, "seed": seed}
    mean = float(correct_N.mean())
    number = Metric(metric="knn", value=mean, n=len(correct_N), interval=(mean, mean), protocol=protocol, right=right)
    return RunData(path=Path(name), name=name, config={"alpha": alpha, "seed": 0}, results=[number])


def test_two_runs_on_the_same_images_are_paired_over_them_as_scipy_does():
    """Where both err on the same images, an interval of independent runs hides the difference."""
    draw = np.random.default_rng(0)
    base = draw.random(500) < 0.6
    better = base | (draw.random(500) < 0.1)
    (row,) = compare(groups_of([answered("a", 1.0, base), answered("b", 0.6, better)]))
    difference = row.differences[1]
    assert difference is not None and difference.interval is not None and difference.images == 500
    gains = better.astype(float) - base
    theirs = scipy.stats.bootstrap((gains,), np.mean, method="percentile", rng=draw).confidence_interval
    assert difference.value == pytest.approx(gains.mean())
    assert difference.interval == pytest.approx((theirs.low, theirs.high), abs=0.004)
    assert difference.interval[0] > 0, "the independent interval is about 0.06 wide on each side"


def test_answers_that_belong_together_are_kept_with_their_groups_and_paired_by_them():
    groups = torch.tensor([7, 3, 7, 7, 5, 3])
    right = torch.tensor([True, False, True, False, True, True])
    fields = kept(right, groups)
    assert fields["groups"] == [[1, 1], [1, 2], [1, 3]]
    assert unpack_groups(fields["groups"], 6).tolist() == [0, 1, 1, 2, 2, 2]
    assert unpack(fields["right"], 6).tolist() == [True, False, True, True, True, False], "5; 3, 3; 7, 7, 7"
    wrong = ([[1, 7]], [[-1, 2], [4, 2]], [[1, 2, 3]], "six", None, 6, [["a", 1]], [[10**9, 10**9]])
    assert [unpack_groups(each, 6) for each in wrong] == [None] * 8
    draw = np.random.default_rng(1)
    file_N = torch.arange(400) // 20
    base = torch.from_numpy(draw.random(20) < 0.5)[file_N]
    other = torch.from_numpy(draw.random(20) < 0.8)[file_N]
    widths = []
    for each in (None, file_N):
        runs = [answered(name, alpha, base.numpy()) for name, alpha in (("a", 1.0), ("b", 0.6))]
        for run, answers in zip(runs, (base, other)):
            run.results[0] = replace(run.results[0], value=float(answers.double().mean()), **kept(answers, each))
        (row,) = compare(groups_of(runs))
        assert row.differences[1].images == 400
        widths.append(row.differences[1].interval[1] - row.differences[1].interval[0])
    assert widths[1] > 3 * widths[0]


def test_other_folds_or_damaged_answers_are_not_paired():
    base, other = np.arange(40) % 3 == 0, np.arange(40) % 2 == 0
    (row,) = compare(groups_of([answered("a", 1.0, base), answered("b", 0.6, other, seed=1)]))
    assert row.differences[1] is not None and row.differences[1].images == 0
    assert unpack(pack(torch.from_numpy(base)), 40).tolist() == base.tolist()
    assert [unpack(text, 40) for text in ("", "no base64!", "AAAA", None, 7)] == [None] * 5


def measured(name: str, *numbers: tuple[float, str]) -> RunData:
    """A run with these values of kNN, each on a set of its own."""
    results = [Metric(metric="knn", value=v, n=9, protocol={"train_set": s, "train": s}) for v, s in numbers]
    return RunData(path=Path(name), name=name, results=results)


def test_charts_show_the_newest_number_and_of_several_runs_that_which_they_share():
    """They showed the first, while lists and galleries showed the newest."""
    one, other = measured("a", (0.21, "few"), (0.22, "many")), measured("b", (0.31, "few"))

    def drawn(*runs: RunData) -> str:
        ((_, (figure,)),) = learned_figures(runs)
        return str(figure.drawing)

    assert "22.00 %" in drawn(one) and "21.00 %" not in drawn(one)
    assert "21.00 %" in drawn(one, other) and "31.00 %" in drawn(one, other) and "22.00 %" not in drawn(one, other)


def test_a_card_has_numbers_of_one_set_of_labels():
    """A linear probe on 80 labels stood above "measured on 600 images"."""
    old = Metric(metric="linear", value=0.2, n=80, protocol={"train_set": "aa", "label_set": "x"})
    new = Metric(metric="knn", value=0.3, n=600, protocol={"train_set": "aa", "label_set": "y", "train": "photos"})
    shown = card("a", RunData(path=Path("a"), name="a", results=[old, new]))
    assert shown["numbers"] == [("kNN accuracy", "30.00 %")] and shown["measured"] == "measured on 600 images of photos"


def test_the_first_lines_of_several_runs_are_of_sets_that_they_share_and_name_them():
    """77.50 % of one set stood beside 25.56 % of another."""
    one, other = measured("a", (0.77, "many"), (0.25, "few")), measured("b", (0.31, "many"))
    one, other = (replace(run, lines=[{"step": 1}], config={"steps": 1}) for run in (one, other))
    said = [summarise(run, [], [one, other]) for run in (one, other)]
    assert "77.00 %" in said[0].verdict and "31.00 %" in said[1].verdict
    assert said[1].measured == "Measured with train many."
    assert said[0].measured.startswith("Measured with train many, n 9. The run has 2 evaluations")
    assert "by the rule: images that most of these runs share, then a test set" in said[0].measured
    alone = replace(measured("c", (0.25, "few")), lines=[{"step": 1}], config={"steps": 1})
    assert "25.00 %" in (words := summarise(alone, [], [one, other, alone])).verdict and "train few" in words.measured
    assert "25.00 %" in summarise(one, []).verdict, "of a single run, the newest"


def test_two_settings_of_one_name_have_two_headings():
    """Two columns were called kind."""
    assert short_names(["model.kind", "objective.kind", "optim.name", "model.depth"]) == [
        *("model.kind", "objective.kind", "optimizer", "depth"),
    ]
    assert short_names(["a.model.kind", "b.model.kind", "kind"]) == ["a.model.kind", "b.model.kind", "kind"]


def test_a_run_is_compared_with_the_raw_pixels_of_a_run_beside_it_that_is_given_the_same():
    """A sweep measures them once; the cards of its other runs said that none was measured."""
    one, other = run("a", 1.0, 0, 0.3), run("b", 0.6, 0, 0.4)
    raw = replace(
        one.results[0], value=0.2, interval=(0.19, 0.21), protocol={"features": "raw pixels", "k": 20, "seed": 0}
    )
    one.results.append(raw)
    shown = [replace(each, lines=[{"step": 10}]) for each in (one, other)]
    said = [summarise(each, [], shown) for each in shown]
    for gain, words in zip((10.0, 20.0), said):
        assert f"it beats raw pixels (20.00 %) by {gain} points" in words.verdict
    assert not any("--baselines" in words.next for words in said)
    larger = replace(shown[1], config=shown[1].config | {"data": {"mean": [0.5]}})
    assert "no baseline was measured" in summarise(larger, [], [shown[0], larger]).verdict, "other pixels"
    assert "no baseline was measured" in summarise(shown[1], []).verdict


def test_the_charts_are_of_the_evaluation_that_heads_the_page():
    """The head said 6.04 directions, of 120 images, and a chart below it 7.356, of all 1,530."""

    def rank(value: float, n: int, images: str) -> Metric:
        return Metric(metric="rankme", value=value, n=n, protocol={"features": "trained", "train_set": images})

    accuracy = Metric(metric="knn", value=0.4, n=120, interval=(0.3, 0.5), protocol={"train_set": "few", "k": 20})
    results = [rank(6.04, 120, "few"), accuracy, rank(7.356, 1530, "all")]
    shown = RunData(path=Path("a"), name="a", config={"steps": 1}, lines=[{"step": 1}], results=results)
    assert "about 6.04 directions (RankMe of 120 images)" in summarise(shown, []).verdict
    ((_, figures),) = learned_figures([shown])
    assert ["6.04" in str(figure.drawing) for figure in figures if "RankMe" in figure.title] == [True]
    unlabelled = replace(shown, results=results[2:])
    ((_, (figure,)),) = learned_figures([unlabelled])
    assert "7.356" in str(figure.drawing) and "n = 1530" in figure.caption
