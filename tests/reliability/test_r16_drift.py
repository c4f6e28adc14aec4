"""R16: what differs between a checkpoint and the process that resumes it is said in one line each; --strict refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny import tiny_config, tiny_images, tiny_run

from echoless.config import to_dict
from echoless.errors import EcholessError, RunError
from echoless.runtime import Team
from echoless.training.state import drift, environment

TEAM = Team(0, 1, torch.device("cpu"))


@pytest.fixture(scope="module")
def config():
    return tiny_config(tiny_images(), steps=4)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"environment": {"threads": 64}},
            r"threads: 64 in the record, \d+ now \(same order of samples, but not bitwise the same results",
        ),
        ({"environment": {"torch": "2.11.0"}}, "torch: 2.11.0 in the record"),
        ({"environment": {"world": 2}}, r"world: 2 in the record, 1 now \(same order"),
        ({"environment": {"device": "cuda"}}, "device: cuda in the record, cpu now"),
        (
            {"config": {"batch_size": 16}},
            r"batch_size: 16 in the record, 8 now \(other results from here on",
        ),
        ({"config": {"seed": 5}}, "seed: 5 in the record, 0 now"),
        ({"config": {"precision": "bf16"}}, "precision: 'bf16' in the record, 'fp32' now"),
        (
            {"data": {"fingerprint": "other"}},
            r"data.fingerprint: 'other' in the record.*\(other images, so other results",
        ),
    ],
)
def test_each_change_is_one_line_that_names_the_lost_guarantee(change, line, config):
    manifest = {"environment": environment(TEAM), "config": to_dict(config)}
    manifest["environment"] = manifest["environment"] | change.get("environment", {})
    manifest["config"] = manifest["config"] | change.get("config", {})
    manifest["config"]["data"] = manifest["config"]["data"] | change.get("data", {})
    (said,) = drift(manifest, config, TEAM)
    import re

    assert re.search(line, said) and "\n" not in said


def test_nothing_is_said_where_nothing_changed(config):
    assert drift({"environment": environment(TEAM), "config": to_dict(config)}, config, TEAM) == []


def test_strict_refuses_and_changes_nothing(tmp_path, config, capsys):
    images = tiny_images()
    tiny_run(tmp_path / "run", images, config)
    longer = replace(config, steps=6)
    with pytest.raises(RunError, match="not resumed, because of --strict: steps: 4 in the record, 6 now"):
        tiny_run(tmp_path / "run", images, longer, resume=True, strict=True)
    assert tiny_run(tmp_path / "run", images, longer, resume=True)
    assert "steps: 4 in the record, 6 now" in capsys.readouterr().err


def test_a_change_that_is_refused_or_trains_nothing_is_not_said(tmp_path, config, capsys):
    images = tiny_images()
    tiny_run(tmp_path / "run", images, config)
    shortcuts = replace(config.model.encoder.shortcuts, alpha_min=0.9)
    faded = replace(config.model, encoder=replace(config.model.encoder, shortcuts=shortcuts))
    with pytest.raises(EcholessError, match="alpha"):
        tiny_run(tmp_path / "run", images, replace(config, model=faded, steps=6), resume=True)
    assert tiny_run(tmp_path / "run", images, replace(config, seed=4), resume=True)
    said = capsys.readouterr().err
    assert " in the record, " not in said and "nothing left to do: the run is complete" in said
