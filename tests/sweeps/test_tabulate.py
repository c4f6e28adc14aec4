"""What a sweep prints and writes: means and intervals as scipy has them, a CSV that the csv module reads back."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import torch
from scipy import stats

from echoless.config.metrics import Metric
from echoless.errors import DataError
from echoless.measures import accuracy_interval, mean_interval
from echoless.measures.outcomes import kept
from echoless.reports.gains import verdict
from echoless.reports.page import frame_values, template
from echoless.storage import write_json
from echoless.sweeps.experiment import Experiment, Published, Quantity, Trial
from echoless.sweeps.tabulate import SettingRow, _paired, collect, findings, rows, summary, table, write_csv

KNN = Quantity(metric="knn")
RANK = Quantity(metric="rank_paper")


def trials(alphas=(1.0, 0.6), seeds=3):
    return tuple(
        Trial(name=f"a{alpha}-s{seed}", settings={"alpha_min": alpha, "seed": seed}, commands=(("pretrain",),))
        for seed in range(seeds)
        for alpha in alphas
    )


def page_of(plan, found):
    """The page of a sweep, without its runs."""
    values = {"runs": [], "groups": [], "training": [], "learned": [], "alphas": [], "pictures": [], "by_block": None}
    first = findings(plan, found)
    values |= {"one_by_one": False, "title": first.title, "maps": {"maps": []}, "live": ""}
    return template("report.html").render(**values, findings=first, **frame_values())


def metric(name, value, **protocol):
    return Metric(metric=name, value=value, n=100, protocol={"features": "trained", **protocol})


def test_the_correlation_over_runs_is_scipys_at_every_step(tmp_path):
    """Two steps; six runs each, of two seeds. The table and the CSV have it."""
    plan = Experiment(
        name="e",
        title="T",
        trials=trials((1.0, 0.8, 0.6), seeds=2),
        quantities=(KNN, RANK),
        by=("step",),
        correlate=("rank_paper", "knn"),
    )
    generator = np.random.default_rng(0)
    values = {(t.name, step): generator.random(2) for t in plan.trials for step in (10, 20)}
    found = {
        t.name: [metric(n, values[t.name, s][i], step=s) for s in (10, 20) for i, n in enumerate(("rank_paper", "knn"))]
        for t in plan.trials
    }
    text = table(plan, found)
    assert "Pearson's correlation of" in text
    write_csv(tmp_path / "sweep.csv", plan, found)
    with (tmp_path / "sweep.csv").open(newline="") as file:
        rows_of = [row for row in csv.DictReader(file) if row["metric"] == "pearson"]
    assert [json.loads(row["protocol"])["step"] for row in rows_of] == [10, 20]
    for row, step in zip(rows_of, (10, 20)):
        points = np.array([values[t.name, step] for t in plan.trials])
        expected = stats.pearsonr(points[:, 0], points[:, 1])
        interval = expected.confidence_interval(0.95)
        assert float(row["value"]) == pytest.approx(expected.statistic) and int(row["n"]) == 6
        assert (float(row["low"]), float(row["high"])) == pytest.approx((interval.low, interval.high))
        assert f"{expected.statistic:+.2f}" in text
    two = {name: metrics for name, metrics in found.items() if name in ("a1.0-s0", "a0.8-s0")}
    assert "Pearson" not in table(plan, two), "two points always lie on a line"


def test_a_page_begins_with_the_table_of_the_terminal_and_the_published_values():
    plan = Experiment(
        name="e",
        title="Table 9 <of> a paper",
        trials=trials(),
        quantities=(KNN,),
        published=(Published(metric="knn", value=0.639, settings={"alpha_min": 0.6}),),
        notes=("A note & its end.",),
    )
    found = {trial.name: [metric("knn", 0.5)] for trial in plan.trials}
    first = findings(plan, found)
    (_, (header, *lines)), (caption, differences) = first.tables
    assert header == ["alpha_min", "seeds", "kNN %", "paper"]
    assert [line[-1] for line in lines] == ["-", "63.9"] and len(differences) == 2
    printed = table(plan, found)
    for text in (first.title, caption, *header, *lines[1], *first.notes):
        assert text in printed
    page = page_of(plan, found)
    assert "<h1>Table 9 &lt;of&gt; a paper</h1>" in page and "<td>63.9</td>" in page and "A note &amp; its end." in page


def test_a_table_of_images_that_training_has_seen_says_so_on_the_terminal_and_on_the_page():
    """Whatever made them no test: here their labels trained the encoders. Ranks are no test in any case."""
    plan = Experiment(name="e", title="T", trials=trials(seeds=1), quantities=(KNN, RANK))
    found = {
        trial.name: [metric("knn", 0.5, overlap=40), metric("rank_paper", 2.0, overlap=40)] for trial in plan.trials
    }
    sentence = "No test: 40 of 100 images trained the encoder by their labels."
    assert sentence in table(plan, found) and sentence in page_of(plan, found)
    for honest in ([metric("knn", 0.5), metric("rank_paper", 2.0, overlap=40)], [metric("linear", 0.5, overlap=40)]):
        assert "No test" not in table(plan, {trial.name: honest for trial in plan.trials}), "numbers of the table alone"


def test_a_difference_of_nearly_nothing_is_not_a_negative_zero():
    """It was -0.0, behind which a reader looks for a loss."""
    values = [-0.0001, -0.0002]
    assert summary(KNN, values, "+").startswith("+0.0 ±") and summary(KNN, values).startswith("0.0 ±")
    assert summary(RANK, [-0.0, -0.0], "+") == "+0 ± 0" and summary(KNN, [-0.02], "+") == "-2.0"


@pytest.mark.parametrize("values", [[0.1, 0.2], [0.41, 0.42, 0.40], list(np.linspace(0, 1, 20) ** 2)])
def test_the_interval_of_a_mean_is_students(values):
    mean, low, high = mean_interval(values)
    expected = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    assert mean == pytest.approx(np.mean(values)) and (low, high) == pytest.approx(expected)


@pytest.mark.parametrize("values", [[], [0.5], [0.5, float("nan")]])
def test_one_seed_has_no_interval(values):
    with pytest.raises(DataError):
        mean_interval(values)


def test_the_table_shows_the_mean_over_seeds_beside_the_published_figure():
    plan = Experiment(
        name="e",
        title="Title",
        trials=trials(),
        quantities=(KNN, RANK),
        published=(Published(metric="knn", value=0.639, settings={"alpha_min": 0.6}),),
        notes=("A note.",),
    )
    found = {trial.name: [metric("knn", 0.4 + 0.01 * trial.settings["seed"])] for trial in plan.trials}
    found["a1.0-s0"] += [metric("knn", 0.9, step=5), metric("knn", 0.9, scan="layers"), metric("rank_paper", 2.5)]
    first, second = rows(plan, found)
    assert first.columns == {"alpha_min": 1.0} and first.values["kNN %"] == pytest.approx({0: 0.4, 1: 0.41, 2: 0.42})
    assert first.published == {} and second.published == {"kNN %": 0.639}
    lines = table(plan, found).splitlines()
    assert lines[2].split() == ["alpha_min", "seeds", "kNN", "%", "paper", "rank"]
    assert lines[3].split() == ["1", "3", "41.0", "±", "2.5", "-", "2.5"]
    assert lines[4].split() == ["0.6", "3", "41.0", "±", "2.5", "63.9", "-"]
    assert lines[-1] == "A note."


def test_differences_are_paired_by_seed_and_agree_with_scipy():
    """Two settings whose seeds move together: their difference is known far better than either mean."""
    plan = Experiment(name="e", title="", trials=trials(), quantities=(KNN, RANK))
    plain, gains = [0.30, 0.40, 0.35], [0.05, 0.06, 0.04]
    values = {1.0: plain, 0.6: [a + b for a, b in zip(plain, gains)]}
    found = {t.name: [metric("knn", values[t.settings["alpha_min"]][t.settings["seed"]])] for t in plan.trials}
    lines = [line.split() for line in table(plan, found).splitlines()]
    low, high = stats.t.interval(0.95, 2, loc=np.mean(gains), scale=stats.sem(gains))
    assert "differences, paired by seed; clear where" in table(plan, found)
    half = f"{50 * (high - low):.1f},"
    assert ["0.6", "alpha_min", "1", "3", "+5.0", "±", half, "clearly", "higher", "-"] in lines


def test_differences_at_each_step_are_from_the_first_setting_at_that_step():
    plan = Experiment(name="e", title="", trials=trials(seeds=2), quantities=(KNN,), by=("step",))
    found = {
        t.name: [metric("knn", 0.1 * step - t.settings["alpha_min"] / 10, step=step) for step in (1, 2)]
        for t in plan.trials
    }
    lines = [line.split() for line in table(plan, found).splitlines()]
    for step in ("1", "2"):
        assert ["0.6", step, "alpha_min", "1", "2", "+4.0", "±", "0.0,", "clearly", "higher"] in lines


def test_a_row_is_compared_with_the_standard_network_that_is_like_it_in_all_else():
    """Networks of another kind are no baseline, and the baseline need not come first."""
    trials = [
        Trial(name=f"{kind}{a}{s}", settings={"recipe": kind, "alpha_min": a, "seed": s}, commands=(("x",),))
        for s in range(2)
        for kind in ("uvit", "sit")
        for a in (0.7, 1.0)
    ]
    plan = Experiment(name="e", title="", trials=tuple(trials), quantities=(KNN,))
    value = {("uvit", 0.7): 0.4, ("uvit", 1.0): 0.3, ("sit", 0.7): 0.8, ("sit", 1.0): 0.6}
    found = {t.name: [metric("knn", value[t.settings["recipe"], t.settings["alpha_min"]])] for t in trials}
    lines = [line.split() for line in table(plan, found).splitlines() if "alpha_min 1" in line]
    assert [(line[0], line[1], line[5]) for line in lines] == [("uvit", "0.7", "+10.0"), ("sit", "0.7", "+20.0")]


@pytest.mark.parametrize(("seeds", "words"), [(1, "one seed: no interval over seeds"), (3, "3 seeds: mean ± half")])
def test_the_table_says_how_many_seeds_it_rests_on(seeds, words):
    plan = Experiment(name="e", title="", trials=trials(seeds=seeds), quantities=(KNN,))
    text = table(plan, {trial.name: [metric("knn", 0.3)] for trial in plan.trials})
    assert words in text and ("paired by seed" in text) == (seeds > 1)


def test_numbers_over_training_become_rows_where_the_experiment_asks_for_them():
    plan = Experiment(name="e", title="", trials=trials((0.6,), 2), quantities=(KNN,), by=("step",))
    found = {trial.name: [metric("knn", 0.3, step=1), metric("knn", 0.5, step=2)] for trial in plan.trials}
    assert [(row.columns["step"], row.values["kNN %"]) for row in rows(plan, found)] == [
        (1, {0: 0.3, 1: 0.3}),
        (2, {0: 0.5, 1: 0.5}),
    ]


def test_the_best_of_several_is_shown_where_the_paper_shows_the_best():
    best = Quantity(metric="knn", title="best", best="max")
    plan = Experiment(name="e", title="", trials=trials((0.6,), 1), quantities=(best,))
    found = {plan.trials[0].name: [metric("knn", 0.3, layer="a"), metric("knn", 0.7, layer="b")]}
    assert rows(plan, found)[0].values["best"] == {0: 0.7}


def test_a_trial_without_numbers_leaves_a_dash():
    assert summary(KNN, []) == "-" and summary(KNN, [0.5]) == "50.0" and summary(RANK, [2.0, 2.0]) == "2 ± 0"


def test_a_metric_of_somebody_else_is_a_plain_number():
    assert summary(Quantity(metric="somebody_elses"), [0.5]) == "0.5"


def test_the_csv_has_one_row_for_each_trial_and_number_with_its_protocol(tmp_path):
    plan = Experiment(name="e", title="", trials=trials((1.0,), 2), quantities=(KNN,))
    hostile = 'a "quoted", name\nwith a line'
    records = [metric("knn", 0.25, k=20, layer=hostile), metric("rank_paper", 1.5)]
    for trial in plan.trials:
        (tmp_path / trial.name).mkdir()
        write_json(tmp_path / trial.name / "results.json", [record.to_json() for record in records])
    write_csv(tmp_path / "sweep.csv", plan, collect(plan, tmp_path))
    with (tmp_path / "sweep.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert len(read) == 4
    assert [(row["trial"], row["seed"], row["metric"]) for row in read[:2]] == [
        ("a1.0-s0", "0", "knn"),
        ("a1.0-s0", "0", "rank_paper"),
    ]
    assert float(read[0]["value"]) == 0.25 and json.loads(read[0]["protocol"])["layer"] == hostile


@pytest.mark.parametrize(("best", "expected"), [("max", 0.7), ("min", 0.2), (None, 0.3)])
def test_of_several_numbers_the_best_by_its_own_measure_is_shown_or_the_last(best, expected):
    plan = Experiment(name="e", title="", trials=trials((0.6,), 1), quantities=(Quantity(metric="loss", best=best),))
    values = [metric("loss", value, layer=f"{value}") for value in (0.2, 0.7, 0.3)]
    (row,) = rows(plan, {plan.trials[0].name: values})
    assert list(row.values.values()) == [{0: expected}]


def test_numbers_of_a_step_or_of_a_scan_stay_out_of_a_table_that_does_not_ask_for_them():
    plan = Experiment(name="e", title="", trials=trials((0.6,), 1), quantities=(KNN,))
    found = [metric("knn", 0.5), metric("knn", 0.9, step=10), metric("knn", 0.8, scan="layers")]
    (row,) = rows(plan, {plan.trials[0].name: found})
    assert list(row.values.values()) == [{0: 0.5}]


def test_a_seed_that_only_one_of_two_rows_has_is_in_no_difference():
    ours = {seed: metric("knn", value) for seed, value in {0: 0.5, 1: 0.7, 2: 0.9}.items()}
    theirs = {seed: metric("knn", value) for seed, value in {2: 0.4, 1: 0.3, 3: 0.0}.items()}
    pairs = _paired(SettingRow({}, {"knn": ours}, {}), SettingRow({}, {"knn": theirs}, {}), "knn")
    assert pairs == [(ours[1], theirs[1]), (ours[2], theirs[2])]


def test_equal_gains_of_two_seeds_on_few_images_are_not_clear():
    """Five of ninety images, twice: the interval over seeds had no width, and the table said "clearly lower"."""

    def measured(right: int, first: int = 0) -> Metric:
        correct_N = torch.zeros(90, dtype=torch.bool)
        correct_N[first : first + right] = True
        interval = accuracy_interval(correct_N, generator=torch.Generator().manual_seed(0))
        return Metric(metric="knn", value=right / 90, n=90, interval=(interval.low, interval.high), **kept(correct_N))

    pairs = [(measured(25, 20), measured(30)), (measured(29, 20), measured(34))]
    assert [one.value - other.value for one, other in pairs] == pytest.approx([-5 / 90] * 2)
    assert verdict(pairs) == "not clear"
    assert verdict([(measured(5), measured(80)), (measured(6), measured(81))]) == "clearly lower"
