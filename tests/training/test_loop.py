"""The loop keeps what was asked for: snapshots, TensorBoard events, an estimate; a refusal comes before any work."""

from __future__ import annotations

import contextlib
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "reliability"))
from tiny import tiny_config, tiny_images, tiny_run

import echoless.runtime.progress as progress
import echoless.training.loop as loop
import echoless.verbs.configuring as configuring
from echoless.config import RuntimeConfig
from echoless.config.counts import speed_in_words
from echoless.config.options import PretrainOptions
from echoless.data import Batch, Loader
from echoless.errors import ConfigError
from echoless.models import ViT
from echoless.randomness import generator_for
from echoless.runs import RunFolder, load_weights
from echoless.runtime import Team, choose_device, duration
from echoless.training import build_task, make_trainee
from echoless.training.health import look
from echoless.training.loop import Clock
from echoless.training.step import take_step


@pytest.fixture(scope="module")
def images():
    return tiny_images()


def test_snapshots_can_be_counted(images, tmp_path):
    """Three over a run of ten steps: every third step; both ways to say it are refused together."""
    tiny_run(tmp_path / "run", images, tiny_config(images, steps=10), snapshots=3)
    assert [folder.name for folder in RunFolder(tmp_path / "run").snapshot_folders()] == [
        f"step-{step:08d}" for step in (3, 6, 9)
    ]
    with pytest.raises(ConfigError, match="snapshots is 3; allowed: either snapshots or snapshot_every, not both"):
        RuntimeConfig(snapshots=3, snapshot_every=2)


def test_snapshots_are_encoders_at_their_step_and_are_never_pruned(images, tmp_path):
    tiny_run(tmp_path / "run", images, tiny_config(images, steps=9, ema=None), snapshot_every=3)
    run = RunFolder(tmp_path / "run")
    assert [folder.name for folder in run.snapshot_folders()] == ["step-00000003", "step-00000006", "step-00000009"]
    first, last = (load_weights(folder) for folder in run.snapshot_folders()[::2])
    assert not torch.equal(first.tensors["patch_embed.weight"], last.tensors["patch_embed.weight"])
    final = load_weights(run.encoder)
    assert all(torch.equal(final.tensors[name], tensor) for name, tensor in last.tensors.items())


def test_the_saved_encoder_is_of_the_averaged_weights(images, tmp_path):
    from echoless.config import ViTConfig, from_dict
    from echoless.runs import load_checkpoint

    tiny_run(tmp_path / "run", images, tiny_config(images, steps=4, ema=0.9))
    weights = load_weights(tmp_path / "run" / "encoder")
    ViT(from_dict(ViTConfig, weights.config["model"])).load_state_dict(weights.tensors)
    saved = load_checkpoint(tmp_path / "run" / "checkpoints" / "step-00000004").tensors
    name = "encoder.patch_embed.weight"
    assert torch.equal(weights.tensors["patch_embed.weight"], saved["ema"][f"module.{name}"])
    assert not torch.equal(weights.tensors["patch_embed.weight"], saved["model"][name])


def test_the_estimate_leaves_the_first_step_out_and_comes_once(images, tmp_path, capsys):
    assert tiny_run(tmp_path / "run", images, tiny_config(images, steps=14, ema=None))
    said = capsys.readouterr().err
    assert said.count(" to go at ") == 1 and "images/s" in said
    first = next(line for line in said.splitlines() if line.startswith("training 1/14"))
    assert "images/s" not in first and "left" not in first


@pytest.mark.parametrize(("each", "said"), [(1.0, 11), (20.0, 3)], ids=["fast", "slow"])
def test_the_time_that_is_left_fits_the_speed_beside_it(images, tmp_path, capsys, monkeypatch, each, said):
    """It said "3 min to go at 578 images/s", then 1,190 images/s: a look at the model counted in the speed alone.

    A step takes `each` seconds here, the first a hundred, and the look ten. Slow steps are not waited for.
    """
    now, taken = [0.0], []

    def step(*given, **named):
        taken.append(each if taken else 100.0)
        now[0] += taken[-1]
        return take_step(*given, **named)

    def slow_look(*given):
        now[0] += 10.0
        return look(*given)

    clock = SimpleNamespace(perf_counter=lambda: now[0], monotonic=lambda: now[0])
    for place, name, fake in ((loop, "time", clock), (progress, "time", clock), (loop, "take_step", step)):
        monkeypatch.setattr(place, name, fake)
    monkeypatch.setattr(loop, "look", slow_look)
    config = tiny_config(images, steps=200, ema=None)
    told = []
    monkeypatch.setattr(loop.Progress, "say", lambda self, text: told.append((len(taken), text)))
    tiny_run(tmp_path / "run", images, config, log_every=50)
    ((at, text),) = [(at, text) for at, text in told if " to go at " in text]
    seconds = (200 - at) * each
    assert at == said
    assert text == f"about {duration(seconds)} to go at {speed_in_words(config.batch_size / each)}"


