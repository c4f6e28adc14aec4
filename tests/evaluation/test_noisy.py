"""A diffusion model is an encoder at a level of noise: deterministic, the same in every batch, best cell by folds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from echoless.config import DiffusionConfig, FlowConfig, ShortcutConfig, SiTConfig, UViTConfig, to_dict
from echoless.config.metrics import interval_text, number
from echoless.config.options import EvaluateOptions
from echoless.data import evaluation_batches, open_images
from echoless.errors import ConfigError
from echoless.evaluation.dense import raw_patches
from echoless.evaluation.extract import View, extract, noise_offset
from echoless.evaluation.frozen import load
from echoless.models import SiT, UViT
from echoless.randomness import generator_for
from echoless.runs import load_weights, save_weights
from echoless.verbs.evaluate import evaluate

SMALL = {"image_size": (16, 16), "patch_size": 4, "channels": 3, "width": 32, "heads": 4, "classes": 10}
HALF = [0.5] * 3


def written(folder: Path, model: UViT | SiT, objective: DiffusionConfig | FlowConfig) -> Path:
    """A network that knows something: its weights are random, but none is zero."""
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        start = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        torch.nn.init.normal_(parameter, start, 0.1, generator=generator)
    config = {"kind": model.config.kind, "model": to_dict(model.config), "objective": to_dict(objective)}
    save_weights(folder, model.state_dict(), {**config, "mean": HALF, "std": HALF}, model.shortcut_record)
    return folder


@pytest.fixture(scope="module")
def uvit(tmp_path_factory) -> Path:
    config = UViTConfig(**SMALL, depth=4, shortcuts=ShortcutConfig(alpha_min=0.7))
    return written(tmp_path_factory.mktemp("uvit") / "encoder", UViT(config), DiffusionConfig()).parent


def test_the_features_are_those_of_the_network_on_the_noised_image(uvit):
    """Against the forward of the VP diffusion written out: x = a image + s noise, the network's time is 999 t."""
    encoder = load(uvit, noise=0.3)
    assert encoder.default_layer == "block02/+mlp" and encoder.noise == 0.3 and not encoder.has_class_token
    image, index = torch.rand(1, 3, 16, 16), 7
    noise = torch.randn(3, 16, 16, generator=generator_for(0, "noise", index))
    log_a = -0.25 * 0.3**2 * (20 - 0.1) - 0.5 * 0.3 * 0.1
    noisy = np.exp(log_a) * image + np.sqrt(1 - np.exp(2 * log_a)) * noise
    assert load(uvit).fingerprint != encoder.fingerprint, "the level decides the features"
    network = UViT(UViTConfig(**SMALL, depth=4, shortcuts=ShortcutConfig(alpha_min=0.7)))
    network.load_state_dict(load_weights(uvit / "encoder").tensors)
    expected = network.features(noisy.float(), torch.tensor([299.7]))["block03/+mlp"][:, 2:]
    found = encoder.tokens_of(image, ["block03/+mlp"], torch.tensor([index]))["block03/+mlp"]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_the_noise_belongs_to_the_image_not_to_the_batch(uvit):
    encoder, images = load(uvit, noise=0.5), open_images("shapes:70", cache="off")
    view = View("block02/+mlp")
    whole = extract(encoder, images, [view], cache=None)[view].features_ND
    again = extract(encoder, images, [view], cache=None)[view].features_ND
    assert np.array_equal(whole, again)
    alone = evaluation_batches(images, size=(16, 16), batch_size=1, mean=HALF, std=HALF, ids=[69])
    picture = next(iter(alone)).images_BCHW
    key = 69 + noise_offset(images)
    alone = encoder.tokens_of(picture, [view.layer], torch.tensor([key]))[view.layer].mean(1)
    np.testing.assert_allclose(whole[69], alone[0], rtol=1e-4, atol=1e-4)
    other = encoder.tokens_of(picture, [view.layer], torch.tensor([key - 1]))[view.layer].mean(1)
    assert not np.allclose(whole[69], other[0])


