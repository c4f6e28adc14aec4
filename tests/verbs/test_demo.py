"""The demo trains two runs that differ in alpha_min alone, and says in words what it saw and what it did not."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from echoless.config.metrics import Metric
from echoless.config.options import DemoOptions
from echoless.errors import ConfigError, EcholessError
from echoless.verbs.demo import demo
from echoless.verbs.demonstration import comparison
from echoless.verbs.pretrain import pretrain


def metric(name: str, value: float, half: float | None = 0.01, features: str = "trained") -> Metric:
    interval = None if half is None else (value - half, value + half)
    return Metric(metric=name, value=value, n=100, interval=interval, protocol={"features": features})


@pytest.fixture(autouse=True)
def small_sets(monkeypatch):
    for name, data in (("TRAIN", "shapes:160"), ("LABELLED", "shapes:160"), ("TEST", "shapes:60@test")):
        monkeypatch.setattr(f"echoless.verbs.demonstration.{name}", data)


def test_it_runs_and_a_second_call_finds_everything_done(tmp_path):
    said: list[str] = []
    options = DemoOptions(out=tmp_path / "demo", steps=2)
    results = demo.run(options, said.append)
    assert set(results) == {"plain", "faded"}
    configs = [json.loads((tmp_path / "demo" / name / "config.json").read_text()) for name in ("plain", "faded")]
    assert [c["model"]["encoder"]["shortcuts"].pop("alpha_min") for c in configs] == [1.0, 0.6]
    assert configs[0] == configs[1], "equal in all else"
    records = json.loads((tmp_path / "demo" / "results.json").read_text())
    assert {(r["run"], r["metric"]) for r in records} >= {
        ("plain", "knn"),
        ("faded", "linear"),
        ("faded", "miou"),
        ("plain", "miou_object"),
    }
    assert (tmp_path / "demo" / "faded" / "figures" / "reconstructions.png").exists()
    assert "2 runs compared" in (tmp_path / "demo" / "report.html").read_text()
    again = demo.run(replace(options, steps=None), said.append)
    assert again == results
    assert any("raw pixels" in line for line in said)
    assert said[0].startswith("estimated time: ")


def test_what_cannot_be_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(EcholessError, match="file"):
        demo(out=tmp_path / "file")
    with pytest.raises(ConfigError, match="steps is 0; allowed: a whole number"):
        demo(out=tmp_path / "demo", steps=0)


def test_two_runs_that_differ_in_more_than_alpha_are_not_compared(tmp_path):
    pretrain("shapes:160", out=tmp_path / "plain", recipe="demo", alpha_min=1.0, max_steps=1, weight_decay=0.0)
    with pytest.raises(EcholessError, match="differ in more than alpha_min; give another --out"):
        demo(out=tmp_path, steps=1)


def test_a_difference_is_claimed_only_beyond_the_intervals():
    plain = [metric("knn", 0.30), metric("linear", 0.50), metric("miou", 0.1, None), metric("rank_paper", 2.0, None)]
    faded = [metric("knn", 0.40), metric("linear", 0.51), metric("miou", 0.2, None), metric("rank_paper", 1.0, None)]
    words = comparison(plain, faded)
    assert "kNN accuracy: faded is better than plain by 10.0 points, beyond the intervals" in words
    assert (
        "Linear probe accuracy: faded is +1.0 points from plain, within the intervals: no difference was seen" in words
    )
    assert "Segmentation mIoU: faded is +10.0 points from plain; no interval" in words
    assert "Effective rank" not in words, "no rank is better than another"
    assert "with one seed:" in words
    raw = [metric("knn", 0.20, features="raw pixels")]
    assert "kNN accuracy: plain is better than raw pixels by 10.0 points" in comparison([*raw, *plain], faded)
    assert "faded is worse than plain by 10.0 points" in comparison(faded, plain)
