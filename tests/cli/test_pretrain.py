"""`echoless pretrain` as a new user types it: any kind of data trains, resumes and leaves a complete run folder; every
mistake is answered in one sentence with exit code 2; a stop by signal saves all of it.

    pytest tests/cli/test_pretrain.py
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from pictures import MAKERS, jpegs, write_images

from echoless.config import ViTConfig, from_dict
from echoless.models import ViT
from echoless.runs import find_latest_valid, load_checkpoint, load_weights

# The smallest recipe, with patches large enough to make a step cheap.
QUICK = ("--recipe", "shapes", "--batch-size", 4, "--log-every", 1)
ALWAYS = {"step", "loss", "lr", "gradient_norm", "images_per_second", "waiting", "memory_mb"}
HEALTH = {"feature_norm", "rank_paper", "rankme"}


def assert_complete(run: Path, steps: int, channels: int) -> None:
    """Everything that the design promises is there, and can be read."""
    config = json.loads((run / "config.json").read_text())
    assert config["steps"] == steps and config["model"]["encoder"]["channels"] == channels
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, steps + 1))
    assert all(line.keys() >= ALWAYS for line in lines)
    assert lines[0].keys() >= HEALTH and lines[-1].keys() >= HEALTH
    assert len(lines[-1]["feature_norm"]) == config["model"]["encoder"]["depth"]
    assert "done:" in (run / "log.txt").read_text()

    found = find_latest_valid(run / "checkpoints")
    assert found.step == steps and not found.skipped
    assert (run / "checkpoints" / "latest").read_text().strip() == f"step-{steps:08d}"
    assert {"model", "optim"} <= load_checkpoint(found.path).tensors.keys()

    weights = load_weights(run / "encoder")
    encoder = ViT(from_dict(ViTConfig, weights.config["model"]))
    encoder.load_state_dict(weights.tensors)
    assert len(weights.config["mean"]) == len(weights.config["std"]) == channels
    images = torch.randn(2, channels, *encoder.config.image_size, generator=torch.Generator().manual_seed(0))
    assert encoder.features(images).pool().isfinite().all()


@pytest.mark.parametrize("kind", MAKERS)
def test_it_trains_and_resumes_on(kind, tmp_path, typed):
    data, run = MAKERS[kind](tmp_path), tmp_path / "run"
    patch = 14 if "28" in kind else 8
    first = typed("pretrain", data, "--out", run, *QUICK, "--patch-size", patch, "--max-steps", 2)
    assert first.code == 0 and "data: 12 images" in first.said
    longer = typed("pretrain", data, "--out", run, *QUICK, "--patch-size", patch, "--max-steps", 4, "--resume")
    assert longer.code == 0 and "resuming after step 2 of 4" in longer.said
    assert_complete(run, 4, channels=1 if "1-channel" in kind or "16-bit" in kind else 5 if "5" in kind else 3)
    size = json.loads((run / "config.json").read_text())["model"]["encoder"]["image_size"]
    assert size == {"images that are not square": [24, 48], "1-channel PNGs of 28 x 28": [28, 28]}.get(kind, [32, 32])


def test_it_trains_and_resumes_on_the_cifar10_parquet(shared_data, tmp_path, typed):
    data = shared_data / "cifar10" / "test.parquet"
    if not data.exists():
        pytest.skip(f"NOT RUN: there is no {data}, so real images were not tried")
    words = ("pretrain", data, "--out", tmp_path / "run", *QUICK, "--patch-size", 8, "--cache", "off")
    assert typed(*words, "--max-steps", 2).code == 0
    resumed = typed(*words, "--max-steps", 4, "--resume")
    assert resumed.code == 0 and "data: 10000 images of about 32 x 32, 3 channels, 8 bit" in resumed.said
    assert_complete(tmp_path / "run", 4, channels=3)


@pytest.mark.slow
def test_it_trains_on_fifty_thousand_images_through_a_kill(shared_data, tmp_path, typed):
    """Killed after its first checkpoint, resumed by the same command, complete."""
    data, run = shared_data / "cifar10" / "train.parquet", tmp_path / "run"
    if not data.exists():
        pytest.skip(f"NOT RUN: there is no {data}, so real images were not tried")
    words = ("pretrain", data, "--out", run, "--recipe", "cifar10", "--max-steps", 12, "--checkpoint-every", 4)
    command = [sys.executable, "-m", "echoless", *map(str, words), "--log-every", "1"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while not (run / "checkpoints" / "latest").exists():
            assert process.poll() is None, "it ended before its first checkpoint"
            time.sleep(0.05)
        process.kill()
    assert not (run / "encoder").exists()
    resumed = typed(*words, "--log-every", 1, "--resume")
    assert resumed.code == 0 and "data: 50000 images of about 32 x 32, 3 channels, 8 bit" in resumed.said
    after = next(line for line in resumed.said.splitlines() if line.startswith("resuming after step"))
    assert_complete(run, 12, channels=3)
    print(f"cifar10 train: 50,000 images, SIGKILL after the first checkpoint, {after}, run folder complete")


def test_a_resumed_run_that_is_complete_says_so(tmp_path, typed, flat):
    words = ("pretrain", flat, "--out", tmp_path / "run", *QUICK, "--patch-size", 16, "--max-steps", 1)
    assert typed(*words).code == 0
    again = typed(*words, "--resume")
    assert again.code == 0 and "nothing left to do: the run is complete" in again.said


def test_a_resume_takes_what_is_not_given_from_the_run(tmp_path, typed, flat):
    """Cut after its first step and resumed with no setting repeated, the run ends with the bits of the unbroken one."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    settings = (*QUICK, "--patch-size", 16, "--max-steps", 2, "--seed", 3, "--channels", 1, "--crop-scale", 0.5, 1)
    assert typed("pretrain", flat, "--out", whole, *settings, "--alpha-min", 0.7, "--checkpoint-every", 1).code == 0
    shutil.copytree(whole, cut)
    shutil.rmtree(cut / "checkpoints" / "step-00000002")
    done = typed("pretrain", flat, "--out", cut, "--resume", "--strict")
    assert done.code == 0 and "resuming after step 1 of 2" in done.said
    for name in ("config.json", "checkpoints/step-00000002/model.safetensors"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes(), name
    longer = typed("pretrain", flat, "--out", cut, "--resume", "--max-steps", 3)
    assert (
        longer.code == 0 and "steps: 2 in the record, 3 now" in longer.said and longer.said.count("in the record") == 1
    )


def test_resume_without_a_checkpoint_starts_and_says_so(tmp_path, typed, flat):
    done = typed("pretrain", flat, "--out", tmp_path / "run", *QUICK, "--patch-size", 16, "--max-steps", 1, "--resume")
    assert done.code == 0 and "there is no checkpoint to resume from: starting at step 0" in done.said
    assert "run does not exist: there is nothing to resume, and a NEW run starts there" in done.said.splitlines()[0]


def refused(done, *parts: str) -> None:
    """Exit code 2 and one line, which holds every part."""
    assert done.code == 2 and done.printed == ""
    lines = [line for line in done.said.splitlines() if not line.startswith("reading ")]
    assert len(lines) == 1, done.said
    for part in parts:
        assert part in lines[0]


MISTAKES = {
    "a wrong path": (("nowhere",), ("data 'nowhere' does not exist", "allowed: a folder of images")),
    "an empty folder": (("empty",), ("data 'empty' is an empty folder; it must hold images",)),
    "a folder without images": (("texts",), ("texts holds no image file (1 other file)",)),
    "an unknown recipe": (("flat", "--recipe", "mea-tiny"), ("recipe is 'mea-tiny'", "did you mean 'mae-tiny'?")),
    "an unknown flag": (("flat", "--alpha", "0.5"), ("unknown option '--alpha'", "did you mean '--alpha-min'?")),
    "a word too many": (("flat", "other"), ("unknown word 'other'",)),
    "an image size that the patch does not divide": (
        ("flat", "--image-size", "30", "--patch-size", "8"),
        ("image height is 30; allowed: a multiple of the patch size 8",),
    ),
    "an alpha above 1": (("flat", "--alpha-min", "2"), ("alpha_min is 2.0; allowed: a number in [0, 1], or 'auto'",)),
    "no steps": (("flat", "--max-steps", "0"), ("steps is 0; allowed: a whole number from 1",)),
    "epochs and steps": (("flat", "--max-steps", "2", "--epochs", "1"), ("either epochs or max_steps",)),
    "a device that is none": (("flat", "--device", "meta"), ("device is 'meta'; allowed: auto, cpu, cuda",)),
    "a warm start from nothing": (("flat", "--max-steps", "1", "--init", "texts"), ("texts",)),
    "an --out that is not empty": (("flat", "--out", "texts"), ("texts is not empty", "give another --out")),
    "an --out that is a file": (("flat", "--out", "texts/a.txt"), ("a.txt is not a folder",)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_one_sentence_answers(mistake, tmp_path, typed, flat, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("not an image")
    words, parts = MISTAKES[mistake]
    out = () if "--out" in words else ("--out", "run")
    done = typed("pretrain", *words, *out)
    refused(done, *parts)
    assert not list(tmp_path.glob("run/config.json"))


def test_the_same_command_twice_is_refused_and_harms_nothing(tmp_path, typed, flat):
    words = ("pretrain", flat, "--out", tmp_path / "run", *QUICK, "--patch-size", 16, "--max-steps", 1)
    assert typed(*words).code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    refused(typed(*words), "run is not empty", "--resume to continue", "--overwrite to replace", "another --out")
    assert before == {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert typed(*words, "--overwrite").code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--patch-size", 8), "model.encoder.patch_size was 16 and is 8; --resume cannot change it, --init"),
        (("--ema", 0.9), "optim.ema was None and is 0.9; --resume can neither add nor remove the average"),
        (("--optimizer", "adamw"), "optim.name was 'soap' and is 'adamw'"),
        (("--max-steps", 1), "steps is 1, but"),
    ],
    ids=["patch size", "ema", "optimizer", "fewer steps"],
)
def test_a_resume_that_cannot_be_is_one_sentence(words, sentence, tmp_path, typed, flat):
    start = ("pretrain", flat, "--out", tmp_path / "run", *QUICK)
    assert typed(*start, "--patch-size", 16, "--max-steps", 2).code == 0
    given = {"--patch-size": 16, "--max-steps": 3} | {words[0]: words[1]}
    done = typed(*start, *(word for pair in given.items() for word in pair), "--resume")
    assert done.code == 2 and sentence in done.said.splitlines()[-1] and "Traceback" not in done.said


def test_too_many_bad_files_are_refused_and_allowed_ones_are_listed_once(tmp_path, typed):
    data = write_images(tmp_path / "data", jpegs(20))
    for name in jpegs(2):
        (data / name).write_bytes(b"this is no picture")
    words = ("pretrain", data, "--out", tmp_path / "run", *QUICK, "--patch-size", 16, "--max-steps", 12)
    refused(typed(*words), "2 of 20 images cannot be used", "--max-bad-fraction 0.1 leaves them out", "000.jpg")
    done = typed(*words, "--max-bad-fraction", 0.2)  # more than two epochs
    assert done.code == 0 and "data: 18 images" in done.said
    log = (tmp_path / "run" / "log.txt").read_text()
    for name in jpegs(2):
        assert done.said.count(name) == log.count(name) == 1


def test_a_read_only_out_is_one_sentence(tmp_path, flat):
    """Root may write anywhere, so a child without privileges tries."""
    tmp_path.chmod(0o755)
    (tmp_path / "locked").mkdir(mode=0o555)
    for path in (flat, *flat.iterdir()):
        path.chmod(0o755)
    with (tmp_path / "said").open("w") as said:
        child = os.fork()
        if child == 0:
            from echoless.cli.main import main

            os.chdir(tmp_path)
            os.dup2(said.fileno(), 2)
            sys.stderr = said
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            code = main(["pretrain", "flat", "--out", "locked/run", "--max-steps", "1"])
            said.flush()
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    (line,) = (tmp_path / "said").read_text().splitlines()
    assert "locked/run cannot be written: permission denied" in line


def environment(tmp_path: Path) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "ECHOLESS_CACHE": str(tmp_path / "cache")}


def signalled(tmp_path: Path, number: int, lines: int, *words: str) -> tuple[int, str]:
    """`python -m echoless pretrain` until metrics.jsonl has `lines` lines, then the signal."""
    command = [sys.executable, "-m", "echoless", "pretrain", "shapes:64", "--out", "run", *map(str, QUICK)]
    command += ["--patch-size", "8", "--max-steps", "100000", "--checkpoint-every", "50000", *words]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        metrics = tmp_path / "run" / "metrics.jsonl"
        while not metrics.exists() or metrics.read_bytes().count(b"\n") < lines:
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        process.send_signal(number)
        return process.wait(120), process.communicate()[1]
    finally:
        process.kill()


def steps_of(run: Path) -> tuple[int, int]:
    """(logged, in the newest checkpoint)"""
    return (run / "metrics.jsonl").read_bytes().count(b"\n"), find_latest_valid(run / "checkpoints").step


def test_ctrl_c_is_acknowledged_saves_everything_and_exits_130_and_requeue_exits_75(tmp_path):
    code, said = signalled(tmp_path, signal.SIGINT, 3)
    logged, saved = steps_of(tmp_path / "run")
    assert code == 130 and saved == logged >= 3 and "Traceback" not in said
    assert "stopping after this step" in said
    assert f"stopped by SIGINT after step {saved}; everything is saved" in said and "--resume continues" in said

    code, said = signalled(tmp_path, signal.SIGTERM, saved + 2, "--resume", "--requeue")
    logged, again = steps_of(tmp_path / "run")
    assert code == 75 and again == logged >= saved + 2 and f"resuming after step {saved} of 100000" in said
    print(
        f"Ctrl-C: exit 130, {saved} of {saved} steps saved; SIGTERM with --requeue: exit 75, {again} of {logged} saved"
    )


def torchrun(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", port]
    command = [*start, "-m", "echoless", "pretrain", "shapes:64", "--out", "run", *map(str, QUICK), *words]
    return subprocess.run(
        command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=300, check=False
    )


def test_torchrun_with_two_processes_trains_and_a_refusal_is_said_once(tmp_path):
    done = torchrun(tmp_path, "--patch-size", "8", "--max-steps", "3")
    assert done.returncode == 0, done.stderr
    assert_complete(tmp_path / "run", 3, channels=3)
    assert done.stderr.count("done: 3 steps") == 1 and "Warning" not in done.stderr
    again = torchrun(tmp_path, "--patch-size", "8", "--max-steps", "3")
    assert again.returncode != 0 and "[rank1]" not in again.stderr
    assert again.stderr.count("run is not empty") == 1
    assert again.stderr.count("another process of this run refused to start") == 1
