"""Ctrl-C in Python ends the script, once the work is saved. SIGTERM and commands are answered as before.

Run alone: pytest tests/verbs/test_interrupts.py
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import echoless
import echoless.training.step as step_module
from echoless.config.options import FinetuneOptions, PretrainOptions
from echoless.errors import Interrupted
from echoless.runs.checkpoint import find_latest_valid
from echoless.sweeps import run as sweep_module
from echoless.sweeps import trials
from echoless.sweeps.ledger import Outcome
from echoless.verbs import demonstration, pretraining

SMALL = {"batch_size": 8, "max_steps": 4, "workers": 0}
SCRIPT = """
import echoless
for seed in (0, 1):
    run = f"run-{seed}"
    echoless.pretrain("shapes:32", out=run, recipe="demo", seed=seed, max_steps=100000, batch_size=8, log_every=1)
    print("measured", len(echoless.evaluate(run, train="shapes:32", metrics="rank", baselines=False)))
"""


@pytest.fixture
def signal_in_step(monkeypatch):
    """Make the second step of the next training send a signal to this process."""
    original = step_module._backward

    def arm(number: int) -> None:
        steps = []

        def signalled(*arguments, **options):
            steps.append(1)
            if len(steps) == 2:
                os.kill(os.getpid(), number)
            return original(*arguments, **options)

        monkeypatch.setattr(step_module, "_backward", signalled)

    return arm


def saved(run: Path) -> int:
    found = find_latest_valid(run / "checkpoints")
    return 0 if found is None else found.step


def test_a_script_with_a_loop_of_runs_ends_with_the_first(tmp_path):
    """It evaluated the half-trained run, and trained the next one."""
    (tmp_path / "loop.py").write_text(SCRIPT)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ECHOLESS_CACHE": str(tmp_path / "cache")}
    script = subprocess.Popen(
        [sys.executable, "loop.py"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        metrics = tmp_path / "run-0" / "metrics.jsonl"
        while not metrics.exists() or metrics.read_bytes().count(b"\n") < 3:
            assert script.poll() is None, script.communicate()
            time.sleep(0.02)
        script.send_signal(signal.SIGINT)
        printed, said = script.communicate(timeout=120)
    finally:
        script.kill()
    assert script.returncode == -signal.SIGINT and b"KeyboardInterrupt" in said
    assert b"everything is saved" in said and saved(tmp_path / "run-0") == metrics.read_bytes().count(b"\n")
    assert b"measured" not in printed and not (tmp_path / "run-1").exists()


def test_ctrl_c_in_pretrain_and_finetune_raises_once_the_run_is_saved(signal_in_step, tmp_path):
    run, tuned = tmp_path / "run", tmp_path / "tuned"
    signal_in_step(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        echoless.pretrain("shapes:16", out=run, recipe="demo", **SMALL)
    assert saved(run) == 2
    assert echoless.pretrain("shapes:16", out=run, resume=True) is True, "it goes on as after any stop"
    signal_in_step(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        echoless.finetune(run, train="shapes:16", test="shapes:8@test", out=tuned, **SMALL)
    assert saved(tuned) == 2


def test_a_run_that_ctrl_c_finds_in_its_last_step_is_complete_and_the_script_ends(signal_in_step, tmp_path):
    signal_in_step(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        echoless.pretrain("shapes:16", out=tmp_path / "run", recipe="demo", **SMALL | {"max_steps": 2})
    assert (tmp_path / "run" / "encoder").is_dir()


def test_sigterm_and_the_command_line_are_answered_by_what_is_returned(signal_in_step, tmp_path):
    signal_in_step(signal.SIGTERM)
    assert echoless.pretrain("shapes:16", out=tmp_path / "a", recipe="demo", **SMALL) is False
    signal_in_step(signal.SIGINT)
    options = PretrainOptions("shapes:16", out=tmp_path / "b", recipe="demo", **SMALL)
    assert echoless.pretrain.run(options) is False
    assert saved(tmp_path / "a") == saved(tmp_path / "b") == 2
    assert echoless.pretrain("shapes:16", out=tmp_path / "b", resume=True) is True
    signal_in_step(signal.SIGINT)
    sets = {"train": "shapes:16", "test": "shapes:8@test"}
    assert echoless.finetune.run(FinetuneOptions(tmp_path / "b", out=tmp_path / "c", **sets, **SMALL)) is None


def ask(number: int, answer):
    """In the place of long work: the signal comes, and the work ends as it does then."""

    def work(*arguments, **options):
        os.kill(os.getpid(), number)
        return answer(*arguments)

    return work


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_in_a_sweep_a_trial_and_a_demo_raises_too(number, tmp_path, monkeypatch):
    stopped = ask(number, lambda experiment, *_: sweep_module.SweepResult(experiment, stopped=True))
    monkeypatch.setattr(sweep_module, "carry_out", stopped)
    monkeypatch.setattr(demonstration, "carry_out", stopped)
    monkeypatch.setattr(trials, "run_alone", ask(number, lambda *_: Outcome("stopped")))

    def sweep():
        return echoless.sweep("shapes:16", out=tmp_path / "sweep", seeds=1, max_steps=1)

    planned = echoless.sweep("shapes:16", out=tmp_path / "planned", seeds=1, max_steps=1, print=True)

    def trial():
        return echoless.trial(tmp_path / "planned", planned.experiment.trials[0].name)

    def demo():
        return echoless.demo(out=tmp_path / "demo", steps=1)

    if number == signal.SIGINT:
        for call in (sweep, trial, demo):
            with pytest.raises(KeyboardInterrupt):
                call()
    else:
        assert sweep().stopped and trial() == Outcome("stopped")
        with pytest.raises(Interrupted, match="was interrupted"):
            demo()


def test_an_error_after_ctrl_c_does_not_hide_it(tmp_path, monkeypatch):
    """`try: pretrain(...) except Exception: ...` went on with the next seed."""

    def images(request):
        os.kill(os.getpid(), signal.SIGINT)
        request.stop_here()

    monkeypatch.setattr(pretraining.Request, "images", images)
    with pytest.raises(KeyboardInterrupt) as interrupt:
        echoless.pretrain("shapes:16", out=tmp_path / "run", recipe="demo", **SMALL)
    assert "stopped by SIGINT while preparing shapes:16" in str(interrupt.value.__cause__)