def test_the_clock_knows_speed_and_waiting(monkeypatch):
    ticks = iter([0.0, 2.0, 4.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))
    clock = Clock()
    for waited in (9.0, 0.5, 0.1):  # the first wait fills the queue and is not counted
        clock.tick(Batch(0, torch.empty(8, 1), torch.arange(8), torch.arange(8), None, waited))
    assert clock.rates(world=2) == {"images_per_second": 2 * 16 / 4, "waiting": pytest.approx(0.15)}


@pytest.mark.parametrize("device", ["meta", "gpu", "cuda" if not torch.cuda.is_available() else "cuda:99"])
def test_a_device_that_cannot_be_used_is_one_sentence(device):
    with pytest.raises(ConfigError, match=f"device is '{device}'"):
        choose_device(device)


class TestCompilation:
    """It pays on a GPU, where the run is long enough; on a CPU it was measured to gain nothing."""

    team = Team(0, 1, torch.device("cpu"))

    @pytest.mark.parametrize("device", ["cpu", "cuda"])
    def test_only_long_runs_on_a_gpu_are_compiled(self, device, images):
        config, team = tiny_config(images, steps=10), Team(0, 1, torch.device(device))
        assert not configuring.compilation_pays(config, team)
        long = replace(config, steps=99_999_999, batch_size=1024)
        assert configuring.compilation_pays(long, team) is (device == "cuda")

    @pytest.mark.parametrize("asked", [True, False])
    def test_the_user_decides_if_asked(self, asked, images):
        options = PretrainOptions("shapes", out="run", compile=asked, max_steps=10, recipe="shapes")
        assert configuring.configure(options, images, self.team).compile is asked


def _loader_of(images, config):
    """The first of two processes' part of batches of eight."""
    return Loader(
        images, size=(32, 32), batch_size=8, seed=0, mean=config.data.mean, std=config.data.std, rank=0, world=2
    )


def test_more_pieces_than_samples_are_not_cut():
    """An empty last piece would be the one after which processes exchange gradients."""
    images = tiny_images()
    norms = []
    for accumulate in (1, 8):
        config = replace(tiny_config(images, ema=None), accumulate=accumulate)
        loader = _loader_of(images, config)
        model, objective = build_task(config, generator_for(0, "init", 0))
        trainee = make_trainee(config, model, objective, Team(0, 1, torch.device("cpu")))
        synced = []
        trainee.runner.no_sync = lambda synced=synced: synced.append("held") or contextlib.nullcontext()
        norms.append(take_step(trainee, loader.batch(0)).gradient_norm)
        assert len(synced) == min(accumulate, 4) - 1, "all but the last of the four samples' pieces are held back"
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


def test_a_process_whose_samples_were_all_dropped_takes_part_with_nothing():
    """Its gradient is zero and finite, exchanged like any other: the processes that wait for it get an answer."""
    images = tiny_images()
    config = tiny_config(images, ema=None)
    batch = _loader_of(images, config).batch(0)
    nothing = replace(
        batch,
        images_BCHW=batch.images_BCHW[:0],
        ids_B=batch.ids_B[:0],
        places_B=batch.places_B[:0],
        labels_B=None if batch.labels_B is None else batch.labels_B[:0],
    )

    def trainee():
        """Whose prediction for a black image is not zero, as it is at the start."""
        model, objective = build_task(config, generator_for(0, "init", 0))
        with torch.no_grad():
            for index, parameter in enumerate(model.parameters()):
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator_for(0, "probe", index))
        return make_trainee(config, model, objective, Team(0, 1, torch.device("cpu")))

    black = replace(batch, images_BCHW=torch.zeros_like(batch.images_BCHW))
    assert take_step(trainee(), black).gradient_norm > 0, "it weighs nothing, not: it has no gradient"
    alone = trainee()
    report = take_step(alone, nothing)
    assert (report.loss, report.gradient_norm) == (0.0, 0.0)
    assert all(parameter.grad is not None for parameter in alone.model.parameters() if parameter.requires_grad)


def test_what_came_after_the_checkpoint_is_gone_before_training_goes_on(images, tmp_path, monkeypatch):
    """Snapshots, metrics, encoder and numbers of steps that will be trained again would be taken for the new ones."""
    out, config = tmp_path / "run", tiny_config(images, steps=8, ema=None)
    tiny_run(out, images, config, snapshot_every=2, log_every=1)
    run = RunFolder(out)
    run.add_results([{"metric": "knn", "value": 0.5, "n": 10, "protocol": {}}])
    shutil.rmtree(out / "checkpoints" / "step-00000008")
    monkeypatch.setattr("echoless.training.launch.train", lambda session, done: done == config.steps)
    assert not tiny_run(out, images, config, resume=True)
    assert [folder.name for folder in run.snapshot_folders()] == ["step-00000002", "step-00000004"]
    assert [line["step"] for line in run.read_metrics()] == [1, 2, 3, 4]
    assert not run.encoder.exists() and not (out / "results.json").exists()
    assert (out / "results-step-00000004.json").exists()


def test_the_first_the_last_and_every_nth_step_are_logged(images, tmp_path):
    tiny_run(tmp_path / "run", images, tiny_config(images, steps=7, ema=None), log_every=3)
    assert [line["step"] for line in RunFolder(tmp_path / "run").read_metrics()] == [1, 3, 6, 7]
