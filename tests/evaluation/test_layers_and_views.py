"""The same pixels and the same token as the originals: image processors, final norms and the views of the probes.

Proved against transformers: its image processors make the input, its models the tokens.
Run alone: pytest tests/evaluation/test_layers_and_views.py
"""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import echoless
from echoless.config import MaskedConfig, ShortcutConfig, ViTConfig
from echoless.config.options import EvaluateOptions
from echoless.config.selfsupervised import DistillationConfig, InfoNCEConfig
from echoless.data import open_images
from echoless.data.resizing import BY_SIZE, Framing
from echoless.evaluation import augmented
from echoless.evaluation.context import Evaluation, FeatureSource
from echoless.evaluation.encoder import from_body
from echoless.evaluation.extract import View
from echoless.evaluation.segment import patch_tokens, pictures_of
from echoless.models import ViT
from echoless.runs.open import TrainedBody

FADED = ViTConfig(image_size=(16, 16), patch_size=8, width=16, depth=2, heads=2, zero_init=False)
PLAIN = replace(FADED, final_norm=True, shortcuts=ShortcutConfig(alpha_min=1.0))


def encoder_of(config, objective=None):
    model = ViT(config, torch.Generator().manual_seed(0)).eval()
    shared = {"name": "made", "origin": "encoder", "is_checkpoint": False, "step": None, "latent": None}
    return from_body(
        TrainedBody(config=config, model=model, mean=(0.5,) * 3, std=(0.25,) * 3, objective=objective, **shared)
    )


def source_of(encoder, **options):
    images = open_images("shapes:12", cache="off")
    evaluation = Evaluation(encoder, images, None, EvaluateOptions("made", **options), None, None, print)
    return FeatureSource(evaluation, "trained", encoder)


def test_the_final_norm_is_the_last_layer_and_the_default():
    encoder, images = encoder_of(PLAIN), torch.randn(2, 3, 16, 16)
    assert encoder.layers == ("block00/+mlp", "block01/+mlp", "norm") and encoder.default_layer == "norm"
    tokens = encoder.features(images)
    normed = torch.nn.functional.layer_norm(tokens["block01/+mlp"], (16,), eps=1e-6)
    torch.testing.assert_close(encoder(images), normed.mean(dim=1))
    assert torch.equal(encoder(images, layer="block01/+mlp"), tokens["block01/+mlp"].mean(dim=1))
    assert encoder_of(FADED).default_layer == "block01/+mlp"


def test_each_probe_reads_what_its_protocol_says():
    """He et al.: the normalised class token. arXiv:2404.10947: the mean of all tokens. What is given counts."""
    plain, faded = source_of(encoder_of(PLAIN)), source_of(encoder_of(FADED))
    assert plain.probe_view("mae") == View("norm", "cls") and plain.probe_view("imagenet100") == View("norm", "mean")
    last = "block01/+mlp"
    assert faded.probe_view("mae") == View(last, "cls") and faded.probe_view("imagenet100") == View(last, "mean")
    named = source_of(encoder_of(PLAIN), layers=(last,), pooling="patch_mean", probe=("mae",))
    assert named.probe_view("mae") == named.view == View(last, "patch_mean")
    assert plain.probe_view("quick") == plain.view == View("norm", "mean")


@pytest.mark.parametrize(
    ("objective", "pooling"),
    [(InfoNCEConfig(), "cls"), (DistillationConfig(), "cls"), (MaskedConfig(), "mean"), (None, "mean")],
)
def test_class_tokens_are_measured_where_the_loss_compared_them(objective, pooling):
    """MoCo v3 and DINO: kNN and probes of their authors read the class token after the norm."""
    encoder = encoder_of(PLAIN, objective)
    assert source_of(encoder).view == View("norm", pooling)
    assert source_of(encoder, pooling="patch_mean").view == View("norm", "patch_mean")
    assert source_of(encoder).probe_view("imagenet100") == View("norm", "mean")


def test_a_protocol_names_the_view_of_large_images_alone(tmp_path):
    Image.fromarray(np.zeros((150, 200, 3), np.uint8)).save(tmp_path / "a.png")
    source = source_of(encoder_of(PLAIN))
    assert "view" not in source.protocol
    photos = replace(source.evaluation, train=open_images(tmp_path, cache="off"))
    source = FeatureSource(photos, "trained", source.encoder)
    assert source.protocol["view"] == "resize 18, crop 16, bicubic"
    assert source.dense_protocol["view"] == "resize 16, crop 16, bicubic"
    tiles = replace(photos, train=open_images(tmp_path, cache="off", tiles=140))
    assert FeatureSource(tiles, "trained", source.encoder).protocol["view"] == "resize 16, crop 16, bicubic"


def test_the_probe_of_mae_reads_a_batch_in_pieces(monkeypatch):
    """The same crops, features and labels as the whole batch at once, whatever the size of a piece."""
    encoder, images = encoder_of(PLAIN), open_images("shapes:20", cache="off")
    found = []
    for most in (256, 7):
        monkeypatch.setattr(augmented, "AT_ONCE", most)
        crops = augmented._Crops(encoder, images, View("norm", "cls"), batch_size=10, steps=2, seed=3, workers=2)
        found.append(list(crops.of_epoch(1)))
    assert [labels.tolist() for _, labels in found[0]] == [labels.tolist() for _, labels in found[1]]
    for (whole, _), (pieces, _) in zip(*found, strict=True):
        torch.testing.assert_close(whole, pieces)


