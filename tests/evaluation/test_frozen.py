"""`echoless.load` gives a frozen encoder: vectors, named intermediates, inputs and tables, equal to `echoless embed`.

And a run that has not ended is evaluated, embedded and exported at its newest checkpoint, which every output names.
Run alone: pytest tests/evaluation/test_frozen.py
"""

from __future__ import annotations

import re
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import echoless
from echoless.config import ViTConfig
from echoless.config.options import EvaluateOptions
from echoless.data import evaluation_batches, open_images
from echoless.errors import ConfigError, DataError, RunError
from echoless.evaluation.encoder import from_body
from echoless.exchange import export_encoder
from echoless.models import ViT
from echoless.runs import RunFolder
from echoless.runs.open import TrainedBody, load_body


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Files of several formats, sizes and modes, in two classes; one JPEG large enough to be decoded at half size."""
    folder, random = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)

    def picture(height, width, channels=3):
        coarse = random.integers(0, 256, (5, 7, channels), dtype=np.uint8)
        return Image.fromarray(coarse.squeeze()).resize((width, height), Image.Resampling.BICUBIC)

    for name in ("cats", "dogs"):
        (folder / name).mkdir()
        picture(40, 60).save(folder / name / "a.png")
        picture(32, 32).save(folder / name / "b.jpg", quality=90)
        picture(33, 47).save(folder / name / "c.webp")
        picture(50, 20).convert("P").save(folder / name / "d.png")
    picture(600, 900).save(folder / "cats" / "large.jpg", quality=90)
    rotated = picture(48, 30)
    exif = rotated.getexif()
    exif[0x0112] = 6
    rotated.save(folder / "dogs" / "rotated.jpg", exif=exif)
    return folder


@pytest.fixture(scope="module")
def stopped(run, tmp_path_factory):
    copy = tmp_path_factory.mktemp("stopped") / "run"
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "encoder")
    return copy


def vectors(table) -> np.ndarray:
    return np.stack(table["feature"].to_pylist()).astype(np.float32)


def test_preprocess_and_call_give_what_embed_writes(run, photos, tmp_path):
    """From each file, opened by Pillow as anybody would: the input exactly, the vector to 1e-6 of its length."""
    echoless.embed(run, photos, out=tmp_path / "f.parquet")
    table = pq.read_table(tmp_path / "f.parquet")
    encoder = echoless.load(run)
    images = open_images(photos, reduction=encoder.reduction)
    inputs = torch.cat(
        [
            batch.images_BCHW
            for batch in evaluation_batches(
                images, size=encoder.image_size, batch_size=4, mean=encoder.mean, std=encoder.std
            )
        ]
    )
    for index, (path, vector) in enumerate(zip(table["path"].to_pylist(), vectors(table))):
        with Image.open(photos / path) as opened:
            image = encoder.preprocess(opened)
        assert torch.equal(image, inputs[index]), path
        ours = encoder(image[None])[0].numpy()
        assert np.abs(ours - vector).max() <= 1e-6 * np.linalg.norm(vector), path


def test_a_picture_in_memory_is_preprocessed_as_its_file(run, photos):
    """Once Pillow has decoded it; only a large JPEG differs, because its file is decoded at a reduced size."""
    encoder = echoless.load(run)
    for path in sorted(photos.rglob("*.png")) + sorted(photos.rglob("b.jpg")):
        with Image.open(path) as opened, Image.open(path) as loaded:
            loaded.load()
            assert torch.equal(encoder.preprocess(opened), encoder.preprocess(loaded)), path


def test_the_callers_picture_is_left_as_it_was(run, photos):
    with Image.open(photos / "cats" / "large.jpg") as image:
        before = image.size
        echoless.load(run).preprocess(image)
        assert image.size == before and np.asarray(image).shape == (600, 900, 3)


def test_preprocess_converts_channels_and_refuses_what_is_no_picture_of_levels(run):
    encoder = echoless.load(run)
    for mode in ("L", "RGBA", "CMYK", "I;16"):
        assert encoder.preprocess(Image.new(mode, (40, 50))).shape == (3, 32, 32)
    with pytest.raises(DataError, match="the image cannot be used: floating-point pixels"):
        encoder.preprocess(Image.new("F", (40, 50)))


@pytest.mark.parametrize("kind", ["uint8", "uint16", "float32"])
def test_an_array_of_many_channels_becomes_the_vector_that_embed_gives_of_it_in_an_npz_file(tmp_path, kind):
    """Pillow has no picture of five channels."""
    config = ViTConfig(image_size=(16, 16), patch_size=8, channels=5, width=16, depth=2, heads=2, zero_init=False)
    model = ViT(config, torch.Generator().manual_seed(0)).eval()
    shared = {"name": "made", "origin": "encoder", "is_checkpoint": False, "step": None, "latent": None}
    scaling = {"mean": (0.4,) * 5, "std": (0.2,) * 5}
    encoder = from_body(TrainedBody(config=config, model=model, objective=None, **scaling, **shared))
    floats = np.random.default_rng(0).random((2, 150, 170, 5), dtype=np.float32)
    images = floats if kind == "float32" else (floats * np.iinfo(kind).max).astype(kind)
    np.savez(tmp_path / "cells.npz", images=images)
    expected = torch.from_numpy(vectors(encoder.embed(tmp_path / "cells.npz")))
    for given in (images, torch.from_numpy(images)):
        found = encoder(torch.stack([encoder.preprocess(image) for image in given]))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_a_path_or_an_array_is_preprocessed_as_the_picture_is(run, photos):
    encoder, path = echoless.load(run), photos / "cats" / "a.png"
    with Image.open(path) as opened:
        expected, array = encoder.preprocess(opened), np.array(opened)
    for given in (path, str(path), array, torch.from_numpy(array)):
        assert torch.equal(encoder.preprocess(given), expected)
    assert encoder.preprocess(array[:, :, 0]).shape == expected.shape, "grey becomes RGB, as a grey file does"


@pytest.mark.parametrize(("given", "message"), [
    ([1, 2], "image is of the type list; it must be a picture of Pillow, the path of an image file, or an array"),
    ("NOWHERE.png", "NOWHERE.png cannot be read: No such file or directory"),
    (np.zeros((40, 40, 5), np.uint8), "the image cannot be used: 5 channels, which cannot be converted to 3"),
    (np.zeros((3, 40, 40), np.uint8), r"the pixels have shape (3, 40, 40), channels first; allowed: (H, W, C)"),
    (np.zeros((1, 40, 40, 3), np.uint8), r"the pixels have shape (1, 40, 40, 3); allowed: (H, W) or (H, W, C)"),
    (torch.full((40, 40, 3), 9.0), "the image has the value 9; allowed: floats from 0 to 1"),
    (np.zeros((40, 40), np.int64), "the pixels are int64; allowed: uint8, uint16, or floats from 0 to 1"),
])  # fmt: skip
def test_what_is_no_image_is_refused_with_what_is_taken(run, given, message):
    with pytest.raises(DataError, match=f"^{re.escape(message)}"):
        echoless.load(run).preprocess(given)


def test_what_is_no_batch_of_floats_is_refused_with_where_one_comes_from(run):
    encoder = echoless.load(run)
    for given, kind in ((np.zeros((1, 3, 32, 32)), "ndarray"), (torch.zeros(1, 3, 32, 32).byte(), r"torch\.uint8")):
        with pytest.raises(
            ConfigError, match=rf"^images are of the type {kind}; .*\(batch, 3, height, width\).*preproc"
        ):
            encoder(given)


def test_embed_gives_the_table_that_the_verb_writes(run, photos, tmp_path):
    echoless.embed(run, photos, out=tmp_path / "f.parquet")
    table = echoless.load(run).embed(photos)
    assert table.equals(pq.read_table(tmp_path / "f.parquet"))
    assert table.column_names == ["path", "feature", "label"] and set(table["label"].to_pylist()) == {"cats", "dogs"}


def test_embed_leaves_out_what_the_verb_leaves_out_and_warns(run, tmp_path):
    """One file of two cannot be read: far above the fraction that training allows."""
    Image.new("RGB", (40, 40), "red").save(tmp_path / "good.png")
    (tmp_path / "empty.jpg").touch()
    with pytest.warns(UserWarning, match="unreadable image, left out: empty.jpg: the file is empty"):
        table = echoless.load(run).embed(tmp_path)
    assert table["path"].to_pylist() == ["good.png"]


def test_the_vector_is_the_papers_feature_unless_another_is_asked_for(run):
    encoder, images = echoless.load(run), torch.randn(3, 3, 32, 32)
    model = load_body(run).model
    features = model.features(images)
    assert torch.equal(encoder(images), features.pool())
    assert torch.equal(encoder(images, layer="block02/+mlp", pooling="cls"), features["block02/+mlp"][:, 0])
    assert not encoder(images).requires_grad
    with pytest.raises(ConfigError, match="layer is 'last'; allowed: block00"):
        encoder(images, layer="last")
    with pytest.raises(ConfigError, match=r"images have the shape \(3, 32, 32\); allowed: \(batch, 3, height, width\)"):
        encoder(images[0])


def test_every_intermediate_has_its_name_in_order(run):
    encoder, images = echoless.load(run), torch.randn(3, 3, 32, 32)
    found, expected = encoder.features(images), load_body(run).model.features(images)
    assert list(found) == list(expected) and list(found)[:3] == ["embed", "block00/attn", "block00/+attn"]
    assert all(torch.equal(found[name], expected[name]) for name in found)


@pytest.mark.parametrize("name", ["block99", "block03", "block03/+mlps"])
def test_an_intermediate_that_is_not_there_is_refused_with_the_names(run, name):
    encoder, images = echoless.load(run), torch.randn(1, 3, 32, 32)
    with pytest.raises(
        ConfigError, match=rf"^layer is '{re.escape(name)}'; allowed: block00/\+mlp, .*, and every other name"
    ):
        encoder.features(images, layers=["block00/attn", name])
    assert list(encoder.features(images, layers="block03/attn")) == ["block03/attn"], "one name is no list of letters"


def test_an_intermediate_that_is_looked_up_in_vain_is_answered_with_the_nearest(run):
    """It was a bare KeyError: 'block99'."""
    found = echoless.load(run).features(torch.randn(1, 3, 32, 32))
    first = r"embed, block00/attn, block00/\+attn, block00/mlp, block00/\+mlp, \.\.\."
    for name, answer in (("block99", first), ("block03", rf"{first}; did you mean 'block03/mlp'\?")):
        with pytest.raises(KeyError, match=f"feature is '{name}'; allowed: {answer}"):
            found[name]
    assert found.get("block99") is None and "block99" not in found


def test_an_empty_batch_is_refused(run):
    """It was torch's own error, of a reshape."""
    encoder = echoless.load(run)
    for call in (encoder, encoder.features, encoder.patches):
        with pytest.raises(ConfigError, match=r"^images have the shape \(0, 3, 32, 32\), an empty batch; give one ima"):
            call(torch.zeros(0, 3, 32, 32))


