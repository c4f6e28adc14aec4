"""Submit, wait, collect: what was killed is submitted again, what makes no progress is given up, what was run by hand
is not run again, and a stop reaches every job. On an executor of a few lines, whose jobs end as the test says.

    pytest tests/sweeps/test_dispatch.py
"""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from echoless.config.options import SweepOptions
from echoless.errors import ConfigError, RunError, UntrustedFile
from echoless.runs import RunFolder
from echoless.runtime import StopRequest
from echoless.storage import write_json
from echoless.storage.lock import FileLock
from echoless.sweeps.dispatch import MOST_LOSSES, run_trials
from echoless.sweeps.experiment import Trial
from echoless.sweeps.ledger import Ledger, Outcome, is_done, planned_trial
from echoless.sweeps.progress import progress_of
from echoless.sweeps.run import run_sweep
from echoless.sweeps.starting import Starting
from echoless.sweeps.trials import run_alone


class Scripted:
    """`acts`: trial -> what its jobs do, one after another: an outcome they record, a callable, or None for a kill."""

    seconds, after_stop = 0.0, "everything is saved"

    def __init__(self, out, trials, slots=2, **acts):
        self.out, self.trials, self.slots = out, {trial.name: trial for trial in trials}, slots
        self.acts = {name: list(acts.get(name, [Outcome("done")])) for name in self.trials}
        self.submitted, self.cancelled, self.most = [], [], 0
        self.running = set()

    def submit(self, name, words):
        self.submitted.append((name, words))
        self.running.add(name)
        self.most = max(self.most, len(self.running))
        return ScriptedJob(self, name)

    def close(self):
        pass


class ScriptedJob:
    def __init__(self, executor, name):
        self.executor, self.name, self.asked, self.over = executor, name, False, False

    def ended(self):
        if not self.over:
            act = Outcome("stopped") if self.asked else self.executor.acts[self.name].pop(0)
            act = act() if callable(act) else act
            if act == "running":
                self.executor.acts[self.name].insert(0, act)
                return False
            if act is not None:
                Ledger(self.executor.out, self.executor.trials[self.name]).end(act)
            self.over = True
            self.executor.running.discard(self.name)
        return True

    def reason(self):
        return "the machine burnt down"

    def cancel(self):
        self.asked = True
        self.executor.cancelled.append(self.name)


def trials_of(*names):
    return [Trial(name=name, settings={"x": name, "seed": 0}, commands=(("--version",),)) for name in names]


def outcomes(executor, stop=None):
    (executor.out / "logs").mkdir(exist_ok=True)
    said: list[str] = []
    trials = list(executor.trials.values())
    ended = run_trials(
        trials, executor.out, executor, stop or StopRequest(), lambda _: None, said.append, Starting(workers=3)
    )
    return {trial.name: outcome for trial, outcome in ended}, said


def test_at_most_as_many_jobs_as_there_are_slots(tmp_path):
    executor = Scripted(tmp_path, trials_of(*"abcde"), slots=2)
    found, _ = outcomes(executor)
    assert {outcome.state for outcome in found.values()} == {"done"} and executor.most == 2
    words = executor.submitted[0][1]
    assert words[3:] == ("0", "trial", str(tmp_path.absolute()), "a", "--workers", "3")


def test_a_killed_trial_is_submitted_again_and_the_others_are_not(tmp_path):
    executor = Scripted(tmp_path, trials_of(*"ab"), a=[None, Outcome("stopped", "preempted"), Outcome("done")])
    found, said = outcomes(executor)
    assert [name for name, _ in executor.submitted] == ["a", "b", "a", "a"]
    assert found == {"a": Outcome("done"), "b": Outcome("done")}
    assert said == [
        "a was lost (the machine burnt down) and is started again",
        "a was lost (preempted) and is started again",
    ]


def test_a_trial_that_is_lost_again_and_again_without_progress_is_given_up(tmp_path):
    executor = Scripted(tmp_path, trials_of(*"ab"), a=[None] * 10)
    found, _ = outcomes(executor)
    assert found["a"].state == "failed" and found["b"].state == "done"
    assert found["a"].text == "lost 3 times without progress, the last time: the machine burnt down"
    assert len(executor.submitted) == MOST_LOSSES + 1