SQUARE = {"size": {"height": 48, "width": 48}, "resample": 2, "image_processor_type": "ViTImageProcessor"}
CROPPED = {
    "size": {"shortest_edge": 56},
    "resample": 3,
    "do_center_crop": True,
    "crop_size": {"height": 48, "width": 48},
    "image_processor_type": "BitImageProcessor",
}


def foreign_folder(kind, processor, folder, image_size=48):
    """A model of transformers with random weights, saved beside its image processor."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    sizes |= {"image_size": image_size, "patch_size": 16}
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**sizes)
    model = getattr(transformers, f"{kind}Model")(config).eval()
    model.save_pretrained(folder)
    from echoless.storage import write_json

    common = {"do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True}
    common |= {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.25, 0.3]}
    write_json(folder / "preprocessor_config.json", common | processor)
    return model, transformers.AutoImageProcessor.from_pretrained(folder)


@pytest.mark.parametrize("processor", [SQUARE, CROPPED], ids=["stretched", "cropped"])
@pytest.mark.parametrize("kind", ["ViT", "ViTMAE", "Dinov2"])
def test_a_foreign_encoder_sees_and_says_what_its_library_does(kind, processor, tmp_path):
    """From an image to the class token after the final norm, large and small images, whatever their proportions."""
    model, theirs = foreign_folder(kind, processor, tmp_path)
    encoder = echoless.load(tmp_path)
    assert encoder.layers[-1] == "norm" == encoder.default_layer and encoder.framing.every
    rng = np.random.default_rng(0)
    for height, width in ((300, 400), (70, 60), (30, 44)):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 7, 3), dtype=np.uint8))
        picture = coarse.resize((width, height), Image.Resampling.BICUBIC)
        expected, ours = theirs(picture, return_tensors="pt")["pixel_values"], encoder.preprocess(picture)[None]
        levels = (ours - expected).abs() * torch.tensor([0.2, 0.25, 0.3])[:, None, None] * 255
        assert levels.max() < 2.1, (height, width)
        options = {"noise": torch.arange(9.0)[None]} if kind == "ViTMAE" else {}
        if kind == "ViTMAE":
            model.config.mask_ratio = 0.0
        with torch.no_grad():
            token = model(expected, **options).last_hidden_state[:, 0]
        torch.testing.assert_close(encoder(expected, pooling="cls"), token, rtol=0, atol=1e-5)
        torch.testing.assert_close(encoder(ours, pooling="cls"), token, rtol=0, atol=0.05)


@pytest.mark.parametrize(("kind", "side"), [("Dinov2", 48), ("Dinov2WithRegisters", 48), ("ViT", 96)])
def test_images_are_those_of_the_processor_where_the_model_takes_them(kind, side, tmp_path):
    """DINOv2's config names the 518 pixels of its training, and its processor makes crops of 224."""
    model, theirs = foreign_folder(kind, CROPPED, tmp_path, image_size=96)
    encoder = echoless.load(tmp_path)
    assert encoder.image_size == (side, side) and encoder.grid == (side // 16, side // 16)
    if side == 48:
        picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (200, 300, 3), dtype=np.uint8))
        expected = theirs(picture, return_tensors="pt")["pixel_values"]
        with torch.no_grad():
            tokens = model(expected).last_hidden_state
        torch.testing.assert_close(encoder(expected, pooling="cls"), tokens[:, 0], rtol=0, atol=1e-5)
        patches = tokens[:, -9:].mean(dim=1)
        torch.testing.assert_close(encoder(expected, pooling="patch_mean"), patches, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("prefix", "class_token"), [(0, False), (1, True), (4, False), (5, True)])
def test_registers_of_timm_are_neither_patches_nor_a_class_token(prefix, class_token, monkeypatch):
    """timm's own attributes say how many tokens precede the patches, and whether the first is a class token."""

    class Made(torch.nn.Module):
        num_prefix_tokens, has_class_token = prefix, class_token

        @property
        def pretrained_cfg(self):
            return {"input_size": (3, 16, 16), "mean": (0.5,) * 3, "std": (0.5,) * 3, "crop_pct": 0.9}

        def forward_features(self, images_BCHW):
            return torch.arange(prefix + 4.0).expand(len(images_BCHW), 1, -1).mT

    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=lambda name, pretrained: Made()))
    encoder = echoless.load("timm:made")
    assert encoder.has_class_token == class_token and encoder.prefix_tokens == prefix
    patches = encoder(torch.zeros(1, 3, 16, 16), pooling="patch_mean")
    assert patches.item() == prefix + 1.5


def test_patch_tokens_leave_out_all_that_come_before(tmp_path):
    """Registers are no patches: with one of them counted, every patch would be at its neighbour's place."""
    foreign_folder("Dinov2WithRegisters", CROPPED, tmp_path / "model")
    encoder, images = echoless.load(tmp_path / "model"), open_images("shapes:4", cache="off")
    pictures, (tokens_IPD,) = pictures_of(encoder, images, [0, 1]), patch_tokens(encoder, images, [0, 1], ["norm"])
    assert encoder.prefix_tokens == 5
    torch.testing.assert_close(tokens_IPD, encoder.tokens(pictures, ["norm"])["norm"][:, 5:])


def test_a_folder_without_an_image_processor_is_given_images_as_ours(tmp_path):
    foreign_folder("ViT", SQUARE, tmp_path)
    assert echoless.load(tmp_path).framing == Framing(share=1.0, kind="stretch", filter="bilinear", every=True)
    (tmp_path / "preprocessor_config.json").unlink()
    assert echoless.load(tmp_path).framing == BY_SIZE
