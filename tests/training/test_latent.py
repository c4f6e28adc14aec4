"""Training on latents: diffusers' own autoencoder, saved and loaded the real way; moments cached once, by all processes
together, and trusted only by their hash; noise that is fresh every epoch and the same after a resume; and no other
autoencoder, ever.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import diffusers
import numpy as np
import pytest
import torch
from PIL import Image

from echoless.config.training import LatentConfig
from echoless.data import LatentLoader, cached_latents, open_images
from echoless.errors import ConfigError, DataError, RunError
from echoless.evaluation.frozen import load
from echoless.randomness import generator_for
from echoless.runs.autoencoder import open_vae
from echoless.runs.open import load_body
from echoless.runtime import Share
from echoless.verbs.embed import embed
from echoless.verbs.evaluate import evaluate
from echoless.verbs.pretrain import pretrain
from echoless.verbs.sample import sample

QUICK = {"recipe": "sit-tiny", "batch_size": 4, "workers": 0, "width": 64, "depth": 2, "compile": False, "log_every": 1}


def autoencoder(folder: Path, seed: int = 0) -> Path:
    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    with torch.random.fork_rng():  # diffusers initialises from the global generator
        torch.manual_seed(seed)
        network = diffusers.AutoencoderKL(
            **blocks, block_out_channels=(8, 8), latent_channels=4, norm_num_groups=4, layers_per_block=1
        )
    network.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def vae(tmp_path_factory) -> Path:
    return autoencoder(tmp_path_factory.mktemp("vae") / "kl")


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("ECHOLESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def latents(vae, cache):
    images, opened = open_images("shapes:12"), open_vae(vae)
    config = LatentConfig(path=str(vae), fingerprint=opened.fingerprint, image_size=(32, 32), scale=opened.scale)
    return images, lambda encode: cached_latents(cache, images, config, (4, 16, 16), encode), opened


def test_the_moments_are_those_that_diffusers_gives(vae, latents):
    images, cached, opened = latents
    store = cached(opened.encode)
    pixels = torch.from_numpy(np.stack([images.get([i]).pixels[0] for i in range(12)])).float() / 127.5 - 1
    theirs = diffusers.AutoencoderKL.from_pretrained(vae, low_cpu_mem_usage=False).eval()
    with torch.no_grad():
        plain, mirrored = (theirs.encode(shown).latent_dist for shown in (pixels, pixels.flip(-1)))
    for face, expected in enumerate((plain.mean, plain.std, mirrored.mean, mirrored.std)):
        torch.testing.assert_close(
            torch.from_numpy(store.moments_NFCHW[np.arange(12)][:, face].copy()), expected, atol=1e-4, rtol=1e-4
        )
    zeros, ids = torch.zeros(12, 4, 16, 16), torch.arange(12)
    scaled = plain.mean * theirs.config.scaling_factor
    torch.testing.assert_close(store.draw(ids, torch.zeros(12), zeros), scaled, atol=1e-4, rtol=1e-4)


def test_an_autoencoder_without_a_gaussian_has_latents_without_spread(tmp_path):
    channels = {"encoder_block_out_channels": (8, 8), "decoder_block_out_channels": (8, 8)}
    depth = {"num_encoder_blocks": (1, 1), "num_decoder_blocks": (1, 1)}
    theirs = diffusers.AutoencoderTiny(**channels, **depth, latent_channels=4).eval()
    theirs.save_pretrained(tmp_path / "tiny")
    images = torch.rand(2, 3, 16, 16) * 2 - 1
    mean, std = open_vae(tmp_path / "tiny").encode(images)
    with torch.no_grad():
        torch.testing.assert_close(mean, theirs.encode(images).latents, atol=1e-5, rtol=1e-5)
    assert not std.any() and std.shape == mean.shape


def test_moments_are_made_once_and_made_again_where_a_bit_is_wrong(latents, cache):
    _, cached, opened = latents
    calls = []

    def encode(images):
        calls.append(len(images))
        return opened.encode(images)

    first = cached(encode).moments_NFCHW[np.arange(12)]
    made = len(calls)
    assert np.array_equal(cached(encode).moments_NFCHW[np.arange(12)], first) and len(calls) == made
    (file,) = cache.glob("latents-*/00000.bin")
    broken = bytearray(file.read_bytes())
    broken[100] ^= 1
    file.write_bytes(broken)
    assert np.array_equal(cached(encode).moments_NFCHW[np.arange(12)], first) and len(calls) == 2 * made


def test_a_death_while_encoding_leaves_nothing_that_is_taken_for_whole(latents, cache):
    _, cached, opened = latents

    def dies(images):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached(dies)
    assert not [path for path in cache.glob("latents-*/*") if path.suffix != ".lock"]
    assert cached(opened.encode).moments_NFCHW.shape == (12, 4, 4, 16, 16)


def test_noise_is_fresh_every_epoch_and_the_same_for_a_step_in_any_world(latents):
    images, cached, opened = latents
    store = cached(opened.encode)
    settings = {"batch_size": 12, "seed": 0, "flip": 0.0, "workers": 0}
    one, two = (LatentLoader(images, store, **settings).batch(step) for step in (0, 1))
    assert not torch.equal(one.images_BCHW[one.ids_B.argsort()], two.images_BCHW[two.ids_B.argsort()])
    halves = [LatentLoader(images, store, **settings, rank=rank, world=2).batch(0) for rank in (0, 1)]
    together = torch.cat([half.images_BCHW for half in halves])
    places = torch.cat([half.places_B for half in halves])
    assert torch.equal(together[places.argsort()], one.images_BCHW)


def test_a_run_on_latents_resumes_bitwise_and_its_samples_are_decoded(vae, cache, tmp_path):
    options = QUICK | {"latent": str(vae), "checkpoint_every": 2}
    assert pretrain("shapes:16", out=tmp_path / "whole", max_steps=4, **options)
    config = json.loads((tmp_path / "whole" / "config.json").read_text())
    assert config["data"]["latent"]["scale"] == pytest.approx(0.18215)
    assert (config["model"]["channels"], config["model"]["image_size"]) == (4, [16, 16])

    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    shutil.rmtree(tmp_path / "cut" / "checkpoints" / "step-00000004")
    assert pretrain("shapes:16", out=tmp_path / "cut", max_steps=4, resume=True, **options)
    last = "checkpoints/step-00000004/model.safetensors"
    assert (tmp_path / "whole" / last).read_bytes() == (tmp_path / "cut" / last).read_bytes()

    sample(tmp_path / "whole", out=tmp_path / "samples", n=2, steps=2)
    with np.load(tmp_path / "samples" / "samples.npz") as archive:
        assert archive["arr_0"].shape == (2, 32, 32, 3)

    other = autoencoder(tmp_path / "other", seed=1)
    with pytest.raises(ConfigError, match=r"differs from the one .* was trained with"):
        sample(tmp_path / "whole", out=tmp_path / "more", latent=str(other))
    with pytest.raises(RunError, match=r"data.latent.fingerprint was .* --resume needs the same latents"):
        pretrain("shapes:16", out=tmp_path / "cut", max_steps=6, resume=True, **options | {"latent": str(other)})


def test_the_features_of_a_run_on_latents_are_those_of_the_noised_latent(vae, cache, tmp_path):
    """Against diffusers' own encoding: (mean - shift) * scale, mixed with noise as a linear interpolant does it."""
    pretrain("shapes:16", out=tmp_path / "run", max_steps=1, latent=str(vae), **QUICK)
    found = load(tmp_path / "run", noise=0.25)
    assert (found.image_size, found.channels, found.grid) == ((32, 32), 3, (4, 4))
    images, layer = torch.rand(2, 3, 32, 32) * 2 - 1, "block01/+mlp"
    theirs = diffusers.AutoencoderKL.from_pretrained(vae, low_cpu_mem_usage=False).eval()
    with torch.no_grad():
        latents = theirs.encode(images).latent_dist.mean * 0.18215
    noise = torch.stack([torch.randn(4, 16, 16, generator=generator_for(0, "noise", i)) for i in (3, 5)])
    network = load_body(tmp_path / "run").model
    expected = network.features(0.75 * latents + 0.25 * noise, torch.full((2,), 0.75))[layer]
    torch.testing.assert_close(found.tokens_of(images, [layer], torch.tensor([3, 5]))[layer], expected)


