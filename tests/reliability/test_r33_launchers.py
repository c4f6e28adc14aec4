"""R33: runs of several processes on a cluster. A signal to the launcher saves and stops; a killed process ends the
others within a stated time; and torchrun --max-restarts continues as if nothing had happened.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from PIL import Image
from processes import TIMEOUT, complete, environment, free_port, start, torchrun, weights

# Sends a signal to the process of rank 1 after step 7, once.
SIGNAL_TO_RANK_1 = """
import os, signal, echoless.training.loop as loop
original, marker = loop.take_step, Path({marker!r})
def take_step(trainee, batch, stop):
    if batch.step == 7 and trainee.team.rank == 1 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.{signal})
    return original(trainee, batch, stop)
loop.take_step = take_step
"""
# Steps take a while, and the sixth is announced.
SLOW_STEPS = """
import time, echoless.training.loop as loop
original, marker = loop.take_step, Path({marker!r})
def take_step(trainee, batch, stop):
    if batch.step == 6:
        marker.touch()
    time.sleep(0.2)
    return original(trainee, batch, stop)
loop.take_step = take_step
"""
QUICK_TO_NOTICE = """
import echoless.runtime.meeting as meeting
meeting.BEAT, meeting.SILENCE = 0.5, 8.0
"""
HANGS_BEFORE_THE_FIRST_STEP = """
import os, time, echoless.training.launch as launch
original = launch.build_task
def build_task(*given):
    if os.environ["RANK"] == "1":
        Path({marker!r}).touch()
        time.sleep(1000)
    return original(*given)
launch.build_task = build_task
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> torch.Tensor:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    complete(out, 2)
    return weights(out)


def ended(process: subprocess.Popen, seconds: float = TIMEOUT) -> tuple[int, str, str]:
    try:
        output = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return process.returncode, *(each if isinstance(each, str) else each.decode() for each in output)


def wait_for(marker: Path) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not marker.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_torchrun_restarts_a_killed_process_and_the_result_is_bitwise_that_of_an_undisturbed_run(undisturbed, tmp_path):
    patch = SIGNAL_TO_RANK_1.format(marker=str(tmp_path / "marker"), signal="SIGKILL")
    code, _, err = ended(torchrun(tmp_path / "run", patch=patch, resume=True, max_restarts=1))
    assert code == 0, err
    assert "resuming after step 4" in err and (tmp_path / "marker").exists()
    print("R33 torchrun --max-restarts 1, SIGKILL after step 7: resumed after step 4, bitwise equal")
    assert torch.equal(weights(tmp_path / "run"), undisturbed)


@pytest.mark.slow
def test_a_signal_to_torchrun_saves_and_the_resumed_run_is_bitwise_equal(undisturbed, tmp_path):
    """As a scheduler stops a job: SIGTERM, and SIGKILL after a grace period."""
    marker = tmp_path / "marker"
    launcher = torchrun(tmp_path / "run", patch=SLOW_STEPS.format(marker=str(marker)), resume=True)
    wait_for(marker)
    launcher.send_signal(signal.SIGTERM)
    _, out, err = ended(launcher)
    saved = max(int(path.name[5:]) for path in (tmp_path / "run/checkpoints").glob("step-*"))
    assert saved >= 6 and out.count("STOPPED") == 2, err
    code, out, err = ended(torchrun(tmp_path / "run", resume=True))
    assert code == 0 and f"resuming after step {saved}" in err, err
    print(f"R33 SIGTERM to torchrun: saved after step {saved}, resumed bitwise equal")
    assert torch.equal(weights(tmp_path / "run"), undisturbed)


@pytest.mark.slow
def test_a_killed_process_ends_the_other_at_once(tmp_path):
    """Without a launcher: the exchange that the other waits in fails when the connection is closed."""
    patch = SIGNAL_TO_RANK_1.format(marker=str(tmp_path / "marker"), signal="SIGKILL")
    first, second = start(tmp_path / "run", 2, patch=patch)
    assert ended(second)[0] == -signal.SIGKILL
    began = time.monotonic()
    assert ended(first, 120)[0] == 1
    print(f"R33 SIGKILL to one of two processes: the other ended after {time.monotonic() - began:.1f} s")


@pytest.mark.slow
@pytest.mark.parametrize("frozen", ["in a step", "before the first step"])
def test_a_frozen_process_ends_the_other_within_the_stated_time(frozen, tmp_path):
    """Its connections stay open, and nothing arrives: here 8 s of silence are enough."""
    marker, patch = tmp_path / "marker", QUICK_TO_NOTICE
    if frozen == "in a step":
        patch += SIGNAL_TO_RANK_1.format(marker=str(marker), signal="SIGSTOP")
    else:
        patch += HANGS_BEFORE_THE_FIRST_STEP.format(marker=str(marker))
    first, second = start(tmp_path / "run", 2, patch=patch)
    try:
        wait_for(marker)
        os.kill(second.pid, signal.SIGSTOP)
        code, _, err = ended(first, 120)
        assert code == 1
        assert "process 1 has given no sign of life for 8 s; this process ends too" in err
    finally:
        second.kill()
        second.communicate()


@pytest.mark.slow
def test_a_second_run_in_the_same_processes_starts_anew(tmp_path):
    """From Python, several runs may follow each other: each has its own meeting."""
    again = """
tiny_run(Path(str({out!r}) + "-first"), images, replace(config, steps=2))
""".format(out=str(tmp_path / "run"))
    complete(tmp_path / "run", 2, patch=again, steps=4)
    assert torch.isfinite(weights(tmp_path / "run", 4)).all()


@pytest.mark.slow
def test_the_command_line_shards_under_torchrun_and_one_process_resumes_it(tmp_path):
    """Decoding is shared; the run is started by two processes with --shard and finished by one without."""
    folder = tmp_path / "photos"
    folder.mkdir()
    draw = random.Random(0)
    for number in range(150):
        colour = tuple(draw.randrange(256) for _ in range(3))
        Image.new("RGB", (24, 20), colour).save(folder / f"{number:03d}.png")
    pretrain = ["echoless", "pretrain", str(folder), "--out", str(tmp_path / "run"), "--recipe", "mae-tiny"]
    pretrain += ["--batch-size", "8", "--device", "cpu", "--resume", "--no-compile", "--depth", "2", "--width", "64"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1"]
    launcher += [f"--master-port={free_port()}", "-m", *pretrain, "--shard", "--checkpoint-activations"]
    options = {"env": environment(tmp_path / "run"), "capture_output": True, "text": True, "timeout": TIMEOUT}
    first = subprocess.run([*launcher, "--max-steps", "3"], **options, check=False)
    assert first.returncode == 0, first.stderr
    assert "150 images" in first.stderr and "not shared" not in first.stderr
    alone = [sys.executable, "-m", *pretrain, "--max-steps", "5", "--no-shard"]
    second = subprocess.run(alone, **options, check=False)
    assert second.returncode == 0, second.stderr
    assert "resuming after step 3 of 5" in second.stderr and "sharded: True in the record, False now" in second.stderr
    steps = [json.loads(line)["step"] for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 4, 5]
