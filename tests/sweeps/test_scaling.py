"""The scaling study: one run per setting and seed gives every budget; the words below its table follow the curves."""

from __future__ import annotations

import math

import pytest

from echoless.config.metrics import Metric
from echoless.config.options import SweepOptions
from echoless.sweeps.growth import crossing, gains, images_to_reach, speed_up, trend
from echoless.sweeps.papers import paper
from echoless.sweeps.papers.scaling import conclude
from echoless.sweeps.tabulate import rows


def test_a_gain_is_paired_by_seed_and_has_students_interval():
    plain, faded = {0: {100: 0.2}, 1: {100: 0.4}}, {0: {100: 0.3}, 1: {100: 0.5}, 2: {100: 0.9}}
    gain = gains(plain, faded)[100]
    assert gain.mean == pytest.approx(0.1) and gain.seeds == 2, "a seed that only one of them has is no pair"
    assert gain.interval == pytest.approx((0.1, 0.1))


def test_the_crossing_is_where_the_gain_stays_positive_on_a_logarithmic_scale():
    assert crossing({100: -0.1, 400: 0.1}) == pytest.approx(200), "half-way between 100 and 400"
    assert crossing({100: 0.1, 200: -0.1, 800: 0.1}) == pytest.approx(400), "an early lead that was lost does not count"
    assert crossing({100: 0.1, 200: 0.2}) == 0
    assert crossing({100: 0.1, 200: -0.2}) is None and crossing({}) is None


def test_images_to_reach_and_their_ratio_are_exact_for_two_logarithms():
    """accuracy = 0.1 log2(c images): a curve with 3 times the c needs a third of the images for anything."""
    counts = [2**k * 1000 for k in range(8)]
    plain = {images: 0.1 * math.log2(images / 500) for images in counts}
    faded = {images: 0.1 * math.log2(3 * images / 500) for images in counts}
    assert images_to_reach(plain, plain[8000]) == pytest.approx(8000)
    assert images_to_reach(plain, 5.0) is None
    assert speed_up(plain, faded) == pytest.approx(3)
    assert speed_up(faded, plain) <= 1, "never reached: at most the images that it was given"
    gain = {images: faded[images] - plain[images] for images in counts}
    assert trend(gain) == pytest.approx(0, abs=1e-12), "a constant lead"
    assert trend({images: 0.02 * math.log2(images) for images in counts}) == pytest.approx(0.02)


def planned(scale: str = "tiny"):
    return paper(
        "scaling", "shapes:1000", SweepOptions("shapes:1000", out="OUT", paper="scaling", scale=scale, seeds=2)
    )


def test_every_alpha_shares_all_other_settings_and_one_run_gives_all_budgets():
    trials = planned().trials
    assert len(trials) == 3 * 2
    training = trials[0].commands[0]
    assert "constant" in training and "--ema" in training and "--snapshot-every" in training
    assert "--snapshots" in trials[0].commands[1]
    differing = {pair for pair in zip(training, trials[1].commands[0]) if pair[0] != pair[1]}
    assert differing == {("1.0", "0.6")}
    assert len(planned("cpu").trials) == 8 * 2 * 2 * 2


def test_what_the_curves_say_is_said_below_the_table(tmp_path):
    plan = planned()
    found = {}
    for trial in plan.trials:
        ahead = 0.0 if trial.settings["alpha_min"] == 1.0 else 0.1
        found[trial.name] = [
            Metric(
                metric=name,
                value=0.01 * trial.settings["seed"] + 0.1 * k + (ahead if k > 1 else -ahead),
                n=100,
                protocol={"features": "trained", "step": 1000 * 2**k},
            )
            for k in range(4)
            for name in ("knn", "linear")
        ]
    lines = conclude(plan, found, tmp_path)
    assert lines[0].startswith("kNN accuracy, 6 x 64, alpha_min 0.6: ahead from 181,019 images on; largest gain +10.0")
    assert "points at 512,000 images" in lines[0] or "points at 256,000 images" in lines[0]
    assert len(lines) == 5 and (tmp_path / "scaling.png").stat().st_size > 1000
    steps = {row.columns["step"] for row in rows(plan, found)}
    assert steps == {1000, 2000, 4000, 8000}
    assert conclude(plan, {}, tmp_path) == []


def test_runs_are_compared_with_those_that_differ_in_alpha_alone(tmp_path):
    """A setting that is varied on request gives curves of its own: they were put into one, and the last one stayed."""
    options = SweepOptions("DATA", out="OUT", paper="scaling", seeds=1, over=("optimizer=adamw,soap",))
    plan = paper("scaling", "shapes", options)
    gain = {"adamw": 0.1, "soap": 0.2}
    found = {
        trial.name: [
            Metric(
                metric="knn",
                value=0.3 + (gain[trial.settings["optimizer"]] if trial.settings["alpha_min"] < 1 else 0.0),
                n=100,
                protocol={"features": "trained", "step": step},
            )
            for step in (500, 1000)
        ]
        for trial in plan.trials
    }
    lines = [line for line in conclude(plan, found, tmp_path) if "alpha_min 0.6" in line]
    assert ["optimizer adamw" in line and "+10.0 points" in line for line in lines] == [True, False]
    assert ["optimizer soap" in line and "+20.0 points" in line for line in lines] == [False, True]
