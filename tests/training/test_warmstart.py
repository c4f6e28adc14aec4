"""`--init` that cannot be is one sentence: a wrong path, an empty run, another width. One that can says what it did."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "reliability"))
from tiny import tiny_config, tiny_images, tiny_run

from echoless.errors import EcholessError
from echoless.models import MAE
from echoless.randomness import generator_for
from echoless.training import warm_start


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    images = tiny_images()
    config = tiny_config(images, steps=2, ema=None)
    out = tmp_path_factory.mktemp("warm") / "run"
    tiny_run(out, images, config)
    return out, config.model


def fresh(config):
    return MAE(config, generator_for(1, "init", 0))


def sentence_of(config, source) -> str:
    with pytest.raises(EcholessError) as caught:
        warm_start(fresh(config), source)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_path_that_is_not_there(trained, tmp_path):
    sentence = sentence_of(trained[1], tmp_path / "nowhere")
    assert (
        "--init" in sentence
        and "nowhere is not a folder; allowed: a run, a checkpoint, a snapshot, or an encoder folder" in sentence
    )


def test_a_folder_that_is_no_run(trained, tmp_path):
    assert "holds no trained model; allowed: a run" in sentence_of(trained[1], tmp_path)


def test_a_run_without_a_checkpoint(trained, tmp_path):
    (tmp_path / "checkpoints").mkdir()
    assert "has no checkpoint, and only a checkpoint holds the whole model" in sentence_of(trained[1], tmp_path)


@pytest.mark.parametrize("part", ["", "encoder"])
@pytest.mark.parametrize(("field", "here"), [("width", 96), ("depth", 4), ("heads", 4)])
def test_another_size(part, field, here, trained):
    """Also of heads, which no shape shows."""
    out, config = trained
    other = replace(config, encoder=replace(config.encoder, **{field: here}))
    there = getattr(config.encoder, field)
    sentence = sentence_of(other, out / part)
    assert sentence.endswith(f"does not fit this model: {field} is {there} there and {here} here")
    assert sentence.startswith("--init ")


@pytest.mark.parametrize(
    ("part", "said"), [("", "started from .*run, checkpoint of step 2"), ("encoder", "from the encoder")]
)
def test_what_was_loaded_is_said(part, said, trained):
    out, config = trained
    assert re.search(said, warm_start(fresh(config), out / part))
    other = replace(config, encoder=replace(config.encoder, shortcuts=replace(config.encoder.shortcuts, alpha_min=0.8)))
    assert "branches rescaled from alpha_min 0.6 to 0.8, the function is unchanged" in warm_start(fresh(other), out)
