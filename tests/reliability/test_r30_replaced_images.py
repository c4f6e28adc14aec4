"""R30: images that are replaced never pass for the old ones, before, between and during the work of any verb.

The files are bitmaps: whatever they show, their names and sizes stay, and the tests put the old times back.
Run alone: pytest tests/reliability/test_r30_replaced_images.py
"""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import echoless
from echoless.data import encoded, open_images
from echoless.data.sources import FolderSource, read_or_error
from echoless.evaluation import embed as embedding
from echoless.evaluation.embed import embed
from echoless.evaluation.extract import View, extract
from echoless.evaluation.frozen import load
from echoless.evaluation.reference import reference_moments
from echoless.evaluation.table_columns import Columns
from echoless.evaluation.table_files import TableTarget

VIEW = View("block05/+mlp")
COUNT = 130  # two chunks and a part of one
QUICK = {"metrics": ("knn",), "baselines": False, "k": (3,)}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    echoless.pretrain("shapes:64", out=out, recipe="demo", max_steps=2, batch_size=16)
    return out


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch) -> Path:
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("ECHOLESS_CACHE", str(cache))
    return cache


@pytest.fixture
def photos(tmp_path) -> Path:
    return fill(tmp_path / "photos", seed=0)


def fill(folder: Path, seed: int) -> Path:
    """Noise in two classes; what was there is replaced in place and keeps its times."""
    for number in range(COUNT):
        place = folder / f"class{number % 2}" / f"{number:03d}.bmp"
        place.parent.mkdir(parents=True, exist_ok=True)
        before = place.stat() if place.exists() else None
        pixels = np.random.default_rng([seed, number]).integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place)
        if before is not None:
            assert place.stat().st_size == before.st_size
            os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))
    return folder


def vectors(file: Path) -> np.ndarray:
    return np.stack(pq.read_table(file)["feature"].to_numpy())


def no_room(monkeypatch) -> None:
    """As on a disk that is too small for a cache: images are decoded whenever they are needed."""
    monkeypatch.setenv("ECHOLESS_CACHE_LIMIT", "1")


def test_a_second_evaluation_is_of_the_images_that_are_there_now(run, photos, tmp_path):
    (first,) = echoless.evaluate(run, train=photos, **QUICK)
    fill(photos, seed=1)
    (second,) = echoless.evaluate(run, train=photos, **QUICK)
    (true,) = echoless.evaluate(run, train=fill(tmp_path / "others", seed=1), **QUICK, cache=False)
    assert first.protocol["train_set"] != second.protocol["train_set"] == true.protocol["train_set"]
    assert second.value == true.value


@pytest.mark.parametrize("cached", [True, False], ids=["cache", "no cache"])
def test_a_killed_embedding_is_not_continued_with_other_images(run, photos, tmp_path, monkeypatch, cached):
    if not cached:
        no_room(monkeypatch)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(embedding, "make_table", mock.Mock(side_effect=KeyboardInterrupt))
        echoless.embed(run, photos, out=tmp_path / "f.parquet")
    fill(photos, seed=1)
    assert echoless.embed(run, photos, out=tmp_path / "f.parquet") == COUNT
    echoless.embed(run, fill(tmp_path / "others", seed=1), out=tmp_path / "true.parquet")
    assert np.array_equal(vectors(tmp_path / "f.parquet"), vectors(tmp_path / "true.parquet"))


@pytest.mark.parametrize("cached", [True, False], ids=["cache", "no cache"])
def test_a_folder_that_is_replaced_during_the_work_gives_no_vector_of_another_image(
    run, photos, tmp_path, monkeypatch, cached
):
    """Each vector is of the image that was hashed; what cannot be read any more as it was is left out."""
    if not cached:
        no_room(monkeypatch)
    encoder, images = load(run), open_images(photos, max_bad_fraction=1.0)
    echoless.embed(run, photos, out=tmp_path / "true.parquet")
    true = dict(zip(pq.read_table(tmp_path / "true.parquet")["path"].to_pylist(), vectors(tmp_path / "true.parquet")))
    kept = photos / "class0" / "002.bmp"
    unchanged = kept.read_bytes()
    fill(photos, seed=1)
    kept.write_bytes(unchanged)
    rows = embed(encoder, images, TableTarget(tmp_path / "f.parquet"), Columns((VIEW,)))
    table = pq.read_table(tmp_path / "f.parquet")
    assert rows == (COUNT if cached else 1)
    for path, vector in zip(table["path"].to_pylist(), vectors(tmp_path / "f.parquet")):
        assert np.array_equal(vector, true[path]), path
    assert {each.reason for each in images.bad} == (set() if cached else {"it changed after the data set was opened"})


def test_the_verbs_say_what_they_left_out_on_the_way(run, photos, tmp_path, monkeypatch, capsys):
    no_room(monkeypatch)
    failing(monkeypatch, "class1/003.bmp")
    assert echoless.embed(run, photos, out=tmp_path / "f.parquet") == COUNT - 1
    assert "unreadable image, left out: class1/003.bmp: Input/output error" in capsys.readouterr().err
    echoless.evaluate(run, train=photos, **QUICK)
    assert "unreadable image, left out: class1/003.bmp: Input/output error" in capsys.readouterr().out
    with pytest.warns(UserWarning, match=r"left out: class1/003\.bmp"):
        assert len(load(run).embed(photos)) == COUNT - 1


def failing(monkeypatch, name: str) -> None:
    """The file could be read when it was hashed, and then no more."""

    def read(source: FolderSource, index: int) -> bytes | OSError:
        return OSError(5, "Input/output error") if source.paths[index] == name else read_or_error(source, index)

    monkeypatch.setattr(encoded, "read_or_error", read)


def test_an_image_that_could_not_be_read_is_in_the_next_features(run, photos, tmp_path, monkeypatch):
    """A read error is no property of the image: what was computed without it is not kept."""
    no_room(monkeypatch)
    encoder, how = load(run), {"cache": tmp_path / "features"}
    with monkeypatch.context() as patch:
        failing(patch, "class1/003.bmp")
        lacking = extract(encoder, open_images(photos, max_bad_fraction=1.0), [VIEW], **how)[VIEW]
        moments = reference_moments(encoder, open_images(photos, max_bad_fraction=1.0), VIEW, lambda: lacking)
    assert len(lacking.features_ND) == len(lacking.ids_N) == moments.n == COUNT - 1 and lacking.home is None
    whole = extract(encoder, open_images(photos), [VIEW], **how)[VIEW]
    assert len(whole.features_ND) == COUNT and whole.home is not None
    assert reference_moments(encoder, open_images(photos), VIEW, lambda: whole).n == COUNT


def test_a_part_of_an_embedding_that_lacks_an_image_is_computed_again(run, photos, tmp_path, monkeypatch):
    no_room(monkeypatch)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        failing(patch, "class1/003.bmp")
        patch.setattr(embedding, "make_table", mock.Mock(side_effect=KeyboardInterrupt))
        echoless.embed(run, photos, out=tmp_path / "f.parquet")
    assert echoless.embed(run, photos, out=tmp_path / "f.parquet") == COUNT