def test_a_run_on_latents_is_evaluated_and_its_autoencoder_may_move(vae, cache, tmp_path):
    moved, run = tmp_path / "moved", tmp_path / "run"
    shutil.copytree(vae, tmp_path / "kl")
    pretrain("shapes:16", out=run, max_steps=1, latent=str(tmp_path / "kl"), **QUICK)
    asked = {"train": "shapes:40", "test": "shapes:20@test", "metrics": ("knn",), "noise": (0.1,), "layers": ("last",)}
    names = [metric.protocol["features"] for metric in evaluate(run, **asked)]
    assert names[-3:] == ["trained", "raw pixels", "untrained"]
    (tmp_path / "kl").rename(moved)
    with pytest.raises(ConfigError, match=r"the autoencoder .* does not exist; give its folder by --latent"):
        evaluate(run, **asked)
    assert embed(run, "shapes:10", out=tmp_path / "features.parquet", latent=str(moved)) == 10


def test_grey_images_are_shown_to_an_autoencoder_in_colour(vae, cache, tmp_path):
    grey = tmp_path / "grey"
    grey.mkdir()
    for index in range(8):
        Image.fromarray(np.full((32, 32), 30 * index, np.uint8)).save(grey / f"{index}.png")
    pretrain(grey, out=tmp_path / "run", max_steps=1, latent=str(vae), **QUICK)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["data"]["channels"] == 3
    assert embed(tmp_path / "run", grey, out=tmp_path / "features.parquet") == 8
    with pytest.raises(ConfigError, match="channels is 1; allowed: 3, as --latent takes"):
        pretrain(grey, out=tmp_path / "other", max_steps=1, latent=str(vae), channels=1, **QUICK)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"latent": "nowhere"}, "latent is 'nowhere'; allowed: a folder that holds an AutoencoderKL"),
        ({"recipe": "mae-tiny"}, "latent is not an option of recipe mae-tiny"),
        ({"image_size": (31,)}, "image_size is .*; allowed: multiples of"),
    ],
)
def test_what_cannot_be_is_refused(options, sentence, vae, cache, tmp_path):
    given = {"recipe": "sit-tiny", "latent": str(vae), "batch_size": 4, "max_steps": 1} | options
    with pytest.raises(ConfigError, match=sentence):
        pretrain("shapes:16", out=tmp_path / "run", **given)