def test_its_repr_can_be_read(run, stopped):
    shown = "3 x 32 x 32, 6 layers, default block05/+mlp)"
    assert repr(echoless.load(run)) == f"Encoder({run}: {shown}"
    assert repr(echoless.load(stopped)) == f"Encoder({stopped} (checkpoint of step 30, averaged): {shown}"


def test_all_parts_of_a_run_are_opened(run):
    images, last = torch.randn(2, 3, 32, 32), "snapshots/step-00000030"
    expected = echoless.load(run)(images)
    for part in ("encoder", last, "checkpoints/step-00000030"):
        assert torch.equal(echoless.load(run / part)(images), expected), part
    assert not torch.equal(echoless.load(run / "snapshots" / "step-00000010")(images), expected)


def test_a_transformers_folder_is_opened_and_names_its_hidden_states(tmp_path):
    from transformers import ViTConfig, ViTModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = ViTModel(ViTConfig(**sizes, image_size=32, patch_size=8)).eval()
    model.save_pretrained(tmp_path / "vit")
    encoder, images = echoless.load(tmp_path / "vit"), torch.randn(2, 3, 32, 32)
    assert list(encoder.features(images)) == ["hidden00", "hidden01", "hidden02", "norm"]
    with pytest.raises(ConfigError, match=r"^layer is 'hidden09'; allowed: hidden00, hidden01, hidden02, norm"):
        encoder.features(images, ["hidden09"])
    with torch.no_grad():
        output = model(images, output_hidden_states=True)
    torch.testing.assert_close(encoder(images), output.last_hidden_state.mean(dim=1))
    torch.testing.assert_close(encoder(images, layer="hidden02"), output.hidden_states[-1].mean(dim=1))
    with pytest.raises(ConfigError, match=r"noise is 0.2, but .* is not a diffusion model"):
        echoless.load(tmp_path / "vit", noise=0.2)


