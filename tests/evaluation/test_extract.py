"""R20: features and everything computed from them have the same digits for any batch size and from the cache."""

from __future__ import annotations

import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from echoless.data import open_images
from echoless.errors import ConfigError, DataError, RunError
from echoless.evaluation import augmented
from echoless.evaluation import encoder as module
from echoless.evaluation.context import FeatureSource
from echoless.evaluation.encoder import from_function, raw_pixels
from echoless.evaluation.extract import CHUNK, View, chunks, extract
from echoless.evaluation.frozen import load
from echoless.models import fresh, pool
from echoless.randomness import generator_for
from echoless.runs.open import load_body

LAST = View("block05/+mlp")


def test_features_are_the_models_own(run):
    encoder, images = load(run), open_images("shapes:100@test")
    features = extract(encoder, images, [LAST], cache=None)[LAST]
    from echoless.data import evaluation_batches

    batch = next(
        evaluation_batches(images, size=(32, 32), batch_size=CHUNK, mean=encoder.mean, std=encoder.std, workers=0)
    )
    tokens = encoder.tokens(batch.images_BCHW, [LAST.layer])[LAST.layer]
    np.testing.assert_array_equal(features.features_ND[:CHUNK], tokens.mean(dim=1).numpy())
    assert torch.equal(features.ids_N, torch.arange(100)) and features.labels_N is not None


def test_the_untrained_encoder_is_the_network_at_its_start_with_its_keys(run):
    """Its branches are zero and are not computed, but the keys of its attention are, where they are asked for."""
    encoder = load(run)
    start = fresh(load_body(run).config, generator_for(0, "init", 0))
    images_BCHW = torch.randn(2, 3, *encoder.image_size, generator=torch.Generator().manual_seed(0))
    for layers in (["embed", "block03/mlp", "block05/+mlp"], ["block05/key", "block05/+mlp"], None):
        expected, found = start.features(images_BCHW, layers), encoder.untrained().tokens(images_BCHW, layers)
        assert list(expected) == list(found)
        assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_where_a_chunk_starts_does_not_change_its_digits(run):
    """What another process, or a resumed one, computes is bitwise what one process computes."""
    encoder, images = load(run), open_images("shapes:200@test")
    whole = {chunk.number: chunk.features[LAST] for chunk in chunks(encoder, images, [LAST])}
    apart = {i: next(chunks(encoder, images, [LAST], numbers=[i])).features[LAST] for i in range(4)}
    backwards = {c.number: c.features[LAST] for c in chunks(encoder, images, [LAST], numbers=[3, 1], workers=0)}
    assert list(whole) == list(apart) and all(torch.equal(whole[i], apart[i]) for i in whole)
    assert list(backwards) == [3, 1] and all(torch.equal(whole[i], backwards[i]) for i in backwards)
    print("R20 features: 4 processes against 1, bitwise equal")


def test_the_same_image_has_the_same_digits_whatever_follows_it(run):
    encoder = load(run)
    few = extract(encoder, open_images("shapes:70@test"), [LAST], cache=None)[LAST]
    many = extract(encoder, open_images("shapes:200@test"), [LAST], cache=None)[LAST]
    np.testing.assert_array_equal(few.features_ND, many.features_ND[:70])


def test_the_number_of_threads_does_not_change_a_digit(run, monkeypatch):
    """Images are computed a few at a time, each few on one thread; here 4 at a time, on one thread and on two."""
    monkeypatch.setattr(module, "MOST_AT_ONCE", 4 * 17 * 64)
    encoder, images = load(run), open_images("shapes:70@test")
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            found.append(extract(encoder, images, [LAST], cache=None)[LAST].features_ND)
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_array_equal(*found)


