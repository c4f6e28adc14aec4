"""R26: no code of a model folder is ever run, and a folder that is not whole is refused in one sentence.

Run alone: pytest tests/reliability/test_r26_foreign_folders.py
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import echoless
from echoless.errors import EcholessError, RunError, UntrustedFile

transformers = pytest.importorskip("transformers", reason="NOT RUN: transformers is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("vit") / "folder"
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=8
    )
    torch.manual_seed(0)
    transformers.ViTForImageClassification(config).save_pretrained(place)
    return place


@pytest.fixture
def copy(folder, tmp_path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def change(place: Path, **settings) -> Path:
    file = place / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    return place


def test_a_model_with_a_head_is_an_encoder_without_it(folder):
    assert echoless.load(folder)(torch.zeros(1, 3, 16, 16)).shape == (1, 16)


def test_code_of_a_folder_is_never_run_whatever_standard_input_says(copy, tmp_path):
    canary = tmp_path / "canary"
    (copy / "evil.py").write_text(f"open({str(canary)!r}, 'w').write('run')\nclass C: pass\nclass M: pass\n")
    change(copy, model_type="evil", auto_map={"AutoConfig": "evil.C", "AutoModel": "evil.M"})
    for verb in (["evaluate", str(copy), "--train", "shapes:20"], ["inspect", str(copy)]):
        command = [sys.executable, "-m", "echoless", *verb]
        done = subprocess.run(command, input="y\ny\n", capture_output=True, text=True)
        assert done.returncode == 2 and not canary.exists(), done.stderr
        assert "Traceback" not in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
    with pytest.raises(UntrustedFile, match="has an auto_map, which asks for code of the folder to be run"):
        echoless.load(copy)


def renamed(tensors: dict) -> dict:
    return {f"module.{name}": tensor for name, tensor in tensors.items()}


def without_a_layer(tensors: dict) -> dict:
    return {name: tensor for name, tensor in tensors.items() if ".layer.1." not in name}


def with_another_layer(tensors: dict) -> dict:
    return tensors | {name.replace(".layer.1.", ".layer.2."): tensor.clone() for name, tensor in tensors.items()}


@pytest.mark.parametrize("damage", [renamed, without_a_layer, with_another_layer], ids=lambda each: each.__name__)
def test_weights_that_do_not_fit_are_refused_and_not_replaced_by_random_ones(copy, damage):
    file = copy / "model.safetensors"
    save_file(damage(load_file(file)), file, metadata={"format": "pt"})
    with pytest.raises(RunError, match="tensors of the encoder, such as"):
        echoless.load(copy)


@pytest.mark.parametrize(
    "settings",
    [
        {"image_size": "large"},
        {"image_size": [16, 16, 16]},
        {"image_size": -16},
        {"num_hidden_layers": 100_000_000},
        {"num_hidden_layers": "two"},
        {"num_hidden_layers": 0},
        {"hidden_size": "wide"},
        {"num_channels": 2.5},
        {"model_type": "no such model"},
        {"model_type": ["vit"]},
        {"patch_size": 0},
        {"num_attention_heads": 3},
    ],
    ids=str,
)
def test_a_malformed_config_is_one_sentence(copy, settings):
    with pytest.raises(EcholessError) as refusal:
        echoless.load(change(copy, **settings))
    assert "\n" not in str(refusal.value) and str(copy) in str(refusal.value)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"image_mean": [0.5], "image_std": [0.5, 0.5, 0.5]}', "null"])
def test_a_malformed_preprocessor_is_one_sentence(copy, text):
    (copy / "preprocessor_config.json").write_text(text)
    with pytest.raises(EcholessError, match=r"preprocessor_config\.json"):
        echoless.load(copy)


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b"PK\x03\x04"])
def test_malformed_weights_are_one_sentence(copy, content):
    (copy / "model.safetensors").write_bytes(content)
    with pytest.raises(RunError, match="transformers cannot open"):
        echoless.load(copy)
