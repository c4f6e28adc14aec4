"""By what images are normalised: a model that does not say it is named with what is assumed, in a line and in records;
statistics of pixels in 0..255 are refused.

    pytest tests/verbs/test_normalisation.py
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import echoless
from echoless.config.normalisation import IMAGENET_MEAN
from echoless.errors import ConfigError, RunError
from echoless.exchange import import_checkpoint

transformers = pytest.importorskip("transformers")
SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
TINY = {"recipe": "shapes", "image_size": (16,), "patch_size": 8, "width": 32, "depth": 2, "batch_size": 4}
SHORT = {"max_steps": 1, "batch_size": 4, "labels": "none"}


def folder_of(place: Path, **sizes: int) -> Path:
    """A ViT without an image processor, as `ViTModel(config).save_pretrained` leaves it."""
    torch.manual_seed(0)
    config = transformers.ViTConfig(**SIZES, image_size=32, patch_size=8, **sizes)
    transformers.ViTModel(config).save_pretrained(place)
    return place


def said_of(folder: Path) -> str:
    return (
        f"{folder} has no preprocessor_config.json: images are normalised by ImageNet's mean and deviation; save the "
        "image processor beside it if it differs\n"
    )


def test_a_transformers_folder_without_an_image_processor_says_what_is_assumed(tmp_path, capsys):
    """With the default of ViTImageProcessor, 0.5 and 0.5, the features are others (cosine 0.71)."""
    folder = folder_of(tmp_path / "hfvit")
    encoder = echoless.load(folder)
    assert encoder.mean == IMAGENET_MEAN and capsys.readouterr().err.count(said_of(folder)) == 1
    metrics = echoless.evaluate(folder, train="shapes:40", metrics=("knn",), k=(3,), baselines=True)
    assert {metric.protocol["assumed_normalisation"] for metric in metrics} == {"imagenet"}
    assert capsys.readouterr().err.count(said_of(folder)) == 1
    echoless.embed(folder, "shapes:4", out=tmp_path / "f.parquet")
    assert pq.read_schema(tmp_path / "f.parquet").metadata[b"echoless.assumed_normalisation"] == b"imagenet"
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    capsys.readouterr()
    assert echoless.load(folder).mean == (0.5, 0.5, 0.5) and "normalised" not in capsys.readouterr().err
    (metric,) = echoless.evaluate(folder, train="shapes:40", metrics=("knn",), k=(3,), baselines=False)
    assert "assumed_normalisation" not in metric.protocol


def test_so_does_a_run_that_starts_from_it(tmp_path):
    folder = folder_of(tmp_path / "hfvit")
    echoless.pretrain("shapes:8", out=tmp_path / "run", init=folder, **SHORT)
    echoless.finetune(folder, train="shapes:8", test="shapes:8@test", out=tmp_path / "ft", max_steps=1)
    for run in ("run", "ft"):
        assert (tmp_path / run / "log.txt").read_text().count(said_of(folder)) == 1
        about = json.loads((tmp_path / run / "about.json").read_text())
        assert about["start"]["assumed_normalisation"] == "imagenet"
    echoless.pretrain("shapes:8", out=tmp_path / "own", init=folder, mean=(0.5,) * 3, std=(0.5,) * 3, **SHORT)
    assert "normalised by" not in (tmp_path / "own" / "log.txt").read_text()
    assert "assumed_normalisation" not in json.loads((tmp_path / "own" / "about.json").read_text())["start"]
    usual = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
    echoless.pretrain("shapes:8", out=tmp_path / "same", init=folder, **usual, **SHORT)
    assert "normalised by" not in (tmp_path / "same" / "log.txt").read_text(), (
        "given, if to the values of the usual ones"
    )


@pytest.mark.parametrize(("given", "assumed"), [({}, True), ({"mean": (0.5,) * 3, "std": (0.5,) * 3}, False)])
def test_so_does_an_import(given, assumed, tmp_path):
    folder = folder_of(tmp_path / "hfvit")
    report = import_checkpoint(folder, tmp_path / "out", **given)
    assert (f"assumed: {said_of(folder)}" in str(report)) == assumed
    record = json.loads((tmp_path / "out" / "import.json").read_text())
    assert record.get("assumed_normalisation") == ("imagenet" if assumed else None)


def test_images_of_other_channels_are_normalised_alike_whoever_opens_the_folder(tmp_path, capsys):
    """Four channels of images were taken for latents by --init, and for images by `evaluate`."""
    folder = folder_of(tmp_path / "hfvit", num_channels=4)
    encoder = echoless.load(folder)
    assert "normalised by mean 0.5 and deviation 0.25;" in capsys.readouterr().err
    import_checkpoint(folder, tmp_path / "out")
    imported = echoless.load(tmp_path / "out")
    assert (encoder.mean, encoder.std) == (imported.mean, imported.std) == ((0.5,) * 4, (0.25,) * 4)


BYTES = {"mean": (123.68, 116.28, 103.53), "std": (58.4, 57.1, 57.4)}


@pytest.mark.parametrize(("given", "refused"), [
    ({"mean": (127, 127, 127)}, r"^mean is \(127, 127, 127\); allowed: numbers in \[0, 1\], for pixels scaled to 0..1 "
     r"\(divide by 255; 16 bit: by 65535\)$"),
    ({"mean": (-0.1, 0.5, 0.5)}, r"^mean is .*; allowed: numbers in \[0, 1\], "),
    ({"std": BYTES["std"]}, r"^std is .*; allowed: numbers above 0 and at most 1, for pixels scaled to 0..1 \(divide"),
    ({"std": (0.2, 0.0, 0.2)}, r"^std is .*; allowed: numbers above 0 and at most 1, "),
    ({"std": (float("nan"),) * 3}, r"^std is .*; allowed: numbers above 0 and at most 1, "),
])  # fmt: skip
def test_statistics_of_bytes_are_refused(given, refused, tmp_path):
    """Divided by 58, every image is nearly one grey: the run trained without a word."""
    with pytest.raises(ConfigError, match=refused):
        echoless.pretrain("shapes:8", out=tmp_path / "run", max_steps=1, **TINY, **given)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=refused):
        import_checkpoint(folder_of(tmp_path / "hfvit"), tmp_path / "out", **given)


def test_those_of_an_image_processor_are_refused_too(tmp_path):
    folder = folder_of(tmp_path / "hfvit")
    processor = {"image_mean": BYTES["mean"], "image_std": BYTES["std"]}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    with pytest.raises(RunError, match=r"image_mean is \[123.68, .*; allowed: 3 numbers in \[0, 1\]"):
        echoless.load(folder)
    with pytest.raises(ConfigError, match=r"mean is \[123.68, .*; allowed: numbers in \[0, 1\], "):
        import_checkpoint(folder, tmp_path / "out")


@pytest.mark.parametrize("steps", [
    {"do_normalize": False},
    {"do_rescale": False, "image_mean": BYTES["mean"], "image_std": BYTES["std"]},
    {"do_rescale": False, "do_normalize": False},
    {"rescale_factor": 1 / 127.5, "image_mean": [1.0, 0.9, 1.1], "image_std": [0.5, 0.5, 0.5]},
], ids=lambda steps: "-".join(steps))  # fmt: skip
def test_the_steps_of_an_image_processor_are_those_of_transformers(steps, tmp_path):
    """One that does not normalise was normalised by its unused image_mean all the same, or by that of ImageNet."""
    transformers = pytest.importorskip("transformers")
    folder = folder_of(tmp_path / "hfvit")
    usual = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "do_resize": False}
    kept = {"image_processor_type": "ViTImageProcessor", **usual, **steps}
    (folder / "preprocessor_config.json").write_text(json.dumps(kept))
    picture = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    theirs = transformers.AutoImageProcessor.from_pretrained(folder)(picture, return_tensors="np")["pixel_values"][0]

    encoder = echoless.load(folder)
    mean, std = (np.array(each).reshape(3, 1, 1) for each in (encoder.mean, encoder.std))
    ours = (picture.transpose(2, 0, 1) / 255 - mean) / std
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    import_checkpoint(folder, tmp_path / "out")
    imported = echoless.load(tmp_path / "out")
    assert (imported.mean, imported.std) == (encoder.mean, encoder.std)


def test_a_processor_with_no_number_to_rescale_by_is_refused(tmp_path):
    folder = folder_of(tmp_path / "hfvit")
    (folder / "preprocessor_config.json").write_text('{"rescale_factor": "much"}')
    with pytest.raises(ConfigError, match=r"^rescale_factor is 'much'; allowed: a number above 0, at most 1$"):
        echoless.load(folder)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.float32])
def test_grey_images_of_any_depth_are_normalised_by_what_is_given(kind, tmp_path):
    """One number was refused before the images were looked at: three channels were taken for granted."""
    levels = np.random.default_rng(0).random((8, 16, 16), dtype=np.float32)
    np.savez(tmp_path / "grey.npz", x=levels if kind is np.float32 else (levels * np.iinfo(kind).max).astype(kind))
    echoless.pretrain(tmp_path / "grey.npz", out=tmp_path / "run", max_steps=1, mean=(0.0,), std=(1.0,), **TINY)
    data = json.loads((tmp_path / "run" / "config.json").read_text())["data"]
    assert (data["mean"], data["std"]) == ([0.0], [1.0])
