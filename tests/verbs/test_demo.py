"""The demo trains runs that differ in alpha_min and seed alone, and judges them by a rule that it states first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from echoless.config.metrics import Metric
from echoless.config.options import DemoOptions
from echoless.errors import ConfigError, EcholessError
from echoless.reports.collect import RunData
from echoless.reports.compare import Group
from echoless.sweeps.ledger import Ledger
from echoless.sweeps.run import SweepResult, prepare_folder
from echoless.verbs import demonstration
from echoless.verbs.demo import demo
from echoless.verbs.demonstration import criterion, plan, side_by_side, verdict


@pytest.fixture
def small_sets(monkeypatch):
    for name, data in (("TRAIN", "shapes:160"), ("LABELLED", "shapes:160"), ("TEST", "shapes:60@test")):
        monkeypatch.setattr(f"echoless.verbs.demonstration.{name}", data)


def test_it_runs_side_by_side_and_a_second_call_finds_everything_done(small_sets, tmp_path):
    said: list[str] = []
    options = DemoOptions(out=tmp_path / "demo", steps=2)
    results = demo.run(options, said.append)
    assert set(results) == {"plain-0", "faded-0"}
    configs = [json.loads((tmp_path / "demo" / name / "config.json").read_text()) for name in results]
    assert [c["model"]["encoder"]["shortcuts"].pop("alpha_min") for c in configs] == [1.0, 0.4]
    assert configs[0] == configs[1], "equal in all else"
    assert {metric.metric for metric in results["faded-0"]} >= {"knn", "linear", "rankme", "miou"}
    assert (tmp_path / "demo" / "faded-0" / "figures" / "reconstructions.png").exists()
    assert said[0].startswith("A win for fading:"), "the criterion comes before any number"
    concluded = said[-2]  # then comes the time that it took
    assert "kNN % by block, plain: " in concluded and "kNN accuracy, without training: raw pixels " in concluded

    page = (tmp_path / "demo" / "report.html").read_text()
    assert page.index("kNN accuracy, without training: raw pixels ") < page.index("<table"), "the verdict comes first"
    assert page.index("kNN accuracy by block") < page.index("<svg", page.index("<main>")), "the first picture"
    assert demo.run(options, said.append) == results


def test_a_demo_that_is_interrupted_ends_like_every_stopped_run(small_sets, tmp_path, monkeypatch):
    """It was said three times, and the exit code was that of bad input."""

    def stopped(experiment, *given):
        return SweepResult(experiment, stopped=True)

    monkeypatch.setattr(demonstration, "carry_out", stopped)
    with pytest.raises(EcholessError, match=r"^the demo in \S*demo was interrupted$") as error:
        demo.run(DemoOptions(out=tmp_path / "demo", steps=2), lambda text: None)
    assert error.value.exit_code == 130


def test_another_length_in_the_same_folder_is_refused(tmp_path):
    begun = plan(DemoOptions(steps=1))
    prepare_folder(begun, tmp_path / "demo").release()
    Ledger(tmp_path / "demo", begun.trials[0]).begin(begun.trials[0].commands[0])
    with pytest.raises(EcholessError, match="was started with --max-steps 1, but this sweep has --max-steps 2"):
        demo(out=tmp_path / "demo", steps=2)


def test_what_cannot_be_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(EcholessError, match="file"):
        demo(out=tmp_path / "file")
    with pytest.raises(ConfigError, match="steps is 0; allowed: a whole number"):
        demo(out=tmp_path / "demo", steps=0)
    with pytest.raises(ConfigError, match="seeds is 0; allowed: a whole number"):
        demo(out=tmp_path / "demo", seeds=0)


def test_more_seeds_are_more_pairs_of_otherwise_equal_commands():
    trials = plan(DemoOptions(seeds=3, seed=4)).trials
    assert [trial.name for trial in trials] == ["plain-4", "faded-4", "plain-5", "faded-5", "plain-6", "faded-6"]
    for plain, faded in zip(trials[::2], trials[1::2]):
        differing = [pair for pair in zip(plain.commands[0], faded.commands[0]) if pair[0] != pair[1]]
        assert differing == [("1.0", "0.4")]
    assert all("--resume" in trial.commands[0] for trial in trials), "a demo that was stopped loses no step"
    baselines = [trial.name for trial in trials if "--baselines" in trial.commands[1]]
    assert baselines == ["plain-4"], "raw pixels and untrained encoders are measured once"


def test_no_more_runs_at_a_time_than_cores_or_runs(monkeypatch):
    monkeypatch.setattr("echoless.verbs.demonstration.usable_cores", lambda: 4)
    assert [side_by_side(runs) for runs in (2, 10)] == [2, 4]
    monkeypatch.setattr("echoless.verbs.demonstration.usable_cores", lambda: 64)
    assert side_by_side(100) == 8, "memory"


def metric(name: str, value: float, half: float = 0.01, **protocol: object) -> Metric:
    about = {"features": "trained", **protocol}
    return Metric(metric=name, value=value, n=100, interval=(value - half, value + half), protocol=about)


def group(name: str, first: int, *runs: list[Metric]) -> Group:
    found = [
        RunData(path=Path(f"{name}-{seed}"), name=f"{name}-{seed}", config={"seed": seed}, results=results)
        for seed, results in enumerate(runs)
    ]
    return Group(name, tuple(found), first)


def judged(plain: list[float], faded: list[float]) -> str:
    """The first line of the verdict, for these kNN accuracies by seed."""
    groups = [group("plain", 0, *([metric("knn", v)] for v in plain))]
    groups.append(group("faded", 1, *([metric("knn", v)] for v in faded)))
    return verdict(groups, [])[0]


def test_one_seed_wins_only_beyond_the_intervals_over_images():
    assert judged([0.30], [0.40]) == (
        "kNN accuracy: fading WINS. Plain 30.0 [29.0, 31.0], faded 40.0 [39.0, 41.0], difference +10.0 [+8.6, +11.4] "
        "points (one seed)"
    )
    assert judged([0.30], [0.31]).startswith("kNN accuracy: no difference beyond the interval.")
    assert judged([0.40], [0.30]).startswith("kNN accuracy: fading LOSES.")


def test_several_seeds_are_judged_by_the_spread_of_their_paired_differences():
    assert judged([0.2, 0.3, 0.4], [0.3, 0.4, 0.5]).startswith("kNN accuracy: fading WINS."), "paired: +10 each time"
    assert "no difference" in judged([0.2, 0.3, 0.4], [0.5, 0.3, 0.2]), "far apart on one seed, reversed on another"
    assert "(3 seeds)" in judged([0.2, 0.3, 0.4], [0.3, 0.4, 0.5])


def test_the_criterion_names_the_spread_that_it_uses():
    assert "over test images, because one seed" in criterion(1)
    assert "over 5 seeds, paired" in criterion(5)
