"""A sweep survives: what is done is not done again, what fails does not stop the rest, a kill costs nothing."""

from __future__ import annotations

import csv
import json
import shlex
import signal
import subprocess
import sys
import time
from html import escape
from pathlib import Path
from unittest import mock

import pytest
from PIL import Image

from echoless.config.options import SweepOptions
from echoless.errors import ConfigError, DataError, EcholessError, RunError, UntrustedFile
from echoless.runs import RunFolder
from echoless.runtime import StopRequest
from echoless.storage import write_json
from echoless.sweeps.commands import RUN
from echoless.sweeps.executors.on_local import LocalExecutor
from echoless.sweeps.experiment import Experiment, Quantity, Trial
from echoless.sweeps.grid import grid
from echoless.sweeps.ledger import Ledger, is_done, require_same_training
from echoless.sweeps.run import SweepResult, carry_out, prepare_folder, run_sweep
from echoless.sweeps.tabulate import findings, table
from echoless.sweeps.trials import run_trial

TINY = ["--recipe", "demo", "--batch-size", "8", "--over", "patch_size=16", "--metrics", "rank"]


def options(**changes):
    settings = {"recipe": "demo", "batch_size": 8, "over": ("patch_size=16",), "metrics": ("rank",), "seeds": 1}
    return SweepOptions(
        **({"data": "shapes", "out": "sweep"} | settings | {"alpha_min": (1.0, 0.6), "max_steps": 10} | changes)
    )


def experiment(*commands, names=("a", "b"), **settings):
    """Trials whose commands cost nothing."""
    trials = [Trial(name=name, settings={"x": name, "seed": 0}, commands=commands, **settings) for name in names]
    return Experiment(name="e", title="T", trials=tuple(trials), quantities=(Quantity(metric="knn"),))


class Planned(EcholessError):
    """Raised where trials would begin."""


def finished(out, *names):
    for name in names:
        (out / name).mkdir()
        write_json(out / name / "results.json", [])


def test_printing_lays_out_the_folder_and_runs_nothing(tmp_path):
    said: list[str] = []
    out = tmp_path / "a folder with spaces"
    run_sweep(options(data="my data", out=out, print=True), said.append)
    assert len(said) == 2 and sorted(path.name for path in out.iterdir()) == [".lock", "logs", "sweep.json"]
    assert shlex.split(said[0], comments=True) == ["echoless", "trial", str(out), "alpha_min-1.0_seed-0"]
    train, measure = said[0].partition("  # ")[2].split(" && ")
    assert shlex.split(train)[:3] == ["echoless", "pretrain", "my data"] and "'my data'" in train
    assert shlex.split(measure)[:3] == ["echoless", "evaluate", str(out / "alpha_min-1.0_seed-0")]
    plan = json.loads((out / "sweep.json").read_text())
    assert [trial["settings"]["alpha_min"] for trial in plan["trials"]] == [1.0, 0.6]
    assert plan["trials"][0]["commands"][0][3] == RUN  # the plan can be moved


def test_a_failing_trial_is_told_in_one_line_and_the_others_go_on(tmp_path):
    """`--version` does well, and an unknown verb does not; the second time only the failed one runs."""
    good, bad = experiment(("--version",), names=("a", "c")).trials, experiment(("fly",), names=("b",)).trials
    plan = Experiment(name="e", title="T", trials=(good[0], bad[0], good[1]), quantities=())
    prepare_folder(plan, tmp_path).release()
    finished(tmp_path, "a", "b", "c")
    for expected in ([1, 2, 3], [3]):
        said: list[str] = []
        swept = carry_out(plan, tmp_path, StopRequest(), said.append, LocalExecutor(1))
        assert swept.failed == ("b",) and not swept.stopped
        told = [line for line in said if line.startswith("[")]
        assert [int(line[1]) for line in told] == expected
        assert any("b FAILED: echoless: unknown verb 'fly'; allowed: " in line for line in told)
        assert any("1 of 3 runs failed" in line for line in said)


