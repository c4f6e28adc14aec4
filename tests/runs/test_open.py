"""There is one door to trained weights: it opens every kind of network from everything that holds one, and says which.

What does not fit, is not finite, or was trained under other shortcuts is refused in one sentence.
Run alone: pytest tests/runs/test_open.py
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "reliability"))
from tiny import tiny_config, tiny_family, tiny_images, tiny_run

from echoless.config import ShortcutConfig, ViTConfig, to_dict
from echoless.errors import AlphaMismatch, EcholessError, RunError, UntrustedFile
from echoless.models import ViT
from echoless.runs import load_checkpoint, load_weights, save_checkpoint, save_weights
from echoless.runs.open import SOURCES, is_trained, load_body, load_model, trained_tiles

FAMILIES = {"masked": "vit", "infonce": "vit", "dino": "vit", "uvit": "uvit", "sit": "sit"}
VIT = ViTConfig(image_size=(8, 8), patch_size=4, width=32, depth=2, heads=2, shortcuts=ShortcutConfig(alpha_min=0.6))


@pytest.fixture(scope="module", params=list(FAMILIES))
def family(request, tmp_path_factory) -> tuple[str, Path]:
    """A complete run of four steps with checkpoints at 2 and 4 and snapshots at 2 and 4."""
    images = tiny_images()
    out = tmp_path_factory.mktemp("open") / request.param
    tiny_run(out, images, tiny_family(images, request.param, steps=4), checkpoint_every=2, snapshot_every=2)
    return request.param, out


def stopped(run: Path, copy: Path) -> Path:
    """The same run as a stop after its last checkpoint would have left it."""
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "encoder")
    return copy


def equal(body, other) -> bool:
    ours, theirs = body.model.state_dict(), other.model.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def folder_of(path: Path, vit: ViT, **described) -> Path:
    config = {"kind": "vit", "model": to_dict(vit.config), "mean": [0.5] * 3, "std": [0.25] * 3} | described
    save_weights(path, vit.state_dict(), config, vit.shortcut_record)
    return path


def test_a_run_its_encoder_its_last_snapshot_and_its_last_checkpoint_hold_the_same_network(family, tmp_path):
    name, run = family
    bodies = {
        "encoder": load_body(run),
        "folder": load_body(run / "encoder"),
        "snapshot": load_body(run / "snapshots" / "step-00000004"),
        "checkpoint": load_body(run / "checkpoints" / "step-00000004"),
        "stopped": load_body(stopped(run, tmp_path / "run")),
    }
    first = bodies["encoder"]
    assert first.kind == FAMILIES[name] and not first.model.training
    assert all(equal(first, body) for body in bodies.values())
    for field in ("config", "mean", "std", "objective", "latent", "fingerprint"):
        assert all(getattr(body, field) == getattr(first, field) for body in bodies.values()), field


def test_the_result_says_which_weights_they_are(family, tmp_path):
    name, run = family
    averaged = "" if name in ("infonce", "dino") else ", averaged"
    assert (load_body(run).origin, load_body(run).step) == ("encoder", None)
    snapshot = load_body(run / "snapshots" / "step-00000002")
    assert (snapshot.origin, snapshot.step, snapshot.is_checkpoint) == ("snapshot of step 2", 2, False)
    older = load_body(run / "checkpoints" / "step-00000002")
    assert (older.origin, older.step, older.is_checkpoint) == (f"checkpoint of step 2{averaged}", 2, True)
    assert not equal(older, load_body(run)), "another step"
    unfinished = load_body(stopped(run, tmp_path / "run"))
    assert unfinished.title == f"{tmp_path / 'run'} (checkpoint of step 4{averaged})"


def test_the_newest_checkpoint_is_the_newest_valid_one(family, tmp_path):
    _, run = family
    broken = stopped(run, tmp_path / "run")
    weights = broken / "checkpoints" / "step-00000004" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    assert load_body(broken).step == 2


def test_averaged_weights_are_unwrapped_and_are_those_of_the_checkpoint(tmp_path):
    images = tiny_images()
    tiny_run(tmp_path / "run", images, tiny_config(images, steps=2, ema=0.5))
    tensors = load_checkpoint(tmp_path / "run" / "checkpoints" / "step-00000002").tensors
    found = load_model(tmp_path / "run").model.state_dict()
    assert found.keys() == tensors["model"].keys()
    assert all(torch.equal(found[name], tensors["ema"][f"module.{name}"]) for name in found)
    assert any(not torch.equal(found[name], tensors["model"][name]) for name in found)


def test_the_whole_model_comes_with_its_decoder_or_heads_and_its_config(family):
    _, run = family
    whole = load_model(run)
    assert whole.step == 4 and whole.model.config == whole.config.model
    written = load_checkpoint(run / "checkpoints" / "step-00000004", only=["model"])
    assert list(written.tensors) == ["model"], "an optimiser is not read for nothing"
    assert whole.model.state_dict().keys() == written.tensors["model"].keys()
    assert equal(replace(load_body(run), model=whole.model.body), load_body(run))


def test_a_folder_of_before_there_were_kinds_is_a_vit(tmp_path):
    vit = ViT(VIT)
    save_weights(tmp_path / "old", vit.state_dict(), {"model": to_dict(VIT)}, vit.shortcut_record)
    body = load_body(tmp_path / "old")
    assert (body.kind, body.mean, body.std, body.objective) == ("vit", (0.0,) * 3, (1.0,) * 3, None)


def test_opening_takes_no_random_number_from_anybody(tmp_path):
    """Weights are filled in, not drawn first: opening a network leaves the global generator as it was."""
    folder = folder_of(tmp_path / "vit", ViT(VIT))
    before = torch.get_rng_state()
    load_body(folder)
    assert torch.equal(torch.get_rng_state(), before)


# What is refused.


def refused(error: type[EcholessError], path: Path, **how) -> str:
    with pytest.raises(error) as caught:
        load_body(path, **how)
    return str(caught.value)


def test_a_wrong_path_says_what_was_found_and_what_is_allowed(tmp_path):
    for name in ("empty", "begun/checkpoints"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "file.pth").write_bytes(b"x")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "config.json").write_text(json.dumps({"model_type": "vit"}))
    (foreign / "model.safetensors").write_bytes(b"")
    found = {
        "nowhere": "does not exist",
        "empty": "holds no trained model",
        "begun": "has neither an encoder nor a checkpoint yet",
        "file.pth": "is a file, which `echoless import` may convert",
        "foreign": "holds a model of transformers, which `echoless import` may convert",
    }
    for name, words in found.items():
        assert refused(RunError, tmp_path / name) == f"{tmp_path / name} {words}; allowed: {SOURCES}"
        assert not is_trained(tmp_path / name)


def test_a_wrong_kind_says_what_it_is_and_what_takes_it(family):
    _, run = family
    kind = load_body(run).kind
    other = "resnet" if kind == "vit" else "vit"
    for path in (run, run / "checkpoints" / "step-00000004"):
        sentence = refused(RunError, path, kinds=(other,), use="for this")
        assert f"holds a network of kind '{kind}', which evaluate, embed" in sentence
        assert sentence.endswith(f"allowed for this: {other}") and "\n" not in sentence


def test_weights_of_another_schedule_are_refused_with_both_tables(tmp_path):
    """Of an encoder folder and of a checkpoint: neither config can be edited to another alpha."""
    other = replace(VIT, shortcuts=ShortcutConfig(alpha_min=0.9))
    folder = folder_of(tmp_path / "vit", ViT(VIT), model=to_dict(other))
    assert "its config has" in refused(AlphaMismatch, folder)
    images = tiny_images()
    tiny_run(tmp_path / "run", images, tiny_config(images, steps=2))
    checkpoint = load_checkpoint(tmp_path / "run" / "checkpoints" / "step-00000002")
    manifest = {key: checkpoint.manifest[key] for key in ("config", "shortcuts", "environment")}
    manifest["config"]["model"]["encoder"]["shortcuts"]["alpha_min"] = 0.9
    tensors = {"model": checkpoint.tensors["model"]}
    forged = save_checkpoint(tmp_path, 2, tensors, {}, manifest)
    assert "its config has" in refused(AlphaMismatch, forged)


def test_weights_that_do_not_fit_are_refused_before_memory_is_taken(tmp_path):
    """A config that asks for terabytes costs nothing."""
    huge = replace(VIT, width=2**17, heads=2)
    sentence = refused(RunError, folder_of(tmp_path / "huge", ViT(VIT), model=to_dict(huge)))
    assert "do not fit their config: blocks.0.attn.proj.bias has the shape (32,); allowed: (131072,)" in sentence


def test_weights_that_are_not_finite_are_refused_by_name(tmp_path):
    vit = ViT(VIT)
    vit.blocks[1].norm1.weight.data[3] = float("nan")
    sentence = refused(RunError, folder_of(tmp_path / "vit", vit))
    assert "numbers that are not finite in blocks.1.norm1.weight" in sentence


@pytest.mark.parametrize("mean", [[0.5], [0.5, 0.5, "x"], {"a": 1}, [True, 0.5, 0.5]])
def test_a_normalisation_that_is_none_is_refused(mean, tmp_path):
    assert "mean is" in refused(UntrustedFile, folder_of(tmp_path / "vit", ViT(VIT), mean=mean))


def test_there_is_no_whole_model_without_a_checkpoint(tmp_path):
    folder = folder_of(tmp_path / "vit", ViT(VIT))
    with pytest.raises(RunError, match="has no checkpoint, and only a checkpoint holds the whole model"):
        load_model(folder)


def test_tiles_are_those_of_the_run_whichever_part_of_it_is_opened(tmp_path):
    images = tiny_images()
    config = tiny_config(images, steps=2)
    config = replace(config, data=replace(config.data, tiles=64))
    tiny_run(tmp_path / "run", images, config, snapshot_every=2)
    parts = ("", "encoder", "snapshots/step-00000002", "checkpoints/step-00000002")
    assert [trained_tiles(tmp_path / "run" / part) for part in parts] == [64, 64, 64, 64]
    assert trained_tiles("timm:vit_tiny") is None


def test_seals_are_still_checked(tmp_path):
    folder = folder_of(tmp_path / "vit", ViT(VIT))
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x7f")
    for reader in (load_weights, load_body):
        with pytest.raises(EcholessError, match="SHA-256"):
            reader(folder)
