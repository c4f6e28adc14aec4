"""R10: a real SIGTERM or SIGINT, in any phase, finishes the step and saves; the resumed run is bitwise equal."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from tiny import fingerprint, silence, tiny_config, tiny_images, tiny_run

import echoless.runs.checkpoint as checkpoint_module
import echoless.training.health as health_module
import echoless.training.loop as loop_module
import echoless.training.step as step_module
from echoless.data import Loader

STEPS = 12


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody disturbed."""
    images = tiny_images()
    out = tmp_path_factory.mktemp("whole") / "run"
    assert tiny_run(out, images, tiny_config(images, steps=STEPS))
    return images, fingerprint(out, STEPS)


def pause_in(phase: str, marker: Path) -> None:
    """Make the phase last, and say when it has begun. In the child only."""
    place = {
        "data": (Loader, "batch"),
        "forward": (step_module.LossModule, "forward"),
        "backward": (step_module.nn.utils, "clip_grad_norm_"),
        "update": (step_module, "set_rates"),
        "save": (checkpoint_module, "write_tensors"),
        "health": (health_module, "rank_paper"),
        "start": (loop_module, "_probe"),
    }[phase]
    original, calls = getattr(*place), 0

    def slowly(*arguments, **options):
        nonlocal calls
        calls += 1
        if calls == {"start": 1, "health": 2, "save": 2}.get(phase, 6):
            marker.touch()
            time.sleep(0.5)
        return original(*arguments, **options)

    setattr(*place, slowly)


def interrupted(out: Path, images, phase: str, number: int, workers: int, times: int) -> int:
    marker = out.parent / f"{out.name}.marker"
    child = os.fork()
    if child == 0:
        silence()
        pause_in(phase, marker)
        try:
            complete = tiny_run(out, images, tiny_config(images, steps=STEPS), workers=workers)
            os._exit(0 if not complete else 7)
        except BaseException:
            os._exit(9)
    while not marker.exists():
        time.sleep(0.005)
    for _ in range(times):
        os.kill(child, number)
        time.sleep(0.05)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


PHASES = ["forward", "save"]
SLOW = [pytest.param(phase, marks=pytest.mark.slow) for phase in ("data", "backward", "update", "health", "start")]


@pytest.mark.parametrize("phase", PHASES + SLOW)
@pytest.mark.parametrize(("number", "workers"), [(signal.SIGTERM, 0), pytest.param(signal.SIGINT, 2)])
def test_a_signal_loses_no_step(phase, number, workers, whole, tmp_path):
    images, expected = whole
    out = tmp_path / "run"
    times = 2 if number == signal.SIGTERM else 1  # a second SIGTERM is harmless
    assert interrupted(out, images, phase, number, workers, times) == 0
    logged = (out / "metrics.jsonl").read_text().count("\n")
    saved = max((int(p.name[5:]) for p in (out / "checkpoints").glob("step-*")), default=0)
    assert saved == logged, "every step that was done is in the checkpoint"
    assert tiny_run(out, images, tiny_config(images, steps=STEPS), resume=True, workers=workers)
    assert fingerprint(out, STEPS) == expected
    print(f"R10 {signal.Signals(number).name} in {phase}, workers={workers}: steps lost=0, resumed bitwise equal")


def test_a_signal_during_a_step_ends_the_run_after_that_step(tmp_path, monkeypatch, capfd):
    """As it says: "stopping after this step". On a slow machine a step takes minutes."""
    images, original, steps = tiny_images(), step_module._backward, []

    def interrupted_backward(*arguments, **options):
        steps.append(len(steps) + 1)
        if len(steps) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return original(*arguments, **options)

    monkeypatch.setattr(step_module, "_backward", interrupted_backward)
    assert not tiny_run(tmp_path / "run", images, tiny_config(images, steps=STEPS))
    assert steps == [1, 2, 3]
    said = capfd.readouterr().err
    assert "stopping after this step" in said and "stopped by SIGINT after step 3" in said