def test_the_cache_gives_back_what_was_computed_and_computes_only_what_is_missing(run, tmp_path):
    encoder, images = load(run), open_images("shapes:100@test")
    first = extract(encoder, images, [LAST], cache=tmp_path)[LAST]
    calls = []

    def counting(images_BCHW, layers):
        calls.append(list(layers))
        return encoder.tokens(images_BCHW, layers)

    from dataclasses import replace

    counted = replace(encoder, tokens=counting)
    other = View("block02/+mlp", "cls")
    again = extract(counted, images, [LAST, other], cache=tmp_path)
    np.testing.assert_array_equal(again[LAST].features_ND, first.features_ND)
    assert all(layers == [other.layer] for layers in calls) and calls
    assert isinstance(again[LAST].features_ND, np.memmap), "cached features are mapped, not read"
    calls.clear()
    extract(counted, images, [LAST, other], cache=tmp_path)
    assert not calls


def test_pooling_says_what_it_pools():
    tokens, none = torch.arange(24.0).view(1, 4, 6), {"extra_tokens": 0, "class_token": False}
    assert torch.equal(pool(tokens, "mean"), tokens.mean(1))
    assert torch.equal(pool(tokens, "cls"), tokens[:, 0])
    assert torch.equal(pool(tokens, "patch_mean"), tokens[:, 1:].mean(1))
    assert torch.equal(pool(tokens, "patch_mean", **none), tokens.mean(1))
    with pytest.raises(ConfigError, match="pooling is 'cls', but this encoder has no class token"):
        pool(tokens, "cls", **none)
    with pytest.raises(ConfigError, match="pooling is 'max'; allowed: mean, cls, patch_mean"):
        pool(tokens, "max")


def test_any_function_of_images_is_an_encoder():
    encoder = from_function(lambda images: images.flatten(1)[:, :7], image_size=(32, 32), channels=3)
    features = extract(encoder, open_images("shapes:10"), [View("output")], cache=None)[View("output")]
    assert features.features_ND.shape == (10, 7)


def test_raw_pixels_are_the_pixels(run):
    encoder, images = raw_pixels(load(run)), open_images("shapes:5@test")
    features = extract(encoder, images, [View("output")], cache=None)[View("output")].features_ND
    pixels = images.get(list(range(5))).pixels / 255
    normal = (pixels - np.array(encoder.mean)[:, None, None]) / np.array(encoder.std)[:, None, None]
    halved = normal.reshape(5, 3, 16, 2, 16, 2).mean(axis=(3, 5))
    np.testing.assert_allclose(features, halved.reshape(5, -1), atol=1e-5)


def test_bad_input_is_refused_in_one_sentence(run, tmp_path):
    images = open_images("shapes:10")
    with pytest.raises(ConfigError, match="layer is 'block99/\\+mlp'; allowed: block00"):
        extract(load(run), images, [View("block99/+mlp")], cache=None)
    grey = from_function(lambda x: x.flatten(1), image_size=(32, 32), channels=1, name="grey")
    with pytest.raises(DataError, match=r"the images have 3 channels; allowed: 1, as grey needs"):
        extract(grey, images, [View("output")], cache=None)
    with pytest.raises(RunError, match="does not exist; allowed: a run"):
        load(tmp_path / "nowhere")
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with pytest.raises(RunError, match="has neither an encoder nor a checkpoint yet; allowed: a run"):
        load(tmp_path / "run")
    with pytest.raises(RunError, match="holds no trained model; allowed: a run, a checkpoint"):
        (tmp_path / "empty").mkdir()
        load(tmp_path / "empty")


def test_a_transformers_folder_is_an_encoder_with_transformers_own_features(tmp_path):
    from transformers import ViTConfig, ViTModel

    model = ViTModel(
        ViTConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            image_size=32,
            patch_size=8,
        )
    ).eval()
    model.save_pretrained(tmp_path / "vit")
    encoder, images = load(tmp_path / "vit"), open_images("shapes:9")
    view = View("hidden02", "cls")
    ours = extract(encoder, images, [view], cache=None)[view].features_ND
    pixels = torch.from_numpy(images.get(list(range(9))).pixels).float() / 255
    normal = (pixels - torch.tensor(encoder.mean)[:, None, None]) / torch.tensor(encoder.std)[:, None, None]
    with torch.no_grad():
        theirs = model(normal, output_hidden_states=True).hidden_states[2][:, 0]
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-4, atol=1e-5)


