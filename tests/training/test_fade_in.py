"""`--fade-in`: every alpha moves from 1 to its target on a straight line, nothing jumps, and a run that is stopped on
the ramp continues bit for bit.

    pytest tests/training/test_fade_in.py -s
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "reliability"))
from tiny import fingerprint, tiny_config, tiny_family, tiny_images, tiny_run

from echoless.config import RunConfig, ShortcutConfig, from_dict, to_dict
from echoless.config.training import model_after
from echoless.errors import AlphaMismatch, ConfigError
from echoless.models import ViT
from echoless.objectives import random_masking
from echoless.randomness import generator_for
from echoless.runs.open import load_body
from echoless.runtime import Team
from echoless.shortcuts import Faded, residual
from echoless.training import build_task, make_trainee
from echoless.training.fading_in import alphas_after, fade_to
from echoless.verbs.pretrain import pretrain

TEAM = Team(0, 1, torch.device("cpu"))
QUICK = {"recipe": "demo", "batch_size": 4, "patch_size": 16, "workers": 0, "log_every": 1}


@pytest.fixture(scope="module")
def images():
    return tiny_images()


def ramp(images, *, steps: int = 16, fade_in: float = 0.5, family: str = "masked") -> RunConfig:
    return replace(tiny_family(images, family, steps=steps), fade_in=fade_in)


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
@pytest.mark.parametrize(("per", "fade"), [("sublayer", "both"), ("block", "attention"), ("sublayer", "mlp")])
def test_every_alpha_moves_on_a_straight_line(schedule, per, fade, images):
    config = ramp(images, steps=100, fade_in=0.3)
    shortcuts = ShortcutConfig(alpha_min=0.6, schedule=schedule, per=per, fade=fade)
    config = replace(config, model=replace(config.model, encoder=replace(config.model.encoder, shortcuts=shortcuts)))
    target = torch.tensor(alphas_after(config, 100), dtype=torch.float64)
    assert target.min() == 0.6
    for step in (0, 1, 7, 29, 30, 31, 100):
        share = min(1.0, step / 30)
        expected = 1 + share * (target - 1)
        found = torch.tensor(alphas_after(config, step), dtype=torch.float64)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-15)
    assert set(alphas_after(config, 0)) == {1.0} and tuple(target.tolist()) == alphas_after(config, 30)


def test_a_moving_alpha_computes_the_same_sum_as_a_standing_one():
    x, fx = (torch.randn(64, 32, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    shortcut = Faded(0.3)
    for alpha in (1.0, 0.83, 0.6):
        shortcut.move(alpha)
        torch.testing.assert_close(shortcut(x, fx), residual(x, fx, alpha), rtol=1e-6, atol=1e-6)
    shortcut.move(1.0)
    assert torch.equal(shortcut(x, fx), x + fx)  # so that nothing changes at step 0
    assert shortcut.alpha == 1.0 and not shortcut.state_dict()
    shortcut.stand(0.6)
    assert torch.equal(shortcut(x, fx), residual(x, fx, 0.6))


def test_one_graph_serves_the_whole_ramp_and_one_the_rest_of_the_run(images):
    config = ramp(images, steps=8)
    config = replace(config, model=replace(config.model, encoder=replace(config.model.encoder, depth=1)))
    encoder = build_task(config, generator_for(0, "init", 0))[0].encoder
    graphs = []

    def count(graph, _):
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    module = torch.compile(encoder, backend=count, fullgraph=True)
    batch = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    compiled, features = [], set()
    for step in range(8):
        fade_to(config, step, encoder)
        found = module(batch)
        torch.testing.assert_close(found, encoder(batch))
        compiled.append(len(graphs))
        features.add(found.sum().item())
    assert compiled == [1] * 4 + [2] * 4
    assert len(features) == 5  # four on the ramp, one where the alphas stand


def test_plain_weights_are_taken_as_they_are_and_the_function_is_unchanged(tmp_path, capsys):
    plain = tmp_path / "plain"
    assert pretrain("shapes:32", out=plain, alpha_min=1.0, max_steps=6, **QUICK)
    capsys.readouterr()
    assert pretrain("shapes:32", out=tmp_path / "faded", init=plain, alpha_min=0.6, fade_in=0.5, max_steps=6, **QUICK)
    log = (tmp_path / "faded" / "log.txt").read_text()
    print(next(line for line in log.splitlines() if "features differ" in line))
    assert "features differ by 0.0e+00 from before" in log and "rescaled" not in log
    assert "alpha from 1 to 0.6" in log and "every alpha moves there from 1 in the first 3 steps" in log
    assert pretrain("shapes:32", out=tmp_path / "moved", init=plain, alpha_min=0.6, max_steps=1, **QUICK)
    said = (tmp_path / "moved" / "log.txt").read_text()
    assert "branches rescaled from alpha_min 1 to 0.6" in said
    difference = float(re.search(r"features differ by (\S+) from before", said)[1])
    print(f"without --fade-in, rescaled: {difference:.1e}")
    assert 0 < difference < 1e-4


def test_faded_weights_are_first_made_plain(tmp_path):
    """Weights of other alphas start at alpha 1, too: rescaled, with the same function."""
    assert pretrain("shapes:32", out=tmp_path / "a", alpha_min=0.6, max_steps=4, **QUICK)
    assert pretrain("shapes:32", out=tmp_path / "b", init=tmp_path / "a", fade_in=1.0, max_steps=2, **QUICK)
    said = (tmp_path / "b" / "log.txt").read_text()
    assert "branches rescaled from alpha_min 0.6 to 1," in said
    assert float(re.search(r"features differ by (\S+) from before", said)[1]) < 1e-4


def test_every_line_of_the_log_has_the_alphas_of_its_step(tmp_path, images):
    config = ramp(images)
    tiny_run(tmp_path / "run", images, config)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 17))
    for line in lines:
        assert tuple(line["alpha"].values()) == alphas_after(config, line["step"])
        assert line["alpha_min"] == pytest.approx(max(0.6, 1 - 0.4 * line["step"] / 8))
    tiny_run(tmp_path / "still", images, replace(config, fade_in=None, steps=2))
    still = json.loads((tmp_path / "still" / "metrics.jsonl").read_text().splitlines()[0])
    assert not {"alpha", "alpha_min", "effective_alpha"} & set(still)


def test_checkpoints_and_snapshots_on_the_ramp_are_opened_with_the_alphas_of_their_step(tmp_path, images):
    config = ramp(images)
    tiny_run(tmp_path / "run", images, config, keep=9, snapshot_every=4)
    batch = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for step in (4, 8, 16):
        for folder in ("checkpoints", "snapshots"):
            body = load_body(tmp_path / "run" / folder / f"step-{step:08d}")
            assert tuple(body.model.shortcut_record["alphas"]) == alphas_after(config, step)
            by_hand = ViT(config.model.encoder)
            by_hand.load_state_dict(body.model.state_dict())
            for shortcut, alpha in zip(by_hand.shortcuts, alphas_after(config, step)):
                shortcut.stand(alpha)
            assert torch.equal(by_hand(batch), body.model(batch))
    assert load_body(tmp_path / "run").config == config.model.encoder  # the end of the ramp is the target


def test_weights_of_the_ramp_are_refused_under_the_alphas_of_its_end(tmp_path, images):
    tiny_run(tmp_path / "run", images, ramp(images, steps=4))
    manifest = json.loads((tmp_path / "run" / "checkpoints" / "step-00000004" / "MANIFEST.json").read_text())
    assert manifest["config"]["fade_in"] == 0.5
    tiny_run(tmp_path / "short", images, ramp(images, steps=4, fade_in=1.0), checkpoint_every=2)
    shutil.rmtree(tmp_path / "short" / "checkpoints" / "step-00000004")
    with pytest.raises(AlphaMismatch, match="the shortcuts differ: this run has"):
        tiny_run(tmp_path / "short", images, replace(ramp(images, steps=4), fade_in=None), resume=True)


@pytest.mark.parametrize("family", ["masked", "dino", pytest.param("infonce", marks=pytest.mark.slow), "sit", "uvit"])
def test_a_run_that_stopped_on_the_ramp_continues_bit_for_bit(family, tmp_path, images):
    config = ramp(images, steps=10, family=family)
    tiny_run(tmp_path / "whole", images, config, checkpoint_every=3, keep=9)
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    for folder in (tmp_path / "again" / "checkpoints").glob("step-*"):
        if int(folder.name[5:]) > 3:
            shutil.rmtree(folder)
    shutil.rmtree(tmp_path / "again" / "encoder")
    tiny_run(tmp_path / "again", images, config, resume=True, checkpoint_every=3, keep=9)
    assert fingerprint(tmp_path / "again", 10) == fingerprint(tmp_path / "whole", 10)


@pytest.mark.parametrize("family", ["dino", "infonce"])
def test_teacher_and_student_fade_together(family, images):
    config = ramp(images, family=family)
    trainee = make_trainee(config, *build_task(config, generator_for(0, "init", 0)), TEAM)
    fade_to(config, 4, trainee.model)
    bodies = [module for module in trainee.model.modules() if isinstance(module, ViT)]
    assert len(bodies) == 2
    for body in bodies:
        assert tuple(body.shortcut_record["alphas"]) == alphas_after(config, 4)


def test_the_decoder_is_left_alone(images):
    model, _ = build_task(ramp(images), generator_for(0, "init", 0))
    fade_to(ramp(images), 16, model)
    assert {shortcut.alpha for block in model.decoder.blocks for shortcut in (block.attn_shortcut,)} == {1.0}
    batch, masking = torch.randn(2, 3, 32, 32), random_masking(2, 16, 0.75, torch.Generator().manual_seed(0))
    assert model(batch, masking).isfinite().all()


def test_another_length_keeps_the_ramp_in_steps(tmp_path, capsys):
    run = tmp_path / "run"
    assert pretrain("shapes:32", out=run, alpha_min=0.6, fade_in=0.5, max_steps=8, checkpoint_every=2, **QUICK)
    assert pretrain("shapes:32", out=run, resume=True, max_steps=16)
    config = from_dict(RunConfig, json.loads((run / "config.json").read_text()))
    assert config.fade_in == 0.25 and alphas_after(config, 4)[-1] == 0.6
    assert "fade_in: 0.5 in the record, 0.25 now" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="max_steps is 3; allowed: 4 or more, the steps in which this run fades in"):
        pretrain("shapes:32", out=run, resume=True, max_steps=3)


@pytest.mark.parametrize("value", [0.0, 1.5, -0.1, float("nan")])
def test_a_share_outside_the_run_is_refused(value, images):
    with pytest.raises(ConfigError, match=r"fade_in is .*; allowed: "):
        ramp(images, fade_in=value)


@pytest.mark.parametrize("variant", ["learnable", "scale_both", "none"])
def test_shortcuts_whose_alphas_cannot_move_are_refused(variant, images):
    config = tiny_config(images)
    model = replace(config.model, encoder=replace(config.model.encoder, shortcuts=ShortcutConfig(variant=variant)))
    with pytest.raises(ConfigError, match=f"fade_in is 0.3; allowed: none with variant {variant}, whose alphas do not"):
        replace(config, model=model, fade_in=0.3)


def test_a_plain_network_has_nothing_to_fade_in(images):
    config = ramp(images)
    plain = replace(config.model, encoder=replace(config.model.encoder, shortcuts=ShortcutConfig(variant="identity")))
    config = replace(config, model=plain)
    assert set(alphas_after(config, 0)) == set(alphas_after(config, 16)) == {1.0}
    assert model_after(config, 3) is config.model
    assert from_dict(RunConfig, to_dict(config)) == config
