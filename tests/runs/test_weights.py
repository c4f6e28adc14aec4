"""Proves that an encoder on disk carries its alphas twice, and that any disagreement about them is refused."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from echoless.errors import AlphaMismatch, RunError, UntrustedFile
from echoless.runs import load_weights, require_same_shortcuts, save_weights
from echoless.shortcuts import alphas

FADED = {"variant": "faded", "per": "sublayer", "schedule": "linear", "alphas": alphas(3, alpha_min=0.6)}


def save(folder, shortcuts=FADED):
    tensors = {"w": torch.arange(6.0).reshape(2, 3).T, "b": torch.ones(2, dtype=torch.bfloat16)}
    save_weights(folder, tensors, {"depth": 3, "width": 8}, shortcuts)
    return tensors


def test_an_encoder_comes_back_with_its_config_and_shortcuts(tmp_path):
    tensors = save(tmp_path / "encoder")
    found = load_weights(tmp_path / "encoder")
    assert found.tensors.keys() == tensors.keys()
    assert all(torch.equal(found.tensors[name], tensors[name]) for name in tensors)
    assert found.config == {"depth": 3, "width": 8}
    assert found.shortcuts == {**FADED, "alphas": list(FADED["alphas"])}


def test_the_library_reads_the_tensors_and_the_alphas(tmp_path):
    save(tmp_path / "encoder")
    assert set(load_file(tmp_path / "encoder" / "model.safetensors")) == {"w", "b"}
    with safe_open(tmp_path / "encoder" / "model.safetensors", "pt") as file:
        assert json.loads(file.metadata()["shortcuts"])["alphas"] == list(FADED["alphas"])


def test_saving_again_replaces_and_equal_encoders_are_equal_bytes(tmp_path):
    save(tmp_path / "encoder")
    first = {path.name: path.read_bytes() for path in (tmp_path / "encoder").iterdir()}
    save(tmp_path / "encoder")
    assert {path.name: path.read_bytes() for path in (tmp_path / "encoder").iterdir()} == first
    assert [path.name for path in tmp_path.iterdir()] == ["encoder"]


def test_an_edited_config_does_not_smuggle_in_other_alphas(tmp_path):
    save(tmp_path / "encoder")
    config = tmp_path / "encoder" / "config.json"
    document = json.loads(config.read_text())
    document["shortcuts"]["alphas"][-1] = 0.7
    config.write_text(json.dumps(document))
    with pytest.raises(AlphaMismatch, match=r"config\.json has .*to 0\.7.*model\.safetensors has .*to 0\.6") as error:
        load_weights(tmp_path / "encoder")
    assert str(error.value).splitlines()[-1].split() == ["5", "0.7", "0.6", "differs"]


def test_exchanged_or_damaged_weights_are_refused(tmp_path):
    save(tmp_path / "encoder")
    file = tmp_path / "encoder" / "model.safetensors"
    save_file({"w": torch.ones(1)}, file)
    with pytest.raises(RunError, match="is damaged"):
        load_weights(tmp_path / "encoder")
    file.unlink()
    with pytest.raises(RunError, match="cannot be read: No such file"):
        load_weights(tmp_path / "encoder")


def test_200_mismatched_pairs_are_all_refused_and_equal_ones_pass():
    made = [
        {"variant": variant, "per": per, "schedule": schedule, "alphas": alphas(depth, alpha_min=low, per=per)}
        for variant, per, schedule, depth, low in itertools.product(
            ("faded", "learnable"), ("sublayer", "block"), ("linear",), (3, 6), (0.5, 0.6, 0.7)
        )
    ]
    pairs = list(itertools.permutations(made, 2))
    for expected, found in pairs:
        with pytest.raises(AlphaMismatch, match="the shortcuts differ"):
            require_same_shortcuts(expected, found)
    for shortcuts in made:
        require_same_shortcuts(shortcuts, json.loads(json.dumps(shortcuts)))
    assert len(pairs) >= 200
    print(f"R14 mismatched_pairs={len(pairs)} refused={len(pairs)}")


def test_rounding_is_not_a_schedule():
    nudged = {**FADED, "alphas": [alpha + 1e-15 for alpha in FADED["alphas"]]}
    require_same_shortcuts(FADED, nudged)
    with pytest.raises(AlphaMismatch):
        require_same_shortcuts(FADED, {**FADED, "alphas": [alpha + 1e-6 for alpha in FADED["alphas"]]})


def test_both_tables_are_shown_side_by_side():
    with pytest.raises(AlphaMismatch) as error:
        require_same_shortcuts({"variant": "faded", "alphas": [1.0, 0.5]}, {"variant": "identity", "alphas": [1.0]})
    lines = str(error.value).splitlines()
    assert (
        "2 alphas from 1 to 0.5 (variant faded)" in lines[0] and "1 alphas from 1 to 1 (variant identity)" in lines[0]
    )
    assert [line.split() for line in lines[1:]] == [
        ["shortcut", "expected", "found"],
        ["0", "1", "1"],
        ["1", "0.5", "none", "differs"],
    ]


@pytest.mark.parametrize(
    "bad", [{}, {"variant": 3}, {"variant": "faded", "alphas": "1"}, {"variant": "faded", "alphas": [float("nan")]}]
)
def test_shortcuts_that_say_nothing_are_refused(tmp_path, bad):
    with pytest.raises(RunError, match="shortcuts has"):
        save(tmp_path / "encoder", bad)
    save(tmp_path / "encoder")
    config = tmp_path / "encoder" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "shortcuts": bad}))
    with pytest.raises(UntrustedFile, match=r"config\.json"):
        load_weights(tmp_path / "encoder")