def test_a_transformers_masked_autoencoder_does_not_mask_here(tmp_path):
    from transformers import ViTMAEConfig, ViTMAEModel

    config = ViTMAEConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32, patch_size=8
    )
    ViTMAEModel(config).save_pretrained(tmp_path / "mae")
    encoder, images = load(tmp_path / "mae"), open_images("shapes:5")
    once, twice = (next(chunks(encoder, images, [View("norm")])).features for _ in range(2))
    assert torch.equal(once[View("norm")], twice[View("norm")])
    tokens = encoder.tokens(torch.zeros(1, 3, 32, 32), ["norm"])["norm"]
    assert tokens.shape == (1, 17, 32), "16 patches and the class token: none is hidden"


@pytest.mark.parametrize("damage", ["zeroed", "truncated", "one bit", "without seals"])
def test_damaged_features_in_the_cache_are_computed_again(run, tmp_path, damage):
    encoder, images = load(run), open_images("shapes:80@test")
    true = extract(encoder, images, [LAST], cache=tmp_path)[LAST].features_ND.copy()
    (folder,) = tmp_path.iterdir()
    file = folder / "features.npy"
    data = bytearray(file.read_bytes())
    if damage == "zeroed":
        data[200:] = bytes(len(data) - 200)
    elif damage == "truncated":
        del data[-100:]
    elif damage == "one bit":
        data[-1] ^= 1
    else:
        (folder / "seals.json").unlink()
    file.write_bytes(data)
    np.testing.assert_array_equal(extract(encoder, images, [LAST], cache=tmp_path)[LAST].features_ND, true)


def test_features_that_are_not_finite_are_refused_with_the_image(run, tmp_path):
    def broken(images_BCHW):
        vectors = images_BCHW.mean(dim=(2, 3))
        vectors[3] = float("nan")
        return vectors

    encoder = from_function(broken, image_size=(32, 32), channels=3)
    with pytest.raises(DataError, match=r"the features of 'shapes/test/00000003' at output are not finite \(1 of 20"):
        extract(encoder, open_images("shapes:20@test"), [View("output")], cache=tmp_path)


def test_what_a_killed_extraction_left_in_the_cache_is_removed_by_the_next(tmp_path):
    encoder = from_function(lambda x: x.flatten(1)[:, :4], image_size=(32, 32), channels=3, fingerprint="named")
    images, view = open_images("shapes:8"), View("output")
    home = extract(encoder, images, [view], cache=tmp_path)[view].home
    shutil.rmtree(home)
    leftover = home.with_name(f"{home.name}.tmp-999999999")
    leftover.mkdir()
    extract(encoder, images, [view], cache=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [home.name]


def test_a_number_of_a_run_that_has_not_ended_names_its_checkpoint_and_one_of_a_complete_run_does_not():
    encoder = from_function(lambda x: x.flatten(1)[:, :4], image_size=(32, 32), channels=3)
    evaluation = SimpleNamespace(view_of=lambda framing: {}, noise_protocol={})
    for step, expected in ((None, {}), (40, {"checkpoint": 40})):
        source = FeatureSource(evaluation, "trained", replace(encoder, checkpoint=step))
        assert source.protocol == {"features": "trained", **expected}


def test_an_epoch_of_the_mae_probe_passes_over_the_training_set_once(monkeypatch):
    """In as many whole batches as it has, and in one where it is smaller than the published batch."""
    images, asked = open_images("shapes:20"), []
    encoder = from_function(lambda x: x.flatten(1)[:, :4], image_size=(32, 32), channels=3, fingerprint="named")
    test = extract(encoder, images, [View("output")], cache=None)[View("output")]
    probe = SimpleNamespace(predict=lambda features: test.labels_N)
    monkeypatch.setattr(augmented, "mae_probe", lambda batches, **settings: asked.append(settings) or probe)
    for largest in (6, 100):
        monkeypatch.setattr(augmented, "LARGEST_BATCH", largest)
        augmented.mae_linear(encoder, images, test, view=View("output"), seed=0, epochs=90)
    assert [(each["batch_size"], each["steps_per_epoch"]) for each in asked] == [(6, 3), (20, 1)]