def test_two_sets_share_no_noise(uvit):
    """Else the test images of a set in the same order of classes would be told by their noise."""
    train, test = (open_images(name, cache="off") for name in ("shapes:40", "shapes:40@test"))
    offsets = [noise_offset(images) for images in (train, test)]
    assert abs(offsets[0] - offsets[1]) > 2**27


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_both_ends_of_both_paths_are_finite(level, tmp_path):
    config = SiTConfig(**SMALL, depth=2)
    for name, objective in {"flow": FlowConfig(), "diffusion": DiffusionConfig(schedule="ddpm")}.items():
        folder = written(tmp_path / name, SiT(config), objective)
        tokens = load(folder, noise=level).tokens(torch.rand(2, 3, 16, 16), ["block01/+mlp"])
        assert tokens["block01/+mlp"].isfinite().all()


def test_noise_is_refused_where_it_means_nothing(uvit, run):
    with pytest.raises(ConfigError, match=r"noise is 0.1, but .* is (no|not a) diffusion model"):
        load(run, noise=0.1)
    with pytest.raises(ConfigError, match=r"noise is 1.5; allowed: a number in \[0, 1\]"):
        load(uvit, noise=1.5)
    with pytest.raises(ConfigError, match=r"noise is 0\.1, but"):
        evaluate(run, train="shapes:50", noise=(0.1,))


def test_the_best_cell_is_chosen_by_folds_and_judged_once_on_the_test_set(uvit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    wanted = {"test": "shapes:60@test", "noise": (0.05, 0.4), "k": (5,), "baselines": False}
    metrics = evaluate.run(EvaluateOptions(uvit, train="shapes:120", **wanted), said.append)
    cells = [m for m in metrics if m.protocol.get("scan") == "grid" and m.metric == "linear"]
    assert len(cells) == 5 * 2 and all(m.protocol["folds"] == 5 for m in cells)
    best = max(cells, key=lambda m: m.value)
    judged = [m for m in metrics if m.protocol.get("cell")]
    assert {m.metric for m in judged} >= {"knn", "linear", "rankme"}
    for metric in judged:
        assert (metric.protocol["layer"], metric.protocol["noise"]) == (best.protocol["layer"], best.protocol["noise"])
        assert metric.n == 60 and metric.protocol["cell"] == "best of 10 by linear in folds of train"
    assert {m.protocol["layer"] for m in metrics if m.metric == "rankme" and "scan" in m.protocol} == {
        f"block{i:02d}/+mlp" for i in range(5)
    }
    best_line = "best by linear, five-fold cross-validation on the training set: block"
    (told,) = [line for line in said if line.startswith(best_line)]
    assert f"({number(best)}{interval_text(best)}, the highest of 10 on the same images)" in told
    with Image.open(tmp_path / "echoless-figures" / "grid.png") as picture:
        assert picture.width > 600 and picture.height > 300


def test_one_cell_needs_no_search_and_every_number_says_where_it_looked(uvit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = {"train": "shapes:80", "metrics": ("knn", "rank"), "k": (5,)}
    metrics = evaluate(uvit, layers=("block01/+mlp",), noise=(0.2,), **arguments)
    assert {m.protocol["features"] for m in metrics if m.protocol.get("cell") == "given"} == {"trained", "untrained"}
    named = [m for m in metrics if m.protocol["features"] != "raw pixels"]
    assert named and all((m.protocol["layer"], m.protocol["noise"]) == ("block01/+mlp", 0.2) for m in named)
    assert {m.protocol["features"] for m in metrics} == {"trained", "raw pixels", "untrained"}
    assert not (tmp_path / "echoless-figures").exists()


def test_raw_patches_of_a_diffusion_model_are_pixels_without_noise(uvit):
    """Dense measurements compare with them; they have no layer but their own, and none of the network's noise."""
    encoder, batch = load(uvit, noise=0.5), torch.rand(2, 3, 16, 16)
    raw = raw_patches(encoder)
    assert raw.default_layer == "output" and raw.noise is None and raw.grid == encoder.grid
    found = raw.tokens_of(batch, ["output"], torch.tensor([3, 4]))["output"]
    assert found.shape == (2, 16, 48) and found[0, 0].sort().values.equal(batch[0, :, :4, :4].flatten().sort().values)