def drawn(images_BCHW):
    """Moments that are quick to compute: crops of the image itself."""
    mean = images_BCHW[:, :1, :4, :4]
    return mean, mean.abs()


def cached(root: Path, images, encode=drawn, precision: str = "fp32", **shared):
    config = LatentConfig(fingerprint="quick", image_size=(32, 32), precision=precision)
    return cached_latents(root, images, config, (1, 4, 4), encode, **shared)


def test_a_run_that_was_stopped_while_encoding_continues_with_the_images_that_are_missing(cache):
    images, seen = open_images("shapes:600"), []

    def dies_in_the_second_part(batch):
        seen.append(len(batch))
        if sum(seen) > 2 * 300:  # every image is encoded twice, once mirrored
            raise KeyboardInterrupt
        return drawn(batch)

    with pytest.raises(KeyboardInterrupt):
        cached(cache, images, dies_in_the_second_part)
    seen.clear()
    again = cached(cache, images, lambda batch: (seen.append(len(batch)), drawn(batch))[1])
    assert sum(seen) == 2 * (600 - 256), "the first part is not encoded again"
    whole = cached(cache / "other", images)
    ids = np.random.default_rng(0).permutation(600)
    assert np.array_equal(again.moments_NFCHW[ids], whole.moments_NFCHW[ids])