def test_a_folder_that_trials_share_is_waited_for(tmp_path, monkeypatch):
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr("echoless.sweeps.trials.run_command", lambda words, *_, **__: ran.append(words) or 0)
    (tmp_path / "logs").mkdir()
    (trial,) = experiment(("pretrain", "--out", "{run}/../shared"), ("evaluate", "{run}"), names="a").trials
    assert run_trial(trial, tmp_path, StopRequest()).state == "done"
    assert ran == [("pretrain", "--out", str(tmp_path / "shared"), "--wait"), ("evaluate", str(tmp_path / "a"))]


def test_a_finished_command_is_not_run_again_and_a_changed_one_is(tmp_path):
    stop, (trial,) = StopRequest(), experiment(("--version",), ("--help",), names=("a",)).trials
    (tmp_path / "logs").mkdir()
    finished(tmp_path, "a")
    assert run_trial(trial, tmp_path, stop).state == "done" and is_done(tmp_path, trial)
    (changed,) = experiment(("--version",), ("recipes", "--help"), names=("a",)).trials
    assert not is_done(tmp_path, changed) and len(Ledger(tmp_path, changed).finished) == 1
    (tmp_path / "a" / "results.json").unlink()
    assert not is_done(tmp_path, trial)


def test_a_run_that_is_not_finite_is_an_answer_where_the_question_is_stability(tmp_path, monkeypatch):
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr(
        "echoless.sweeps.trials.run_command", lambda words, log, stop, **_: log.write_text("x\nwhy") and 3
    )
    for may_diverge, state in ((True, "done"), (False, "failed")):
        (trial,) = experiment(("pretrain",), ("evaluate",), names=(f"t{state}",), may_diverge=may_diverge).trials
        outcome = run_trial(trial, tmp_path, StopRequest())
        assert outcome.state == state and outcome.text.startswith("why") and is_done(tmp_path, trial) is may_diverge


@pytest.mark.parametrize(("code", "how"), [(-9, "killed by SIGKILL"), (130, "stopped by a signal")])
def test_a_command_that_was_ended_from_outside_has_stopped_and_not_failed(code, how, tmp_path, monkeypatch):
    """So that the same sweep continues it."""
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr("echoless.sweeps.trials.run_command", lambda *_, **__: code)
    (trial,) = experiment(("pretrain",), names=("a",)).trials
    outcome = run_trial(trial, tmp_path, StopRequest())
    assert outcome.state == "stopped" and outcome.text.startswith(f"{how}; full output in ")


def test_a_run_begun_under_other_settings_is_not_continued(tmp_path):
    run_sweep(options(data="shapes", out=tmp_path / "s", print=True), lambda line: None)
    trial = "alpha_min-1.0_seed-0"
    planned = json.loads((tmp_path / "s" / "sweep.json").read_text())["trials"][0]["commands"]
    write_json(tmp_path / "s" / "logs" / f"{trial}.json", {"begun": planned[:1], "finished": []})
    run_sweep(options(data="shapes", out=tmp_path / "s", print=True), lambda line: None)
    with pytest.raises(ConfigError, match=r"was started with --max-steps 10, but this sweep has --max-steps 11"):
        run_sweep(options(data="shapes", out=tmp_path / "s", print=True, max_steps=11), lambda line: None)


def test_images_that_were_replaced_are_not_an_old_table(tmp_path):
    """What is done is not measured again: names, counts and settings are equal, and the table would be the old one."""
    data, out, labels = tmp_path / "data", tmp_path / "s", tmp_path / "labels.csv"
    data.mkdir()

    def sweep(grey: int, names: str = "ab", **changes) -> str:
        for number in range(len(names)):
            Image.new("RGB", (32, 32), (grey, 0, number)).save(data / f"{number}.bmp")
        labels.write_text("".join(f"{number}.bmp,{name}\n" for number, name in enumerate(names)))
        with pytest.raises(EcholessError) as refused, mock.patch("echoless.sweeps.run.carry_out", side_effect=Planned):
            run_sweep(options(data=str(data), labels=str(labels), out=out, **changes), print)
        return str(refused.value)

    changed = f"the images or labels of data are not those with which the sweep in {out} began; give another --out"
    assert [sweep(1), sweep(1), sweep(2), sweep(1), sweep(1, "aa")] == ["", "", changed, "", changed]
    plan = json.loads((out / "sweep.json").read_text())
    del plan["sets"]  # as an earlier version wrote it
    write_json(out / "sweep.json", plan)
    assert sweep(2) == "" and sweep(1) == changed


