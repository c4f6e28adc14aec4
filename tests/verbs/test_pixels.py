"""The size at which images are kept, and tiles, from the options to config.json, the log and the columns of a table.

Run alone: pytest tests/verbs/test_pixels.py
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import echoless
from echoless.config import DataConfig, RunConfig, from_dict
from echoless.config.facts import DataFacts
from echoless.data.reading import training_reduction
from echoless.data.resizing import Fit
from echoless.recipes.table import RECIPES
from echoless.verbs.configuring import settled_side

TINY = {"recipe": "shapes", "image_size": (16,), "patch_size": 8, "width": 32, "depth": 2, "batch_size": 4}


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(6):
        coarse = np.random.default_rng(number).integers(0, 256, (6, 8, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((200, 150), Image.Resampling.BICUBIC).save(folder / f"{number}.jpg")
    return folder


def recorded(run: Path) -> DataConfig:
    return from_dict(RunConfig, json.loads((run / "config.json").read_text())).data


def test_a_run_records_at_what_size_it_kept_its_images(photos, tmp_path):
    """By default three times the input for this recipe; what is given counts, and --resume keeps it."""
    echoless.pretrain(photos, out=tmp_path / "a", max_steps=2, **TINY)
    data = recorded(tmp_path / "a")
    assert (data.interpolation, data.cache_side, data.tiles) == ("bicubic", 48, None)
    log = (tmp_path / "a" / "log.txt").read_text()
    assert "6 images of about 150 x 200, kept at about 48 x 64, 3 channels, 8 bit; random crops of 20 to 100 %" in log
    echoless.pretrain(photos, out=tmp_path / "b", max_steps=2, cache_side="original", checkpoint_every=1, **TINY)
    assert recorded(tmp_path / "b").cache_side == "original"
    assert "6 images of about 150 x 200, 3 channels" in (tmp_path / "b" / "log.txt").read_text()
    echoless.pretrain(photos, out=tmp_path / "b", max_steps=3, resume=True)
    assert recorded(tmp_path / "b").cache_side == "original"


def test_a_resumed_run_of_tiles_is_the_uninterrupted_one(photos, tmp_path):
    """The order of tiles, their crops and the record of them; evaluate finds the same tiles without being told."""
    tiny = TINY | {"image_size": (32,)}
    echoless.pretrain(photos, out=tmp_path / "once", max_steps=4, tiles=64, **tiny)
    echoless.pretrain(photos, out=tmp_path / "twice", max_steps=4, tiles=64, checkpoint_every=2, **tiny)
    for folder in ("checkpoints/step-00000004", "encoder"):
        shutil.rmtree(tmp_path / "twice" / folder)
    echoless.pretrain(photos, out=tmp_path / "twice", resume=True)
    weights = [(tmp_path / run / "encoder" / "model.safetensors").read_bytes() for run in ("once", "twice")]
    assert weights[0] == weights[1] and recorded(tmp_path / "twice").tiles == 64
    assert "72 tiles of 64 x 64 from 6 images of about 150 x 200" in (tmp_path / "once" / "log.txt").read_text()
    metrics = echoless.evaluate(tmp_path / "once", metrics=("rank",), baselines=False, device="cpu")
    assert {metric.n for metric in metrics} == {72}


@pytest.fixture(scope="module")
def noise(tmp_path_factory) -> Path:
    """Twelve files of grey noise, each as bright as no other, in classes that were drawn."""
    folder, draw = tmp_path_factory.mktemp("noise") / "files", np.random.default_rng(0)
    for number, label in enumerate(draw.permutation(np.arange(12) % 3)):
        (folder / f"class{label}").mkdir(parents=True, exist_ok=True)
        pixels = np.clip(20 * number + draw.normal(0, 8, (128, 128, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"class{label}" / f"{number:02d}.png")
    return folder


def evaluated(run: Path, *, train: Path, capsys, **asked):
    metrics = echoless.evaluate(run, train=train, metrics=("knn",), k=(1,), cache=False, baselines=False, **asked)
    return metrics[0], capsys.readouterr().out


def test_tiles_of_one_file_and_copies_of_one_image_are_in_one_fold_and_it_is_said(noise, tmp_path, capsys):
    echoless.pretrain(noise, out=tmp_path / "run", max_steps=1, **TINY | {"image_size": (32,)})
    capsys.readouterr()
    metric, said = evaluated(tmp_path / "run", train=noise, tiles=32, capsys=capsys)
    assert "folds by file: 192 tiles of 12 files\n" in said
    assert (metric.n, metric.protocol["files"], metric.protocol["folds"]) == (192, 12, 4) and metric.value < 0.7
    assert metric.groups == [[12, 16]] and metric.interval[1] - metric.interval[0] > 0.3
    metric, said = evaluated(tmp_path / "run", train=noise, capsys=capsys)
    assert "folds by file" not in said and "copies" not in said and not {"files", "distinct"} & set(metric.protocol)
    for file in noise.rglob("*.png"):
        copy = tmp_path / "twice" / file.relative_to(noise)
        copy.parent.mkdir(parents=True, exist_ok=True)
        for place in (copy, copy.with_name(f"again-{copy.name}")):
            shutil.copyfile(file, place)
    metric, said = evaluated(tmp_path / "run", train=tmp_path / "twice", capsys=capsys)
    assert "12 of 24 images are copies of others; copies stay in one fold" in said
    assert (metric.n, metric.protocol["distinct"], metric.protocol["folds"]) == (24, 12, 4) and metric.value < 0.9
    metric, said = evaluated(tmp_path / "run", train=tmp_path / "twice", tiles=32, test=noise, capsys=capsys)
    assert "intervals by file: 192 tiles of --test of 12 files" in said and metric.protocol["files"] == 12


def test_tiles_are_embedded_with_their_corners(photos, tmp_path):
    echoless.pretrain(photos, out=tmp_path / "run", max_steps=1, **TINY)
    assert echoless.embed(tmp_path / "run", photos, out=tmp_path / "f.parquet", tiles=100, device="cpu") == 24
    table = pq.read_table(tmp_path / "f.parquet")
    assert table.column_names == ["path", "x", "y", "feature"]
    first = [(row["path"], row["x"], row["y"]) for row in table.slice(0, 4).to_pylist()]
    assert first == [("0.jpg", 0, 0), ("0.jpg", 100, 0), ("0.jpg", 0, 50), ("0.jpg", 100, 50)]
    echoless.embed(tmp_path / "run", photos, out=tmp_path / "f.npy", tiles=100, device="cpu")
    assert (tmp_path / "f.paths.txt").read_text().splitlines()[1] == "0.jpg,100,0"


def test_an_encoder_of_512_pixels_is_given_512_pixels_of_the_file(tmp_path):
    """Columns one pixel wide survive the way from the file to the vector; made smaller on it, they would be grey.

    The expected input is cut by PIL: short side 585, so that the middle is 87.5 %.
    """
    folder = tmp_path / "stripes"
    folder.mkdir()
    for number in range(4):
        dark_HWC = np.random.default_rng(number).integers(0, 256, (585, 1, 3), dtype=np.uint8)
        stripes_HWC = np.repeat(dark_HWC, 585, axis=1)
        stripes_HWC[:, ::2] = 255 - stripes_HWC[:, ::2]
        Image.fromarray(stripes_HWC).save(folder / f"{number}.png")
    large = TINY | {"image_size": (512,), "patch_size": 64}
    echoless.pretrain(folder, out=tmp_path / "run", max_steps=1, **large)
    echoless.embed(tmp_path / "run", folder, out=tmp_path / "f.npy", device="cpu")
    encoder, body = echoless.load(tmp_path / "run"), recorded(tmp_path / "run")
    with Image.open(folder / "0.png") as image:
        middle_HWC = np.asarray(image.crop((36, 36, 548, 548)), dtype=np.float32) / 255
    inputs_HWC = (middle_HWC - np.float32(body.mean)) / np.float32(body.std)
    expected = encoder(torch.from_numpy(inputs_HWC.transpose(2, 0, 1).copy())[None])[0]
    assert np.load(tmp_path / "f.npy")[0] == pytest.approx(expected.numpy(), rel=1e-4, abs=1e-5)


def test_a_run_of_tiles_embeds_tiles_without_being_told(photos, tmp_path, capsys):
    """Whole scans would be other images than the encoder learned from. A copied encoder and Python know it, too."""
    run = tmp_path / "run"
    echoless.pretrain(photos, out=run, max_steps=1, tiles=100, **TINY)
    shutil.copytree(run / "encoder", tmp_path / "copied")
    for source in (run, run / "checkpoints" / "step-00000001", tmp_path / "copied"):
        assert echoless.embed(source, photos, out=tmp_path / "f.parquet", device="cpu", overwrite=True) == 24
    assert "tiles: 100 x 100, as the run was trained; --tiles 0 takes whole images" in capsys.readouterr().err
    assert echoless.embed(run, photos, out=tmp_path / "whole.npy", tiles=0, device="cpu") == 6
    encoder = echoless.load(tmp_path / "copied")
    assert len(encoder.embed(photos)) == 24 and len(encoder.embed(photos, tiles=0)) == 6
    assert len(encoder.embed("shapes:5")) == 5, "drawn images are not cut"
    capsys.readouterr()
    echoless.embed(run, "shapes:5", out=tmp_path / "shapes.npy", device="cpu")
    assert "tiles:" not in capsys.readouterr().err, "and nobody says that they were"
    metrics = echoless.evaluate(run, train=photos, metrics=("rank",), baselines=False, device="cpu")
    assert {metric.n for metric in metrics} == {24}
    assert "tiles: 100 x 100, as the run was trained" in capsys.readouterr().out, "evaluate says so, too"


def test_a_tile_in_python_is_seen_whole_as_embed_sees_it(photos, tmp_path):
    """Each was nearest to another tile, because Python saw its centre."""
    echoless.pretrain(photos, out=tmp_path / "run", max_steps=1, tiles=150, **TINY)
    encoder = echoless.load(tmp_path / "run")
    rows = encoder.embed(photos).to_pylist()
    for row in rows:
        with Image.open(photos / row["path"]) as image:
            tile = np.asarray(image.convert("RGB"))[row["y"] : row["y"] + 150, row["x"] : row["x"] + 150]
        assert encoder(encoder.preprocess(tile)[None])[0].numpy() == pytest.approx(np.array(row["feature"]), abs=1e-5)


def test_tiles_that_are_not_those_of_the_training_are_said(photos, tmp_path, capsys):
    """Whole scans or other tiles are seen at another scale than in training, also where they were asked for."""
    run = tmp_path / "run"
    echoless.pretrain(photos, out=run, max_steps=1, tiles=100, **TINY)
    known = "the run was trained on tiles of 100 x 100, so it saw everything at another scale"
    for asked, said in ((0, f"tiles: none, whole images; {known}"), (50, f"tiles: 50 x 50; {known}"), (100, "")):
        capsys.readouterr()
        echoless.embed(run, photos, out=tmp_path / "f.npy", tiles=asked, device="cpu", overwrite=True)
        err = capsys.readouterr().err
        assert (said in err) if said else ("tiles:" not in err)
    echoless.evaluate(run, train=photos, tiles=0, metrics=("rank",), baselines=False, device="cpu")
    assert f"tiles: none, whole images; {known}" in capsys.readouterr().out


def test_an_array_given_to_an_encoder_of_tiles_is_seen_as_python_and_tiles_see_it(photos, tmp_path):
    """The borders of arrays of 150 x 150 were cut off, and those of equal tiles were not; baselines see the same."""
    run = tmp_path / "run"
    echoless.pretrain(photos, out=run, max_steps=1, tiles=150, **TINY)
    encoder = echoless.load(run)
    images = [np.asarray(Image.open(file).convert("RGB"))[:150, :150] for file in sorted(photos.glob("*.jpg"))]
    np.savez(tmp_path / "x.npz", x=np.stack(images))
    echoless.embed(run, tmp_path / "x.npz", out=tmp_path / "f.parquet", device="cpu")
    vectors = np.stack(pq.read_table(tmp_path / "f.parquet")["feature"].to_pylist())
    tiles = [row["feature"] for row in encoder.embed(photos).to_pylist() if row["x"] == 0]
    assert vectors == pytest.approx(np.array(tiles), abs=1e-5)
    assert np.stack(encoder.embed(tmp_path / "x.npz")["feature"].to_pylist()) == pytest.approx(vectors, abs=1e-5)
    assert encoder(encoder.preprocess(images[0])[None])[0].numpy() == pytest.approx(vectors[0], abs=1e-5)
    Image.fromarray(images[2]).save(tmp_path / "query.png")
    found = echoless.search(tmp_path / "f.parquet", query=tmp_path / "query.png", k=1, out=tmp_path / "s.html")
    assert found.neighbours["similarity"].to_pylist() == pytest.approx([1.0], abs=1e-5)
    how = {"train": tmp_path / "x.npz", "metrics": ("rank",), "device": "cpu"}
    views = {metric.protocol["view"] for metric in echoless.evaluate(run, **how)}
    assert views == {"resize 16, crop 16, bicubic"}
    assert {metric.protocol["view"] for metric in echoless.evaluate(run, tiles=0, **how)} == {
        "resize 18, crop 16, bicubic"
    }, "--tiles 0: they are whole images"


def test_the_photographs_in_a_folder_of_small_images_are_mentioned(photos, tmp_path, capsys):
    """Of a few large ones among many small ones, nothing was said; nothing is where there are none."""
    mixed, small = tmp_path / "mixed", tmp_path / "small"
    for folder in (mixed, small):
        folder.mkdir()
        for number in range(10):
            pixels = np.random.default_rng(number).integers(0, 256, (20, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
    for name in ("0.jpg", "1.jpg"):
        shutil.copyfile(photos / name, mixed / f"photo{name}")
    echoless.pretrain(mixed, out=tmp_path / "run", max_steps=1, **TINY)
    known = "data: 12 images of about 20 x 20 (2 of them more than twice as large, kept at up to 48 x 64), 3 channels"
    assert known in (tmp_path / "run" / "log.txt").read_text()
    assert json.loads((tmp_path / "run" / "about.json").read_text())["data"]["larger"]["images"] == 2
    said = "2 of 12 images are large, with a shorter side of more than 128 pixels: of those only the centre is seen "
    capsys.readouterr()
    echoless.embed(tmp_path / "run", mixed, out=tmp_path / "f.npy", device="cpu")
    assert said + "(resize 18, crop 16, bicubic), of the others all" in capsys.readouterr().err
    how = {"metrics": ("rank",), "baselines": False, "device": "cpu"}
    for test, named in ((None, ["images are"]), (small, ["images of --train"]), (mixed, ["images of --train"])):
        echoless.evaluate(tmp_path / "run", train=mixed, test=test, **how)
        lines = [line for line in capsys.readouterr().out.splitlines() if "of those only the centre" in line]
        assert len(lines) == len(named) and all(name in line for name, line in zip(named, lines))
    echoless.pretrain(small, out=tmp_path / "plain", max_steps=1, **TINY)
    echoless.evaluate(tmp_path / "run", train=small, **how)
    assert "larger" not in json.loads((tmp_path / "plain" / "about.json").read_text())["data"]
    assert "the centre is seen" not in capsys.readouterr().out


def test_every_part_of_a_run_of_grey_images_and_its_copy_embed_photographs(photos, tmp_path):
    echoless.pretrain(photos, out=tmp_path / "run", max_steps=1, channels=1, **TINY)
    shutil.copytree(tmp_path / "run" / "encoder", tmp_path / "copied")
    tables = [echoless.load(tmp_path / place).embed(photos) for place in ("run", "run/encoder", "copied")]
    assert len(tables[0]) == 6 and tables[0].equals(tables[1]) and tables[0].equals(tables[2])


def test_each_recipe_states_what_it_keeps():
    """Original files where the papers crop from them; the input size where there is no crop; else three times it."""
    facts = DataFacts(3, 375, 500, 1000, classes=10)
    kept = {name: settled_side(recipe(facts)).cache_side for name, recipe in RECIPES.items()}
    for name in ("mae-base", "mae-large", "infonce-small", "dino-small", "vit-supervised", "resnet-supervised"):
        assert kept[name] == "original", name
    assert kept["auto"] == 3 * 128 and kept["sit-tiny"] == max(RECIPES["sit-tiny"](facts).model.image_size)
    assert all(side is not None for side in kept.values())


def test_how_files_are_reduced():
    assert training_reduction(DataConfig(), (224, 224)) == Fit("short", (256, 256), "bilinear"), "earlier versions"
    assert training_reduction(DataConfig(cache_side="original"), (224, 224)) is None
    assert training_reduction(DataConfig(cache_side=384), (128, 128)) == Fit("cover", (384, 384))
    assert training_reduction(DataConfig(cache_side=256, crop_scale=None), (256, 256)) == Fit("adm", (256, 256))