def test_a_trial_that_gets_further_each_time_is_never_given_up(tmp_path):
    """As a run of three days in a queue with a limit of one."""
    steps = iter(range(100))

    def save_and_die():
        latest = tmp_path / "a" / "checkpoints" / "latest"
        latest.parent.mkdir(parents=True, exist_ok=True)
        latest.write_text(f"step-{next(steps):08d}")

    executor = Scripted(tmp_path, trials_of("a"), a=[save_and_die] * 8 + [Outcome("done")])
    found, _ = outcomes(executor)
    assert found["a"].state == "done" and len(executor.submitted) == 9


def test_a_failure_is_not_a_loss(tmp_path):
    executor = Scripted(tmp_path, trials_of(*"ab"), a=[Outcome("failed", "why")])
    found, _ = outcomes(executor)
    assert found == {"a": Outcome("failed", "why"), "b": Outcome("done")} and len(executor.submitted) == 2


def test_an_old_failure_does_not_count_for_a_new_attempt(tmp_path):
    (tmp_path / "logs").mkdir()
    (trial,) = trials_of("a")
    Ledger(tmp_path, trial).end(Outcome("failed", "yesterday"))
    found, said = outcomes(Scripted(tmp_path, [trial], a=[None, Outcome("done")]))
    assert found == {"a": Outcome("done")} and "burnt down" in said[0]


def test_a_stop_cancels_what_runs_and_submits_nothing_more(tmp_path):
    stop = StopRequest()

    def ask():
        stop.requested = "SIGINT"
        return "running"

    executor = Scripted(tmp_path, trials_of(*"abcd"), slots=2, a=[ask], b=["running"])
    found, _ = outcomes(executor, stop)
    assert {name: outcome.state for name, outcome in found.items()} == dict.fromkeys("abcd", "stopped")
    assert [name for name, _ in executor.submitted] == ["a", "b"] and sorted(executor.cancelled) == ["a", "b"]


def test_an_error_cancels_the_others(tmp_path):
    def spoil():
        (tmp_path / "logs" / "a.json").write_text("nonsense")

    executor = Scripted(tmp_path, trials_of(*"ab"), a=[spoil], b=["running"])
    with pytest.raises(UntrustedFile, match=r"a\.json"):
        outcomes(executor)
    assert executor.cancelled == ["b"]


# --- one trial, wherever it runs ---


def printed_sweep(tmp_path, **options):
    said: list[str] = []
    run_sweep(tiny(tmp_path, print=True, **options), said.append)
    return said


def tiny(tmp_path, **options):
    settings = {"recipe": "demo", "batch_size": 8, "over": ("patch_size=16",), "metrics": ("rank",), "seeds": 1}
    settings |= {"alpha_min": (1.0, 0.6), "max_steps": 2, "out": tmp_path / "s"}
    return SweepOptions("shapes:16", **(settings | options))


