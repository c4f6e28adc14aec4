"""Everything that decides a cached result is part of its name: change it, and the name changes; else it stays.

Run alone: pytest tests/evaluation/test_cache_keys.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from echoless.config import DiffusionConfig, UViTConfig
from echoless.config.training import LatentConfig
from echoless.data import Images, cached_latents, open_images
from echoless.data.resizing import Fit, Framing
from echoless.evaluation.dense import raw_patches
from echoless.evaluation.embed import _work_folder
from echoless.evaluation.encoder import Encoder, raw_pixels
from echoless.evaluation.extract import FeatureSet, View, _folder
from echoless.evaluation.frozen import load
from echoless.evaluation.noisy import from_denoiser
from echoless.evaluation.outcome_cache import _name
from echoless.evaluation.reference import reference_moments
from echoless.evaluation.table_columns import Columns
from echoless.evaluation.table_files import TableTarget
from echoless.evaluation.trained_denoiser import TrainedDenoiser
from echoless.models import UViT
from echoless.runs.autoencoder import LatentMoments
from echoless.runs.open import TrainedBody, load_body

VIEW = View("block05/+mlp")


@pytest.fixture(scope="module")
def images() -> Images:
    return open_images("shapes:20")


def changed(images: Images, **fields) -> Images:
    other = replace(images, **{name: value for name, value in fields.items() if name != "excluded"})
    if "excluded" in fields:
        other.excluded = frozenset(fields["excluded"])
    return other


OTHER_IMAGES = {
    "other images": lambda images: changed(images, fingerprint="other"),
    "an image left out": lambda images: changed(images, excluded=[3]),
}
REDUCED = {"images that were made smaller": lambda images: changed(images, reduction=Fit("cover", (16, 16)))}
OTHER_FRAMING = Framing(share=1.0, kind="stretch", filter="bilinear", every=True)
OTHER_VIEWS = {"another layer": View("block04/+mlp"), "another pooling": View(VIEW.layer, "cls")}


@pytest.fixture(scope="module")
def encoder(run) -> Encoder:
    return load(run)


def test_features(encoder, images, tmp_path):
    def key(encoder=encoder, images=images, view=VIEW) -> Path:
        return _folder(tmp_path, encoder, images, view)

    assert key() == key()
    assert key(encoder=replace(encoder, fingerprint="other")) != key()
    assert key(encoder=replace(encoder, framing=OTHER_FRAMING)) != key()
    for name, change in {**OTHER_IMAGES, **REDUCED}.items():
        assert key(images=change(images)) != key(), name
    for name, view in OTHER_VIEWS.items():
        assert key(view=view) != key(), name


def test_outcomes(tmp_path):
    features = FeatureSet(VIEW, np.zeros((20, 4), np.float32), torch.arange(20), torch.arange(20) % 2, tmp_path)

    def key(settings=("knn", 20), **fields) -> str:
        return _name([replace(features, **fields)], settings)

    others = [key(("linear",)), key(home=tmp_path / "other"), key(labels_N=torch.arange(20) % 4)]
    others += [key(groups_N=torch.arange(20) // 2), key(groups_N=torch.arange(20) // 4)]
    assert len({key(), *others}) == 6 and key() == key()


def test_parts_of_an_embedding(encoder, images, tmp_path):
    def key(encoder=encoder, images=images, view=VIEW, size=10**9, **columns) -> Path:
        return _work_folder(
            encoder, images, TableTarget(tmp_path / "f.parquet", part_bytes=size), Columns((view,), **columns)
        )

    assert key() == key() and key(half=True) != key() and key(size=10**6) != key()
    assert key(root=tmp_path) != key() and key(chart="pca") != key()
    assert key(encoder=replace(encoder, fingerprint="other")) != key()
    assert key(encoder=replace(encoder, framing=OTHER_FRAMING)) != key()
    for name, change in {**OTHER_IMAGES, **REDUCED}.items():
        assert key(images=change(images)) != key(), name
    assert key(images=changed(images, labels=images.labels.flip(0))) != key()
    assert key(images=changed(images, class_names=tuple(reversed(images.class_names)))) != key()
    for name, view in OTHER_VIEWS.items():
        assert key(view=view) != key(), name


BODY_CHANGES: dict[str, Callable[[TrainedBody], TrainedBody]] = {
    "mean": lambda body: replace(body, mean=(0.1, 0.2, 0.3)),
    "std": lambda body: replace(body, std=(0.1, 0.2, 0.3)),
    "config": lambda body: replace(body, config=replace(body.config, norm_eps=1e-5)),
}


@pytest.mark.parametrize("name", BODY_CHANGES)
def test_an_encoder_with_other_settings_is_another_one(run, name):
    body = load_body(run)
    assert load_body(run).fingerprint == body.fingerprint != BODY_CHANGES[name](body).fingerprint


def test_an_encoder_with_one_other_weight_is_another_one(run):
    body, other = load_body(run), load_body(run)
    with torch.no_grad():
        next(iter(other.model.parameters())).view(-1)[0] += 1e-3
    assert body.fingerprint != other.fingerprint


def test_an_encoder_with_other_alphas_is_another_one(run, monkeypatch):
    """Also where the same config comes to other alphas, as "auto" may in another version."""
    body, other = load_body(run), load_body(run)
    record = {**other.model.shortcut_record, "alphas": [0.5]}
    monkeypatch.setattr(type(other.model), "shortcut_record", record)
    with_other_alphas = other.fingerprint
    monkeypatch.undo()
    assert body.fingerprint != with_other_alphas


@pytest.mark.parametrize("baseline", [raw_pixels, raw_patches])
def test_pixels_are_named_by_size_and_by_how_they_are_normalised(encoder, baseline):
    plain = baseline(encoder).fingerprint
    assert baseline(encoder).fingerprint == plain
    changes = [{"mean": (0.1,) * 3}, {"std": (0.1,) * 3}, {"channels": 1}]
    changes += [{"image_size": (64, 64), "grid": tuple(2 * side for side in encoder.grid)}]
    for fields in changes:
        assert baseline(replace(encoder, **fields)).fingerprint != plain, fields
    assert raw_pixels(encoder).fingerprint != raw_patches(encoder).fingerprint
    assert baseline(replace(encoder, framing=OTHER_FRAMING)).framing == OTHER_FRAMING


def test_a_diffusion_model_is_named_by_its_space_its_objective_its_noise_and_its_weights():
    sizes = {"image_size": (16, 16), "patch_size": 8, "channels": 3, "width": 16, "heads": 2, "depth": 2}
    model, vae = UViT(UViTConfig(**sizes), torch.Generator().manual_seed(0)), LatentConfig(fingerprint="vae")
    half = (0.5,) * 3
    denoiser = TrainedDenoiser(
        name="run", model=model, config=DiffusionConfig(), mean=half, std=half, latent=None, vae=None
    )

    def key(noise: float = 0.1, seed: int = 0, **fields) -> str:
        return from_denoiser(replace(denoiser, **fields), noise=noise, seed=seed).fingerprint

    names = [
        key(),
        key(noise=0.2),
        key(seed=1),
        key(mean=(0.4,) * 3),
        key(std=(0.4,) * 3),
        key(config=DiffusionConfig(schedule="ddpm")),
        key(latent=vae),
        key(latent=replace(vae, fingerprint="another autoencoder")),
        key(model=UViT(UViTConfig(**sizes), torch.Generator().manual_seed(1))),
    ]
    assert len(set(names)) == len(names) and key() == names[0]


def test_reference_statistics(encoder, images, monkeypatch, tmp_path):
    monkeypatch.setenv("ECHOLESS_CACHE", str(tmp_path))
    computed = []

    def features():
        computed.append(1)
        return type("Set", (), {"features_ND": np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)})

    def ask(encoder=encoder, images=images, view=VIEW) -> int:
        computed.clear()
        reference_moments(encoder, images, view, features)
        return len(computed)

    assert ask() == 1 and ask() == 0
    assert ask(encoder=replace(encoder, fingerprint="other")) == 1
    assert ask(encoder=replace(encoder, framing=OTHER_FRAMING)) == 1
    for name, change in {**OTHER_IMAGES, **REDUCED}.items():
        assert ask(images=change(images)) == 1, name
    for name, view in OTHER_VIEWS.items():
        assert ask(view=view) == 1, name
    assert ask() == 0
    for file in tmp_path.glob("references/*/*.safetensors"):  # zeroed by a faulty disk behind a right header
        data = file.read_bytes()
        file.write_bytes(data[:-64] + bytes(64))
    assert ask() == 1 and ask() == 0


def test_latents(images, tmp_path):
    encoded = []

    def encode(images_BCHW):
        encoded.append(1)
        mean = images_BCHW.mean(dim=1, keepdim=True)[:, :, :4, :4]
        return LatentMoments(mean, torch.zeros_like(mean))

    def ask(images=images, **fields) -> bool:
        encoded.clear()
        config = replace(LatentConfig(fingerprint="vae", image_size=(32, 32)), **fields)
        cached_latents(tmp_path, images, config, (1, 4, 4), encode)
        return bool(encoded)

    assert ask() and not ask()
    assert ask(fingerprint="another autoencoder") and ask(image_size=(16, 16))
    for name, change in OTHER_IMAGES.items():
        assert ask(images=change(images)), name
    assert not ask()