def test_with_labelled_images_of_their_own_data_needs_no_labels_and_both_are_remembered(tmp_path):
    for name in ("many", "few"):
        (tmp_path / name).mkdir()
        for number in range(2):
            Image.new("RGB", (32, 32), (number, 0, len(name))).save(tmp_path / name / f"{number}.bmp")
    (tmp_path / "few.csv").write_text("0.bmp,a\n1.bmp,b\n")
    given = {"data": tmp_path / "many", "train": tmp_path / "few", "labels": tmp_path / "few.csv"}
    with pytest.raises(Planned), mock.patch("echoless.sweeps.run.carry_out", side_effect=Planned):
        run_sweep(options(**given, out=tmp_path / "s"), print)
    recorded = json.loads((tmp_path / "s" / "sweep.json").read_text())["sets"]
    assert recorded.keys() == {"data", "train"}


def test_classes_that_the_sets_share_are_listed_once(tmp_path, capsys):
    given = {"data": "shapes:40", "train": "shapes:30", "test": "shapes:20@test"}
    with pytest.raises(Planned), mock.patch("echoless.sweeps.run.carry_out", side_effect=Planned):
        run_sweep(options(**given, out=tmp_path / "s"), print)
    assert [line.partition(" (")[0] for line in capsys.readouterr().err.splitlines() if "classes" in line] == [
        "labels of DATA: 10 classes from the data set"
    ]


def test_test_images_that_are_learned_from_are_said_before_the_first_training(tmp_path):
    """They were found by every evaluation, whose words are in the logs of the runs; the table said nothing."""
    said: list[str] = []

    def tables(plan: Experiment, out: Path, *rest: object) -> None:
        assert said[0] in table(plan, {}) and findings(plan, {}).warnings == (f"{said[0]}.",), (
            "under the table, on the page"
        )
        raise Planned

    for given, learned in (({"data": "shapes:40"}, "DATA"), ({"data": "shapes:50", "train": "shapes:40"}, "--train")):
        said.clear()
        with pytest.raises(Planned), mock.patch("echoless.sweeps.run.carry_out", side_effect=tables):
            run_sweep(options(**given, test="shapes:30", out=tmp_path / learned), said.append)
        assert said[0].startswith(f"30 of 30 images of --test are in {learned} too (")


def test_one_folder_with_two_lists_of_labels_is_two_sets_in_a_sweep(tmp_path):
    """As in `evaluate`: an image counts as shared only if it has a label in both."""
    for number in range(6):
        Image.new("RGB", (32, 32), (0, 0, number)).save(tmp_path / f"{number}.bmp")
    lists = {"labels": tmp_path / "a.csv", "test_labels": tmp_path / "b.csv"}
    for first, file in zip((0, 3), lists.values()):
        file.write_text("".join(f"{first + number}.bmp,{number % 2}\n" for number in range(3)))
    said: list[str] = []
    with pytest.raises(Planned), mock.patch("echoless.sweeps.run.carry_out", side_effect=Planned):
        run_sweep(options(data=tmp_path, test=tmp_path, **lists, out=tmp_path / "s"), said.append)
    assert said == []


def test_classes_that_do_not_agree_are_found_before_the_first_training(tmp_path):
    for name, label in (("train", "n01440764"), ("val", "1")):
        (tmp_path / name).mkdir()
        Image.new("RGB", (32, 32)).save(tmp_path / name / "0.bmp")
        (tmp_path / f"{name}.csv").write_text(f"0.bmp,{label}\n")
    given = {"data": tmp_path / "train", "labels": tmp_path / "train.csv"}
    given |= {"test": tmp_path / "val", "test_labels": tmp_path / "val.csv"}
    with pytest.raises(DataError, match="the test set has classes that the training set lacks: 1"):
        run_sweep(options(**given, out=tmp_path / "s"), print)
    assert not (tmp_path / "s").exists()