def test_two_processes_share_the_images_and_get_the_same_latents(cache):
    images = open_images("shapes:600")
    log = cache / "log"

    def noted(batch):
        with log.open("a") as file:
            file.write(f"{os.getpid()} {len(batch)}\n")
        time.sleep(0.01)
        return drawn(batch)

    child = os.fork()
    if child == 0:
        try:
            cached(cache, images, noted, share=Share(1, 2, "t"))
            os._exit(0)
        except BaseException:
            os._exit(9)
    shared = cached(cache, images, noted, share=Share(0, 2, "t"))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    done = [line.split() for line in log.read_text().splitlines()]
    assert sum(int(count) for _, count in done) == 2 * 600 and len({pid for pid, _ in done}) == 2
    assert np.array_equal(
        shared.moments_NFCHW[np.arange(600)], cached(cache / "one", images).moments_NFCHW[np.arange(600)]
    )


def test_half_precision_halves_the_disk_and_changes_latents_by_a_two_thousandth(cache):
    images, ids = open_images("shapes:12"), np.arange(12)
    full, half = cached(cache, images), cached(cache, images, precision="fp16")
    sizes = sorted(file.stat().st_size for file in cache.glob("latents-*/*.bin"))
    assert sizes == [12 * 4 * 16 * 2, 12 * 4 * 16 * 4]
    assert half.moments_NFCHW[ids].dtype == np.float32
    np.testing.assert_allclose(half.moments_NFCHW[ids], full.moments_NFCHW[ids], rtol=2**-11, atol=1e-7)
    with pytest.raises(DataError, match="latents are too large for fp16"):
        cached(cache / "large", images, lambda batch: (drawn(batch)[0] + 1e6, drawn(batch)[1]), precision="fp16")


def test_bytes_and_hours_are_told_before_the_work_and_a_full_disk_is_refused(cache, monkeypatch):
    images, said = open_images("shapes:600"), []
    cached(cache, images, say=said.append)
    (line,) = said
    assert re.fullmatch(r"latents: 600 images take 0\.00 GB in .* and about .* by this process", line)
    cached(cache, images, say=said.append)
    assert len(said) == 1, "nothing is missing any more"
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=1000))
    with pytest.raises(
        DataError, match=r"600 images need .* GB in .*, but 0\.0 GB are free; .* --latent-precision fp16"
    ):
        cached(cache / "other", images, lambda batch: pytest.fail("no work"))


def test_a_copied_cache_is_hashed_once_and_not_encoded_again(cache):
    images = open_images("shapes:12")
    cached(cache, images)
    shutil.copytree(cache, cache.parent / "copy")
    store = cached(cache.parent / "copy", images, lambda batch: pytest.fail("not encoded again"))
    assert store.moments_NFCHW.shape == (12, 4, 1, 4, 4)


def test_latent_precision_is_recorded_kept_and_not_changed(vae, cache, tmp_path):
    options = QUICK | {"latent": str(vae)}
    assert pretrain("shapes:16", out=tmp_path / "run", max_steps=1, latent_precision="fp16", **options)
    assert json.loads((tmp_path / "run/config.json").read_text())["data"]["latent"]["precision"] == "fp16"
    assert pretrain("shapes:16", out=tmp_path / "run", max_steps=2, resume=True)
    with pytest.raises(RunError, match=r"data.latent.precision was 'fp16' and is 'fp32'; --resume needs the same"):
        pretrain("shapes:16", out=tmp_path / "run", max_steps=3, resume=True, latent_precision="fp32")
    with pytest.raises(ConfigError, match="latent_precision is 'fp16', but there are no latents without --latent"):
        pretrain("shapes:16", out=tmp_path / "no", latent_precision="fp16", recipe="sit-tiny", max_steps=1)