def test_what_does_not_exist_says_everything_that_is_allowed(tmp_path):
    with pytest.raises(RunError, match=r"does not exist; allowed: a run, .*, a transformers folder, or timm:NAME"):
        echoless.load(tmp_path / "nowhere")


# A run that has not ended.


def test_a_stopped_run_is_evaluated_and_its_numbers_name_the_checkpoint(stopped):
    said: list[str] = []
    settings = {"train": "shapes:60", "metrics": ("knn",), "k": (5,), "device": "cpu"}
    metrics = echoless.evaluate.run(EvaluateOptions(stopped, **settings), said.append)
    assert f"the run has not ended: evaluating {stopped} (checkpoint of step 30, averaged)" in said
    checkpoints = {metric.protocol["features"]: metric.protocol.get("checkpoint") for metric in metrics}
    assert checkpoints == {"trained": 30, "raw pixels": None, "untrained": None}
    assert any(record["protocol"].get("checkpoint") == 30 for record in RunFolder(stopped).read_results())


def test_a_stopped_run_is_embedded_as_the_complete_one(run, stopped, photos, tmp_path, capsys):
    for name, source in (("whole", run), ("part", stopped)):
        echoless.embed(source, photos, out=tmp_path / f"{name}.parquet")
    assert pq.read_table(tmp_path / "whole.parquet").equals(pq.read_table(tmp_path / "part.parquet"))
    assert "the run has not ended: embedding with" in capsys.readouterr().err