def test_printing_changes_nothing_in_the_folder_of_another_plan(tmp_path):
    prepare_folder(grid("shapes", options()), tmp_path / "s", {"data": "0123"}).release()
    before = (tmp_path / "s" / "sweep.json").read_bytes()
    run_sweep(options(out=tmp_path / "s", print=True, alpha_min=(0.3,)), lambda line: None)
    assert (tmp_path / "s" / "sweep.json").read_bytes() == before


def test_folders_that_are_not_this_sweeps_are_refused(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    with pytest.raises(RunError, match="is not empty and holds no sweep"):
        prepare_folder(experiment(("--version",)), tmp_path / "photos")
    prepare_folder(experiment(("--version",)), tmp_path / "s").release()
    with pytest.raises(RunError, match="holds another sweep, 'e' instead of 'grid'"):
        run_sweep(options(data="shapes", out=tmp_path / "s", print=True), print)
    with pytest.raises(RunError):
        prepare_folder(experiment(("--version",)), tmp_path / "photos" / "a.jpg" / "s")


def test_data_that_cannot_be_read_is_refused_once_and_leaves_nothing(tmp_path):
    (tmp_path / "empty").mkdir()
    for data, test in ((tmp_path / "missing", None), (tmp_path / "empty", None), ("shapes:8", str(tmp_path / "no"))):
        with pytest.raises(DataError):
            run_sweep(options(data=str(data), out=tmp_path / "s", test=test), print)
        assert not (tmp_path / "s").exists()


def test_two_sweeps_do_not_fill_one_folder(tmp_path):
    with (
        prepare_folder(experiment(("--version",)), tmp_path / "s"),
        pytest.raises(RunError, match="filled by another sweep"),
    ):
        prepare_folder(experiment(("--version",)), tmp_path / "s")


@pytest.mark.parametrize(
    "content", ["{}", '{"begun": 1, "finished": []}', '{"begun": [], "finished": [1]}', "nonsense"]
)
def test_a_ledger_that_somebody_else_wrote_is_refused_by_name(tmp_path, content):
    plan = experiment(("--version",))
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.json").write_text(content)
    with pytest.raises(UntrustedFile, match=r"a\.json"):
        Ledger(tmp_path, plan.trials[0])


def test_a_sweep_prints_as_what_it_found_or_planned():
    """It was one line of 8,401 characters."""
    planned = experiment(("--version",), names=("a", "b"))
    assert str(SweepResult(planned, commands=("echoless trial s a", "echoless trial s b"))) == (
        "echoless trial s a\necholess trial s b"
    )
    assert str(SweepResult(planned, failed=("a", "b"), stopped=True)).splitlines() == [
        "nothing was measured",
        "stopped by a signal; the same call continues",
        "failed: a, b; the same call tries them again",
    ]


def test_a_real_run_is_measured_for_its_speed_stopped_continued_and_compared(tmp_path):
    said: list[str] = []
    swept = run_sweep(options(data="shapes:32", out=tmp_path / "s", alpha_min=(0.6,), max_steps=40), said.append)
    assert not swept.failed and not swept.stopped
    assert any(str(swept) in line for line in said) and "alpha_min  seeds  rank" in str(swept), (
        "print shows the table again"
    )
    assert swept._repr_html_() == f"<pre>{escape(str(swept))}</pre>"
    assert any("1 to go: about " in line and "training alone" in line for line in said)
    assert any(line.startswith("its model: masked autoencoder") and "M parameters" in line for line in said)
    log = (tmp_path / "s" / "logs" / "alpha_min-0.6_seed-0.txt").read_text()
    assert "resuming after step" in log or "nothing left to do" in log
    with (tmp_path / "s" / "sweep.csv").open(newline="") as file:
        assert {row["metric"] for row in csv.DictReader(file)} == {"rank_paper", "rank_centered", "rankme"}
    assert (tmp_path / "s" / "report.html").stat().st_size > 10_000
    again: list[str] = []
    run_sweep(options(data="shapes:32", out=tmp_path / "s", alpha_min=(0.6,), max_steps=40), again.append)
    assert not [line for line in again if line.startswith("[")] and any("rank" in line for line in again)


def start(out: Path) -> subprocess.Popen:
    """What it says goes to a file beside the folder."""
    grid = ["--alpha-min", "1.0", "0.6", "--seeds", "1", "--max-steps", "300"]
    words = [sys.executable, "-m", "echoless", "sweep", "shapes:32", "--out", str(out), *grid, *TINY]
    with out.with_suffix(".txt").open("w") as said:
        return subprocess.Popen(words, stdout=said, stderr=said)


def children(parent: int) -> list[int]:
    listed = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return [int(pid) for pid in listed.split()]


def wait_for(condition, seconds=240):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_sweep_that_is_killed_leaves_no_process_and_the_same_command_ends_like_one_that_was_not(tmp_path):
    whole = start(tmp_path / "whole")
    assert whole.wait(600) == 0
    out, trial = tmp_path / "killed", "alpha_min-0.6_seed-0"
    for moment in ("alpha_min-1.0_seed-0/metrics.jsonl", f"{trial}/metrics.jsonl"):
        sweep = start(out)
        wait_for(lambda moment=moment: (out / moment).exists() and (out / moment).stat().st_size > 2000)
        (child,) = children(sweep.pid)
        sweep.send_signal(signal.SIGKILL)
        sweep.wait()
        wait_for(
            lambda child=child: (
                not Path(f"/proc/{child}").exists() or "State:\tZ" in Path(f"/proc/{child}/status").read_text()
            )
        )
    stopped = start(out)
    wait_for(lambda: children(stopped.pid))
    stopped.send_signal(signal.SIGTERM)
    assert stopped.wait(120) == 75 and "the same command continues" in out.with_suffix(".txt").read_text()
    last = start(out)
    assert last.wait(600) == 0
    for name in ("alpha_min-1.0_seed-0", trial):
        file = Path("encoder") / "model.safetensors"
        assert (out / name / file).read_bytes() == (tmp_path / "whole" / name / file).read_bytes()
        assert RunFolder(out / name).read_results() == RunFolder(tmp_path / "whole" / name).read_results()
    print("sweep: 2 kills, 1 stop; both encoders and every number equal to those of a sweep that was left alone")


def test_a_command_that_fails_was_begun_and_is_not_finished(tmp_path, monkeypatch):
    """So that the same sweep runs it again, and one with other settings is refused before it does."""
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr("echoless.sweeps.trials.run_command", lambda words, log, *_, **__: log.write_text("no") and 1)
    (trial,) = experiment(("pretrain", "--max-steps", "5"), ("evaluate",), names=("a",)).trials
    assert run_trial(trial, tmp_path, StopRequest()).state == "failed"
    ledger = Ledger(tmp_path, trial)
    assert ledger.begun == [trial.commands[0]] and ledger.finished == []
    require_same_training(tmp_path, trial)
    (other,) = experiment(("pretrain", "--max-steps", "6"), ("evaluate",), names=("a",)).trials
    with pytest.raises(ConfigError, match=r"was started with --max-steps 5, but this sweep has --max-steps 6"):
        require_same_training(tmp_path, other)


def test_what_was_measured_on_another_run_does_not_count(tmp_path):
    (tmp_path / "logs").mkdir()
    (trial,) = experiment(("pretrain", "--seed", "0"), ("evaluate",), names=("a",)).trials
    for words in trial.commands:
        Ledger(tmp_path, trial).finish(words, 1.0)
    finished(tmp_path, "a")
    assert len(Ledger(tmp_path, trial).finished) == 2 and is_done(tmp_path, trial)
    (other,) = experiment(("pretrain", "--seed", "1"), ("evaluate",), names=("a",)).trials
    assert Ledger(tmp_path, other).finished == [] and not is_done(tmp_path, other)


def test_a_folder_that_is_not_this_sweeps_is_refused_before_any_image_is_read(tmp_path, capsys):
    """All images were decoded first, which of a million takes an hour."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    with pytest.raises(RunError, match="is not empty and holds no sweep"):
        run_sweep(options(data="shapes:40", out=tmp_path / "photos"), print)
    assert "reading" not in capsys.readouterr().err