def test_what_was_run_by_hand_is_collected_and_not_started_again(tmp_path, monkeypatch):
    """The line of --print runs in a shell; then the same sweep finds everything done."""
    for line in printed_sweep(tmp_path, alpha_min=(0.6,)):
        line = line.replace("echoless", f"{shlex.quote(sys.executable)} -m echoless", 1)
        done = subprocess.run(line, shell=True, capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.strip().endswith("seed-0: done"), done.stderr
    monkeypatch.setattr("echoless.sweeps.dispatch.Ledger.plan", None)  # nothing is submitted
    said: list[str] = []
    assert not run_sweep(tiny(tmp_path, alpha_min=(0.6,)), said.append).failed
    assert not [line for line in said if line.startswith("[")] and (tmp_path / "s" / "sweep.csv").is_file()


def test_a_plan_may_name_more_runs_than_the_recorded_one(tmp_path):
    """More seeds are only printed, and their lines can be run although sweep.json does not know them."""
    printed_sweep(tmp_path)
    assert len(printed_sweep(tmp_path, seeds=2)) == 4
    commands = planned_trial(tmp_path / "s", "alpha_min-0.6_seed-1").commands
    assert commands[0][:2] == ("pretrain", "shapes:16") and commands[1][0] == "evaluate"


def test_a_trial_that_is_not_planned_is_refused_by_name(tmp_path):
    with pytest.raises(RunError, match="holds no sweep"):
        planned_trial(tmp_path, "a")
    printed_sweep(tmp_path)
    with pytest.raises(RunError, match=r"has no trial 'a'; allowed: alpha_min-0\.6_seed-0, alpha_min-1\.0_seed-0"):
        planned_trial(tmp_path / "s", "a")
    write_json(tmp_path / "s" / "logs" / "old.json", {"begun": [], "finished": []})
    with pytest.raises(UntrustedFile, match="does not record what old is to do"):
        planned_trial(tmp_path / "s", "old")


def test_a_second_process_waits_for_the_first_and_finds_the_work_done(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "a").mkdir()
    write_json(tmp_path / "a" / "results.json", [])
    (trial,) = trials_of("a")
    first = FileLock(tmp_path / "logs" / "a.lock")
    said: list[str] = []

    def say(text):
        said.append(text)
        Ledger(tmp_path, trial).finish(trial.commands[0], 1.0)
        first.release()

    assert run_alone(trial, tmp_path, StopRequest(), say, Starting()) == Outcome("done")
    assert said == ["a is being run by another process; waiting for it"] and is_done(tmp_path, trial)
    assert not (tmp_path / "logs" / "a.txt").exists() and not (tmp_path / "logs" / "a.lock").exists()


def test_a_signal_ends_the_wait(tmp_path):
    (tmp_path / "logs").mkdir()
    stop, (trial,) = StopRequest(), trials_of("a")
    with FileLock(tmp_path / "logs" / "a.lock"):
        outcome = run_alone(trial, tmp_path, stop, lambda _: setattr(stop, "requested", "SIGTERM"), Starting())
    assert outcome == Outcome("stopped", "stopped by SIGTERM")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"slurm_options": ("time=10",)}, "slurm_options is 'time=10'; allowed: only with --on slurm"),
        ({"ray_options": ("num_gpus=1",)}, "ray_options is 'num_gpus=1'; allowed: only with --on ray"),
        ({"on": "slurm", "print": True}, "on is 'slurm'; allowed: not with --print"),
    ],
)
def test_options_that_would_be_ignored_are_refused(options, says):
    with pytest.raises(ConfigError, match=says):
        SweepOptions("DATA", out="OUT", **options)


def test_a_running_trial_is_shown_by_how_far_it_is_and_never_by_a_sentence_of_its_log(tmp_path):
    """`its newest checkpoint can be used as it is: echoless evaluate ...` stood there as if it were the state."""
    trained, measured = ("pretrain", "DATA", "--out", "{run}"), ("evaluate", "{run}", "--metrics", "knn")
    trial = Trial(name="a", settings={"seed": 0}, commands=(trained, measured))
    (tmp_path / "logs").mkdir()
    ledger = Ledger(tmp_path, trial)
    ledger.log.write_text("next: echoless evaluate RUN\n")
    assert progress_of(trial, tmp_path) == "starting"
    run = RunFolder(tmp_path / "a")
    run.path.mkdir()
    run.write_config({"steps": 400})
    assert progress_of(trial, tmp_path) == "step 0 of 400"
    for step in (11, 12):
        run.metrics.record({"step": step, "loss": 0.5})
    with run.metrics.path.open("ab") as file:
        file.write(b'{"step": 13, "lo')  # as a reader may find it
    assert progress_of(trial, tmp_path) == "step 12 of 400"
    ledger.finish(trained, 1.0)
    assert progress_of(trial, tmp_path) == "measuring"
    seen, stop = {}, StopRequest()

    def watch(running):
        seen.update(running)
        stop.requested = "SIGTERM"

    list(run_trials([trial], tmp_path, Scripted(tmp_path, [trial], a=["running"]), stop, watch, print, Starting()))
    assert seen == {"a": "measuring"}