def test_a_stopped_run_is_exported_and_its_card_says_so(stopped, tmp_path):
    report = export_encoder(stopped, "onnx", tmp_path / "onnx", tolerance=1e-3)
    assert "onnx (checkpoint of step 30, averaged)" in str(report)
    card = (tmp_path / "onnx" / "README.md").read_text()
    assert "checkpoint of step 30, averaged; the run has not ended" in card


def test_a_diffusion_model_is_an_encoder_at_a_noise_level_and_is_not_exported(tmp_path):
    from tiny import tiny_diffusion, tiny_images, tiny_run

    images, pixels = tiny_images(), torch.rand(2, 3, 32, 32)
    tiny_run(tmp_path / "run", images, tiny_diffusion(images, "uvit", steps=2))
    encoder = echoless.load(tmp_path / "run", noise=0.3)
    assert repr(encoder).endswith("3 layers, default block01/+mlp, noise 0.3)")
    assert torch.equal(encoder(pixels), encoder(pixels)), "deterministic"
    assert not torch.equal(encoder(pixels), echoless.load(tmp_path / "run", noise=0.6)(pixels))
    every = encoder.features(pixels)
    assert "block02/+skip" in every and all(tokens.shape == (2, 16, 32) for tokens in every.values())
    with pytest.raises(RunError, match="kind 'uvit', which evaluate, embed and sample take; allowed for export: vit"):
        export_encoder(tmp_path / "run", "onnx", tmp_path / "onnx")
