"""An embedding file holds one vector per image, survives being killed, and is the same from any number of processes."""

from __future__ import annotations

import io
import os
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import echoless
import echoless.evaluation.embed as module
from echoless.data import open_images
from echoless.errors import ConfigError, RunError
from echoless.evaluation.embed import embed
from echoless.evaluation.extract import View, extract
from echoless.evaluation.frozen import load

VIEW = View("block05/+mlp")


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of 64 images, so that a small set has several."""
    monkeypatch.setattr(module, "CHUNKS_PER_PART", 1)
    monkeypatch.setattr(module, "IMAGES_PER_PART", 64)


def test_the_file_holds_paths_features_and_labels(run, tmp_path):
    encoder, images = load(run), open_images("shapes:150@test")
    assert embed(encoder, images, tmp_path / "f.parquet", view=VIEW) == 150
    table = pq.read_table(tmp_path / "f.parquet")
    assert table.column_names == ["path", "feature", "label"]
    assert str(table.schema.field("feature").type) == "fixed_size_list<element: float>[64]"
    vectors = np.stack(table["feature"].to_pylist()).astype(np.float32)
    np.testing.assert_array_equal(vectors, extract(encoder, images, [VIEW], cache=None)[VIEW].features_ND)
    assert table["path"].to_pylist() == list(images.paths)
    assert set(table["label"].to_pylist()) <= set(images.class_names)
    assert [p.name for p in tmp_path.iterdir()] == ["f.parquet"], "nothing else is left behind"


def test_two_processes_write_what_one_writes(run, tmp_path, small_parts):
    encoder, images = load(run), open_images("shapes:200@test")
    embed(encoder, images, tmp_path / "one.parquet", view=VIEW)
    # In turns: rank 1 first leaves its parts, then rank 0 adds its own and joins them.
    embed(encoder, images, tmp_path / "two.parquet", view=VIEW, rank=1, world=2)
    embed(encoder, images, tmp_path / "two.parquet", view=VIEW, rank=0, world=2)
    assert pq.read_table(tmp_path / "one.parquet").equals(pq.read_table(tmp_path / "two.parquet"))


def test_an_interrupted_embedding_continues(run, tmp_path, small_parts, monkeypatch):
    encoder, images = load(run), open_images("shapes:200@test")
    original, done = module._part, []

    def part(encoder, images, view, number, half):
        if number == 2 and len(done) < 3:
            done.append("interrupted")
            raise KeyboardInterrupt
        done.append(number)
        return original(encoder, images, view, number, half)

    monkeypatch.setattr(module, "_part", part)
    with pytest.raises(KeyboardInterrupt):
        embed(encoder, images, tmp_path / "f.parquet", view=VIEW)
    assert not (tmp_path / "f.parquet").exists()
    embed(encoder, images, tmp_path / "f.parquet", view=VIEW)
    assert done == [0, 1, "interrupted", 2, 3], "the parts that were there were not computed again"
    assert len(pq.read_table(tmp_path / "f.parquet")) == 200


def test_npy_and_half_precision(run, tmp_path):
    encoder, images = load(run), open_images("shapes:70@test")
    embed(encoder, images, tmp_path / "f.npy", view=VIEW, half=True)
    vectors = np.load(tmp_path / "f.npy", allow_pickle=False)
    full = extract(encoder, images, [VIEW], cache=None)[VIEW].features_ND
    assert vectors.dtype == np.float16
    np.testing.assert_array_equal(vectors, full.astype(np.float16))
    assert (tmp_path / "f.paths.txt").read_text().split("\n")[:-1] == list(images.paths)


def test_bad_targets_are_refused_before_any_work(run, tmp_path):
    encoder = load(run)
    images = open_images("shapes:10")
    with pytest.raises(ConfigError, match=r"allowed: a name that ends in \.parquet, \.npy or \.csv"):
        embed(encoder, images, tmp_path / "f.txt", view=VIEW)
    (tmp_path / "f.npy").touch()
    with pytest.raises(RunError, match="exists; give --overwrite"):
        embed(encoder, images, tmp_path / "f.npy", view=VIEW)
    embed(encoder, images, tmp_path / "f.npy", view=VIEW, overwrite=True)
    assert np.load(tmp_path / "f.npy").shape == (10, 64)
    assert torch.get_num_threads() == 1


def test_the_paths_of_somebody_else_are_not_replaced(run, tmp_path):
    """An array has its paths in a second file, which is as precious as the first."""
    encoder, images = load(run), open_images("shapes:10")
    (tmp_path / "f.paths.txt").write_text("mine")
    with pytest.raises(RunError, match=r"f.paths.txt exists; give --overwrite"):
        embed(encoder, images, tmp_path / "f.npy", view=VIEW)
    assert (tmp_path / "f.paths.txt").read_text() == "mine"
    (tmp_path / "g.npy").mkdir()
    with pytest.raises(RunError, match=r"g.npy cannot be written: it exists and is not a regular file"):
        embed(encoder, images, tmp_path / "g.npy", view=VIEW, overwrite=True)


def test_an_array_never_stands_beside_the_paths_of_another(run, tmp_path, monkeypatch):
    """Killed between the two files: the array is missing, and is not the earlier one."""
    encoder, out = load(run), tmp_path / "f.npy"
    embed(encoder, open_images("shapes:10"), out, view=VIEW)
    real, images = os.replace, open_images("shapes:12")

    def killed(source, target):
        if str(target).endswith(".npy"):
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", killed)
        embed(encoder, images, out, view=VIEW, overwrite=True)
    assert not out.exists() and (tmp_path / "f.paths.txt").read_text().count("\n") == 12
    embed(encoder, images, out, view=VIEW, overwrite=True)
    assert len(np.load(out)) == 12 and sorted(p.name for p in tmp_path.iterdir()) == ["f.npy", "f.paths.txt"]


def test_two_embeddings_do_not_write_one_file(run, tmp_path):
    """The second would delete the parts of the first, or join its own paths to the vectors of the other."""
    encoder, images, out = load(run), open_images("shapes:70"), tmp_path / "f.parquet"

    def second(done: int, total: int) -> None:
        with pytest.raises(RunError, match=r"f.parquet is being written by another process"):
            embed(encoder, open_images("shapes:10"), out, view=VIEW)

    assert embed(encoder, images, out, view=VIEW, report=second) == 70
    assert [path.name for path in tmp_path.iterdir()] == ["f.parquet"]


def test_parts_of_images_that_were_replaced_do_not_stay(run, tmp_path, small_parts, monkeypatch):
    encoder, out = load(run), tmp_path / "f.parquet"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "_join", mock.Mock(side_effect=KeyboardInterrupt))
        embed(encoder, open_images("shapes:70"), out, view=VIEW)
    (kept,) = tmp_path.iterdir()
    assert kept.name.startswith(".f.parquet.parts-")
    strange = tmp_path / ".f.parquet.parts-list"
    strange.mkdir()
    embed(encoder, open_images("shapes:71"), out, view=VIEW)
    assert sorted(path.name for path in tmp_path.iterdir()) == [strange.name, "f.parquet"]


def test_any_file_name_has_its_row(run, tmp_path):
    """Names may hold line breaks, quotes, and bytes that are not UTF-8."""
    names = [b"plain.png", b"two\nlines.png", b"back\\slash.png", b"latin-\xe9.png"]
    photos = tmp_path / "photos"
    photos.mkdir()
    for number, name in enumerate(names):
        picture = io.BytesIO()
        Image.fromarray(np.full((32, 32, 3), 50 * number, np.uint8)).save(picture, "png")
        (photos / os.fsdecode(name)).write_bytes(picture.getvalue())
    images = open_images(photos)
    embed(load(run), images, tmp_path / "f.parquet", view=VIEW)
    assert pq.read_table(tmp_path / "f.parquet")["path"].to_pylist() == [
        "back\\slash.png",
        "latin-\\xe9.png",
        "plain.png",
        "two\nlines.png",
    ]
    embed(load(run), images, tmp_path / "f.npy", view=VIEW)
    assert (tmp_path / "f.paths.txt").read_text().splitlines()[3] == "two\\nlines.png"
    assert len((tmp_path / "f.paths.txt").read_text().splitlines()) == len(np.load(tmp_path / "f.npy")) == 4


@pytest.mark.parametrize("name", ["f.parquet", "f.csv", "f.npy"])
def test_a_folder_whose_name_is_not_utf8_is_embedded(run, tmp_path, name):
    photos = tmp_path / os.fsdecode(b"caf\xe9")
    photos.mkdir()
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(photos / "0.png")
    echoless.embed(run, photos, out=tmp_path / name, paths="absolute")
    if name == "f.parquet":
        table = pq.read_table(tmp_path / name)
        assert table["path"].to_pylist()[0].endswith("/caf\\xe9/0.png")
        assert table.schema.metadata[b"echoless.root"].endswith(b"/caf\\xe9")
