"""Grey, RGB and RGBA become one another for every encoder, in `embed`, `evaluate`, `finetune` and probes, as in
`encoder.preprocess`; one line says so, and no cache mixes them.

    pytest tests/verbs/test_channels.py
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import echoless
from echoless.config import ViTConfig, to_dict
from echoless.config.counts import counted
from echoless.data import cache, open_images
from echoless.errors import DataError
from echoless.evaluation.extract import CHUNK
from echoless.models import ViT
from echoless.runs import save_weights

COUNT = 6
TINY = {"recipe": "shapes", "image_size": (16,), "patch_size": 8, "width": 32, "depth": 2, "batch_size": 4}


def levels(channels: int, side: int = 40) -> np.ndarray:
    return np.random.default_rng(channels).integers(0, 256, (COUNT, side, side, channels), dtype=np.uint8)


def folder_of(place: Path, *channels: int) -> Path:
    """PNG files in two folders, their classes; image i has channels[i]."""
    for number, count in enumerate(channels):
        file = place / f"class{number % 2}" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(levels(count)[number % COUNT].squeeze()).save(file)
    return place


def array_of(file: Path, channels: int, *, compressed: bool = False) -> Path:
    images = levels(channels) if channels > 1 else levels(channels)[..., 0]
    (np.savez_compressed if compressed else np.savez)(
        file, images=images, labels=[f"class{n % 2}" for n in range(COUNT)]
    )
    return file


@pytest.fixture(scope="module")
def encoders(tmp_path_factory) -> dict[int, Path]:
    """Encoder folders by their channels, each with a mean of its own."""
    place = tmp_path_factory.mktemp("encoders")
    for channels in (1, 3, 4):
        config = ViTConfig(image_size=(16, 16), patch_size=8, channels=channels, width=16, depth=2, heads=2)
        model = ViT(config, torch.Generator().manual_seed(channels))
        described = {"model": to_dict(config), "mean": [0.1 * channels] * channels, "std": [0.2] * channels}
        save_weights(place / str(channels) / "encoder", model.state_dict(), described, model.shortcut_record)
    return {channels: place / str(channels) for channels in (1, 3, 4)}


def expected_of(encoder: echoless.Encoder, images: list) -> np.ndarray:
    """What the encoder gives of each image alone: in a batch of the size that `embed` computes, digit for digit."""
    prepared = torch.stack([encoder.preprocess(image) for image in images])
    padded = torch.cat([prepared, torch.zeros(CHUNK - len(prepared), *prepared.shape[1:])])
    return encoder(padded)[: len(images)].numpy()


def vectors(table) -> np.ndarray:
    return np.stack(table["feature"].to_numpy(zero_copy_only=False)).astype(np.float32)


MIXED = (1, 1, 1, 1, 1, 1, 3, 3, 3, 3)
CASES = [("files", given, needed) for given in ((1,) * 6, (3,) * 6, (4,) * 6, MIXED) for needed in (1, 3, 4)]
CASES += [("array", given, needed) for given in ((1,), (3,), (4,)) for needed in (1, 3, 4) if given != (needed,)]


@pytest.mark.parametrize(
    ("kind", "given", "needed"), [*CASES, ("compressed", (1,), 3), ("compressed", (4,), 1)], ids=str
)
def test_images_are_seen_as_preprocess_shows_them_and_a_line_says_so(encoders, kind, given, needed, tmp_path, capsys):
    """Ten photographs, of which six are grey, were refused by every encoder of colour."""
    if kind == "files":
        data = folder_of(tmp_path / "data", *given)
        images = sorted(data.rglob("*.png"))
    else:
        data = array_of(tmp_path / "data.npz", *given, compressed=kind == "compressed")
        images = list(levels(*given))
    encoder = echoless.load(encoders[needed])
    expected = expected_of(encoder, images)
    for _ in range(2):  # the second time from the cache
        assert np.array_equal(vectors(encoder.embed(data)), expected)
    said = capsys.readouterr().err.count(
        f"channels: images of {counted(given[0], 'channel')} are converted to {needed}\n"
    )
    assert said == (0 if given[0] == needed else 2)
    assert echoless.embed(encoders[needed], data, out=tmp_path / "f.npy") == len(images)
    assert np.array_equal(np.load(tmp_path / "f.npy"), expected)


def test_evaluate_records_the_channels_of_the_files_and_says_once_what_is_done_with_both_sets(
    encoders, tmp_path, capsys
):
    train, test = folder_of(tmp_path / "grey", *[1] * 6), array_of(tmp_path / "test.npz", 1)
    how = {"train": train, "test": test, "metrics": ("knn",), "k": (1,), "baselines": True}
    for metric in echoless.evaluate(encoders[3], **how):
        assert metric.protocol["file_channels"] == "1"
    assert capsys.readouterr().err.count("channels: images of 1 channel are converted to 3") == 1
    assert "file_channels" not in echoless.evaluate(encoders[1], **how)[0].protocol


def test_where_only_one_set_is_converted_the_protocol_says_which(encoders, tmp_path):
    """Colour to learn from and grey to test read as grey in both."""
    colour, grey = folder_of(tmp_path / "colour", *[3] * 6), folder_of(tmp_path / "grey", *[1] * 6)
    how = {"metrics": ("knn",), "k": (1,), "baselines": False}
    for train, test, said in ((colour, grey, "train 3, test 1"), (grey, colour, "train 1, test 3"), (grey, None, "1")):
        (metric,) = echoless.evaluate(encoders[3], train=train, test=test, **how)
        assert metric.protocol["file_channels"] == said


def test_the_decoded_cache_does_not_mix_channels_and_is_shared_where_they_are_those_of_the_files(tmp_path, monkeypatch):
    data, root = folder_of(tmp_path / "data", *[3] * 6), tmp_path / "caches"
    built = []
    build = cache.build_cache
    monkeypatch.setattr("echoless.data.cache_place.build_cache", lambda *given: built.append(1) or build(*given))
    for channels, caches in ((None, 1), (3, 1), (1, 2), (None, 2), (3, 2), (1, 2), (4, 3)):
        images = open_images(data, channels=channels, cache="on", cache_dir=root)
        assert images.shape.channels == (channels or 3) == len(images.get([0]).pixels[0])
        assert len(built) == caches, channels
    (tmp_path / "other").mkdir()
    built.clear()
    for channels in (3, None):  # and in the other order
        open_images(data, channels=channels, cache="on", cache_dir=tmp_path / "other")
    assert len(built) == 1


@pytest.mark.parametrize("tiles", [None, 16])
def test_a_cache_of_an_earlier_version_does_not_hide_that_channels_were_converted(tiles, tmp_path):
    """It does not say which channels the files have; they passed for those of the cache."""
    how = {"cache": "on", "cache_dir": tmp_path / "caches", "tiles": tiles}
    data, said = folder_of(tmp_path / "data", *[3] * 4), []
    for channels in (1, None):
        open_images(data, channels=channels, **how)
    for about in (tmp_path / "caches").rglob("about.json"):
        kept = json.loads(about.read_text())
        assert kept.pop("file_channels") == 3
        about.write_text(json.dumps(kept))
    for channels, converted in ((1, True), (3, False), (None, False)):
        images = open_images(data, channels=channels, say=said.append, **how)
        assert (images.file_channels, images.converted) == (3, converted), channels
    assert said == ["channels: images of 3 channels are converted to 1"]


def test_tiles_are_converted_too(encoders, tmp_path, capsys):
    data = folder_of(tmp_path / "data", *[1] * 4)
    encoder = echoless.load(encoders[3])
    table = encoder.embed(data, tiles=16)
    assert "images of 1 channel are converted to 3" in capsys.readouterr().err
    assert len(table) == 4 * 9 and table.equals(encoder.embed(data, tiles=16))


def test_arrays_fine_tune_an_encoder_of_colour_and_probe_it(tmp_path, capsys):
    """Only files were converted: an array of grey images beside them was refused."""
    grey = array_of(tmp_path / "grey.npz", 1)
    probe = {"probe_every": 1, "probe_data": grey}
    echoless.pretrain("shapes:12", out=tmp_path / "run", max_steps=1, **probe, **TINY)
    assert "images of 1 channel are converted to 3" in capsys.readouterr().err
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert "probe_knn" in lines[-1]
    metric = echoless.finetune(
        tmp_path / "run", train=grey, test=array_of(tmp_path / "rgba.npz", 4), out=tmp_path / "ft", max_steps=1
    )
    assert metric.n == COUNT and metric.protocol["file_channels"] == "train 1, test 4"
    about = json.loads((tmp_path / "ft" / "about.json").read_text())
    assert (about["data"]["channels"], about["data"]["file_channels"]) == (3, 1)


def test_an_array_is_pretrained_with_the_channels_that_are_given(tmp_path):
    echoless.pretrain(array_of(tmp_path / "x.npz", 3), out=tmp_path / "run", channels=1, max_steps=1, **TINY)
    assert echoless.load(tmp_path / "run").channels == 1


def test_other_counts_of_channels_stay_refused_before_any_image_is_decoded(encoders, tmp_path):
    np.savez(tmp_path / "five.npz", images=np.zeros((4, 20, 20, 5), np.uint8))
    tifffile = pytest.importorskip("tifffile")
    for number in range(3):
        (tmp_path / "tiff").mkdir(exist_ok=True)
        tifffile.imwrite(tmp_path / "tiff" / f"{number}.tif", np.zeros((5, 20, 20), np.uint8), photometric="minisblack")
    refused = r"^the images have 5 channels, which cannot be converted to 3$"
    for data in (tmp_path / "five.npz", tmp_path / "tiff"):
        for call in (
            lambda data: echoless.embed(encoders[3], data, out=tmp_path / "f.npy"),
            lambda data: echoless.evaluate(encoders[3], train=data),
            lambda data: echoless.load(encoders[3]).embed(data),
            lambda data: echoless.pretrain(data, out=tmp_path / "run", channels=3, max_steps=1, **TINY),
        ):
            with pytest.raises(DataError, match=refused):
                call(data)
