"""A sweep measures raw pixels once, and says whether its best setting beats them; earlier sweeps go on."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from echoless.config.metrics import Metric
from echoless.config.options import SweepOptions
from echoless.measures.outcomes import kept
from echoless.reports.gains import paired_interval
from echoless.reports.page import frame_values, template
from echoless.storage import write_json
from echoless.sweeps.baselines import baselines_of
from echoless.sweeps.commands import option_of
from echoless.sweeps.experiment import Experiment, Quantity, Trial
from echoless.sweeps.ledger import Ledger, is_done
from echoless.sweeps.run import plan, run_sweep
from echoless.sweeps.tabulate import findings, table, write_csv

N = 400  # images
KNN, LINEAR, RANK = (Quantity(metric=name) for name in ("knn", "linear", "rank_paper"))


def options(**changes):
    return SweepOptions(**({"data": "shapes", "out": "sweep", "alpha_min": (1.0, 0.6), "seeds": 2} | changes))


def number(value: float, features: str = "trained", metric: str = "knn", draw: int = 0, **protocol) -> Metric:
    """Right on this share of the images; `draw` says on which."""
    right = np.random.default_rng(draw).permutation(N) < round(value * N)
    protocol = {"features": features, "train_set": "aa", "seed": 0, **protocol}
    return Metric(metric=metric, value=float(right.mean()), n=N, protocol=protocol, **kept(torch.from_numpy(right)))


def experiment(seeds: int = 3) -> Experiment:
    trials = tuple(
        Trial(name=f"a{alpha}-s{seed}", settings={"alpha_min": alpha, "seed": seed}, commands=(("pretrain",),))
        for seed in range(seeds)
        for alpha in (1.0, 0.6)
    )
    return Experiment(name="e", title="T", trials=trials, quantities=(KNN, RANK))


def measured(plain: list[float], faded: list[float], raw: float) -> dict[str, list[Metric]]:
    found = {}
    for seed, values in enumerate(zip(plain, faded)):
        for alpha, value in zip((1.0, 0.6), values):
            found[f"a{alpha}-s{seed}"] = [number(value, draw=seed + 1)]
    found["a1.0-s0"] += [number(raw, "raw pixels"), number(0.2, "untrained")]
    return found


@pytest.mark.parametrize(("paper", "first"), [(None, 0), ("table2", 0), ("fig3", None), ("fig4", 0)])
def test_the_first_trial_with_an_accuracy_alone_measures_the_baselines(paper, first):
    trials = plan(options(paper=paper, alpha_min=None if paper else (1.0, 0.6))).trials
    without = [any("--no-baselines" in words for words in trial.commands) for trial in trials]
    assert without == [place != first for place in range(len(trials))]


def test_other_metrics_need_no_baselines():
    for trial in plan(options(metrics=("rank",))).trials:
        assert "--no-baselines" in trial.commands[-1]


def test_a_row_for_each_baseline_and_a_sentence_on_the_best_setting():
    """Raw pixels had 45.0 %, above both rows, and the user of the sweep never learned it."""
    found = measured([0.43, 0.44, 0.42], [0.35, 0.34, 0.36], 0.45)
    text = table(experiment(), found)
    lines = [line.split() for line in text.splitlines()]
    assert ["raw", "pixels", "-", "45.0", "-"] in lines and ["untrained", "-", "20.0", "-"] in lines
    assert "kNN %: the best setting, alpha_min 1, does not clearly differ from raw pixels: 43.0 against 45.0" in text
    assert "over seeds and test images, corrected for the choice among 2 settings." in text
    assert "Features that do not beat raw pixels have learned nothing useful" in text
    assert "measured once, with a1.0-s0" in text
    better = table(experiment(), measured([0.43, 0.44, 0.42], [0.75, 0.76, 0.74], 0.45))
    assert "the best setting, alpha_min 0.6, beats raw pixels: 75.0 against 45.0" in better
    assert "nothing useful" not in better
    assert "raw pixels" not in table(experiment(), {"a1.0-s0": [number(0.4)]}), "as an earlier version measured"


def test_the_interval_is_over_seeds_and_over_images():
    values, raw = [0.50, 0.56, 0.53], number(0.45, "raw pixels")
    text = table(experiment(), measured([0.1, 0.1, 0.1], values, 0.45))
    gains = [number(value, draw=seed + 1).value - raw.value for seed, value in enumerate(values)]
    low, high = stats.t.interval(1 - 0.05 / 2, 2, loc=np.mean(gains), scale=stats.sem(gains))
    pairs = [paired_interval(number(value, draw=seed + 1), raw, 2) for seed, value in enumerate(values)]
    below = np.hypot(np.mean(gains) - low, np.mean(gains) - np.mean([pair[0] for pair in pairs]))
    above = np.hypot(high - np.mean(gains), np.mean([pair[1] for pair in pairs]) - np.mean(gains))
    ends = [100 * (np.mean(gains) - below), 100 * (np.mean(gains) + above)]
    assert f"[{ends[0]:+.1f}, {ends[1]:+.1f}] over seeds and test images" in text


def test_one_seed_is_compared_over_its_images_and_overlapping_sets_are_not():
    one = {name: metrics for name, metrics in measured([0.7], [0.3], 0.4).items() if name.endswith("s0")}
    assert "points [" in (text := table(experiment(1), one)) and "] over test images, corrected" in text
    seen = {name: [replace(m, protocol=m.protocol | {"overlap": 9}) for m in each] for name, each in one.items()}
    assert "against" not in table(experiment(1), seen)


def test_baselines_are_those_of_the_images_of_the_table():
    """Somebody measured a run of the sweep on other images, too."""
    found = measured([0.4], [0.4], 0.45)
    found["a1.0-s0"].insert(0, number(0.9, "raw pixels", train_set="bb"))
    found["a1.0-s0"].append(number(0.8, "raw pixels", train_set="bb"))
    assert baselines_of(experiment(1), found)["raw pixels"]["kNN %"].value == 0.45


def test_the_csv_has_baselines_without_a_trial(tmp_path):
    """Grouped by a setting, its numbers would be means over raw pixels, too."""
    write_csv(tmp_path / "sweep.csv", experiment(), measured([0.4] * 3, [0.5] * 3, 0.45))
    with (tmp_path / "sweep.csv").open(newline="") as file:
        read = [
            (row["trial"], row["alpha_min"], json.loads(row["protocol"])["features"]) for row in csv.DictReader(file)
        ]
    assert [row for row in read if row[2] != "trained"] == [("", "", "raw pixels"), ("", "", "untrained")]
    assert len([row for row in read if row[2] == "trained" and row[0]]) == 6


def test_the_page_has_the_sentence_below_its_first_table():
    first = findings(experiment(), measured([0.43] * 3, [0.35] * 3, 0.45))
    values = {"runs": [], "groups": [], "training": [], "learned": [], "alphas": [], "pictures": [], "by_block": None}
    values |= {"one_by_one": False, "title": first.title, "maps": {"maps": []}, "live": ""}
    page = template("report.html").render(**values, findings=first, **frame_values())
    assert (
        "<td>raw pixels</td>" in page
        and first.answers
        and all(f"<strong>{line}</strong>" in page for line in first.answers)
    )


def as_earlier(trial: Trial) -> Trial:
    """No trial measured baselines."""
    before = tuple((*words, "--no-baselines") if words[0] == "evaluate" else words for words in trial.commands)
    return replace(trial, commands=before)


def test_a_sweep_of_an_earlier_version_goes_on_and_its_first_run_is_measured_again(tmp_path):
    first, second, *_ = plan(options()).trials
    (tmp_path / "logs").mkdir()
    for trial in (as_earlier(first), second):
        (tmp_path / trial.name).mkdir()
        write_json(tmp_path / trial.name / "results.json", [])
        ledger = Ledger(tmp_path, trial)
        for words in trial.commands:
            ledger.begin(words)
            ledger.finish(words, 1.0)
    assert [is_done(tmp_path, trial) for trial in (first, second)] == [False, True]
    assert [entry.words[0] for entry in Ledger(tmp_path, first).finished] == ["pretrain"], "it is not trained again"


def test_the_plan_of_an_earlier_version_is_printed_again(tmp_path):
    out = tmp_path / "s"
    run_sweep(options(out=out, print=True), lambda line: None)
    planned = json.loads((out / "sweep.json").read_text())
    measure = planned["trials"][0]["commands"][1]
    assert option_of(tuple(measure), "baselines") is None
    measure.append("--no-baselines")
    write_json(out / "sweep.json", planned)
    said: list[str] = []
    run_sweep(options(out=out, print=True), said.append)
    assert len(said) == 4
