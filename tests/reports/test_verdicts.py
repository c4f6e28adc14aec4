"""The words under a chart follow from the numbers in it by the rule that stands beside them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from echoless.config.metrics import Metric
from echoless.reports.collect import RunData
from echoless.reports.summary import summarise
from echoless.reports.verdicts import judge

STEPS = 200


def told(key: str, value, **more) -> dict[str, str]:
    chance = random.Random(0)
    lines = [{"step": s, key: value(s / STEPS, chance), **more} for s in range(1, STEPS + 1)]
    run = RunData(path=Path("run"), name="run", lines=lines, config={"steps": STEPS})
    return {verdict.quantity: verdict.word for verdict in judge(run)}


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (lambda t, c: 1 - 0.5 * t + c.gauss(0, 0.01), "still improving"),
        (lambda t, c: 0.5 + c.gauss(0, 0.01), "flat"),
        (lambda t, c: 0.5 + 0.4 * t + c.gauss(0, 0.01), "rising"),
        (lambda t, c: None if t > 0.9 else 0.5, "not finite"),
    ],
)
def test_loss(value, word):
    assert told("loss", value) == {"loss": word}


def test_noise_alone_is_seldom_called_a_trend():
    """Two standard errors: about one in twenty by chance, in either direction."""
    words = []
    for seed in range(200):
        chance = random.Random(seed)
        lines = [{"step": s, "loss": 0.5 + chance.gauss(0, 0.05)} for s in range(1, STEPS + 1)]
        words += [verdict.word for verdict in judge(RunData(path=Path("r"), name="r", lines=lines))]
    false = 1 - words.count("flat") / len(words)
    print(f"loss verdicts on pure noise: {100 * false:.1f} % called a trend (200 runs)")
    assert false < 0.12


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (lambda t, c: t, "warming up"),
        (lambda t, c: 1e-3, "constant"),
        (lambda t, c: 1.1 - t, "falling"),
        (lambda t, c: 1 - t, "decayed"),
    ],
)
def test_learning_rate(value, word):
    assert told("lr", value) == {"learning rate": word}


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (lambda t, c: 1 + c.random(), "steady"),
        (lambda t, c: 1 if t < 0.8 else 5, "growing"),
        (lambda t, c: 100 if t in (0.5, 0.6) else 1, "2 spikes"),
    ],
)
def test_gradient_norm(value, word):
    assert told("gradient_norm", value) == {"gradient norm": word}


def test_feature_norms():
    def norms(growth: float):
        return lambda t, c: {"block00": 1.0, "block01": 1 + growth * t}

    assert told("feature_norm", norms(0.5)) == {"feature norms": "steady"}
    assert told("feature_norm", norms(40)) == {"feature norms": "growing"}


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (lambda t, c: 10.0, "flat"),
        (lambda t, c: 10 + 20 * t, "rising"),
        (lambda t, c: 10 - 5 * t, "falling"),
        (lambda t, c: 10 if t < 0.5 else 2.2, "a fraction of its peak"),
        (lambda t, c: 1.2, "collapsed"),
    ],
)
def test_effective_rank(value, word):
    assert told("rankme", value) == {"effective rank": word}


def test_speed():
    assert told("images_per_second", lambda t, c: 100.0, waiting=0.0) == {"images/s": "steady"}
    assert told("images_per_second", lambda t, c: 100.0, waiting=0.5) == {"images/s": "waiting for data"}
    assert told("images_per_second", lambda t, c: 100.0 if t < 0.7 else 50.0) == {"images/s": "slower"}
    halved = told("images_per_second", lambda t, c: 500.0 if 0.3 < t < 0.42 else 1020.0 + c.gauss(0, 20))
    assert halved == {"images/s": "uneven"}, "it was called steady"


def test_a_speed_has_no_power_of_ten():
    """It was 1.02e+03 images/s."""
    lines = [{"step": step, "images_per_second": 1020.0} for step in range(1, 31)]
    (verdict,) = judge(RunData(path=Path("r"), name="r", lines=lines))
    assert verdict.sentence.startswith("median 1,020 images/s, 1,020 images/s at the end, ")


def test_a_run_that_has_just_begun_is_not_judged():
    run = RunData(path=Path("r"), name="r", lines=[{"step": 1, "loss": 1.0, "lr": 0.1, "rankme": 2.0}])
    assert {verdict.word for verdict in judge(run)} == {"too short to tell"}
    assert judge(RunData(path=Path("r"), name="r")) == []


def test_a_finished_run_of_two_steps_is_not_called_stable_nor_unmeasured_if_it_was_measured():
    lines = [{"step": step, "loss": 1.0} for step in (1, 2)]
    run = RunData(path=Path("r"), name="r", lines=lines, config={"steps": 2})
    said = summarise(run, judge(run)).verdict
    assert said == "Training is complete and was too short to judge. Its features have not been measured."
    run.results.append(Metric(metric="miou", value=0.1, n=10, interval=None, protocol={}))
    assert summarise(run, judge(run)).verdict.endswith("Its accuracy has not been measured.")


def test_every_verdict_carries_its_rule_and_its_figures(two_runs):
    from echoless.reports.collect import collect

    verdicts = judge(collect(two_runs[0]))
    assert len(verdicts) == 6 and all(verdict.rule and any(map(str.isdigit, verdict.sentence)) for verdict in verdicts)
