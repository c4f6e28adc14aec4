"""`--config RUN/config.json` repeats a run to the last bit; what is given beside it counts, the rest is as recorded.

pytest tests/verbs/test_config_option.py
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from echoless.errors import ConfigError, RunError
from echoless.verbs.finetune import finetune
from echoless.verbs.pretrain import pretrain

SMALL = {"recipe": "demo", "max_steps": 2, "batch_size": 8, "patch_size": 16}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("config") / "run"
    assert pretrain("shapes:40", out=out, alpha_min=0.7, seed=3, checkpoint_every=1, **SMALL)
    return out


def config_of(run: Path) -> dict:
    return json.loads((run / "config.json").read_text())


def weights_of(run: Path) -> bytes:
    return (run / "encoder" / "model.safetensors").read_bytes()


def test_a_repeated_run_is_the_same_run(run, tmp_path):
    again = tmp_path / "again"
    assert pretrain(config=run / "config.json", out=again)
    assert weights_of(again) == weights_of(run)
    assert (again / "config.json").read_bytes() == (run / "config.json").read_bytes()
    remembered = [json.loads((each / "about.json").read_text())["runtime"] for each in (run, again)]
    assert remembered[0] == remembered[1] == {"checkpoint_every": 1}


def test_a_folder_will_do_and_what_is_given_counts(run, tmp_path):
    other = tmp_path / "other"
    assert pretrain(config=run, out=other, seed=4)
    assert config_of(other) == config_of(run) | {"seed": 4}
    assert weights_of(other) != weights_of(run)


def test_other_images_are_normalised_by_their_own_statistics(run, tmp_path):
    other = tmp_path / "other"
    assert pretrain("shapes:48", config=run, out=other)
    before, after = config_of(run)["data"], config_of(other)["data"]
    assert after["mean"] != before["mean"] and after["fingerprint"] != before["fingerprint"]
    assert config_of(other) | {"data": None} == config_of(run) | {"data": None}


def test_resume_needs_no_data_and_goes_before_config(run, tmp_path):
    """A scheduler repeats `--config RUN/config.json --resume` word for word."""
    again = tmp_path / "again"
    assert pretrain(config=run, out=again, resume=True, seed=5)
    assert pretrain(out=again, resume=True, max_steps=3)
    assert config_of(again)["seed"] == 5 and config_of(again)["steps"] == 3


def test_what_cannot_be_is_refused_in_one_sentence(run, tmp_path):
    with pytest.raises(ConfigError, match=r"^DATA is missing; see echoless pretrain --help$"):
        pretrain(out=tmp_path / "new")
    with pytest.raises(RunError, match=r"^config is '.*nothing', which does not exist; give RUN/config.json of a run$"):
        pretrain(config=tmp_path / "nothing", out=tmp_path / "new")
    with pytest.raises(ConfigError, match=r"^recipe is 'mae-tiny', but the run being repeated has 'demo'"):
        pretrain(config=run, out=tmp_path / "new", recipe="mae-tiny")
    with pytest.raises(RunError, match=r"is of a run that was started by pretrain; give it to echoless pretrain$"):
        finetune(run, train="shapes:40", test="shapes:20@test", out=tmp_path / "new", config=run)
    assert not (tmp_path / "new").exists()


def test_a_fine_tuning_takes_the_settings_of_another(run, tmp_path):
    sets = {"train": "shapes:40", "test": "shapes:20@test"}
    one, two = tmp_path / "one", tmp_path / "two"
    finetune(run, **sets, out=one, max_steps=1, batch_size=8, layer_decay=0.9)
    finetune(run, **sets, out=two, config=one)
    assert config_of(two) == config_of(one) and weights_of(two) == weights_of(one)


def test_labels_of_other_images_are_not_taken(tmp_path):
    for name in ("one", "two"):
        for place in range(8):
            (tmp_path / name).mkdir(exist_ok=True)
            Image.new("RGB", (32, 32), (place * 20, 40, 90)).save(tmp_path / name / f"{place}.png")
    rows = "path,label\n" + "".join(f"{place}.png,{place % 2}\n" for place in range(8))
    (tmp_path / "labels.csv").write_text(rows)
    small = SMALL | {"batch_size": 4}
    assert pretrain(tmp_path / "one", out=tmp_path / "run", labels=tmp_path / "labels.csv", **small)
    assert pretrain(tmp_path / "two", out=tmp_path / "again", config=tmp_path / "run")
    assert config_of(tmp_path / "run")["data"]["labels"] and config_of(tmp_path / "again")["data"]["labels"] is None
