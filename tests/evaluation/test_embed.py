"""A table of features has one row per image, survives being killed, and is the same from any number of processes.

Run alone: pytest tests/evaluation/test_embed.py
"""

from __future__ import annotations

import csv
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
from echoless.errors import ConfigError, DataError, RunError
from echoless.evaluation import table_files
from echoless.evaluation.extract import PATCHES, View, extract
from echoless.evaluation.frozen import load
from echoless.evaluation.table_columns import Columns
from echoless.evaluation.table_files import TableTarget, numbers_of
from echoless.runs import load_weights, save_weights

VIEW = View("block05/+mlp")
PATCH = View("block05/+mlp", PATCHES)


def embed(encoder, images, out, *, views=(VIEW,), overwrite=False, part_bytes=10**9, report=None, **columns) -> int:
    target = TableTarget(out, overwrite, part_bytes)
    return module.embed(encoder, images, target, Columns(tuple(views), **columns), report=report)


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces of 64 images, so that a small set has several."""
    monkeypatch.setattr(module, "CHUNKS_PER_PIECE", 1)


@pytest.fixture
def as_process(monkeypatch):
    """Behave as one of several processes, which do not wait for each other."""

    def become(rank: int, world: int) -> None:
        for each in (module, table_files):
            monkeypatch.setattr(each, "rank_and_world", lambda: (rank, world))
            monkeypatch.setattr(each, "wait", lambda: None)

    return become


def test_the_file_holds_paths_features_and_labels(run, tmp_path):
    encoder, images = load(run), open_images("shapes:150@test")
    assert embed(encoder, images, tmp_path / "f.parquet") == 150
    table = pq.read_table(tmp_path / "f.parquet")
    assert table.column_names == ["path", "feature", "label"]
    assert str(table.schema.field("feature").type) == "fixed_size_list<element: float>[64]"
    vectors = np.stack(table["feature"].to_pylist()).astype(np.float32)
    np.testing.assert_array_equal(vectors, extract(encoder, images, [VIEW], cache=None)[VIEW].features_ND)
    assert table["path"].to_pylist() == list(images.paths)
    assert set(table["label"].to_pylist()) <= set(images.class_names)
    assert [p.name for p in tmp_path.iterdir()] == ["f.parquet"], "nothing else is left behind"


def test_two_processes_write_what_one_writes(run, tmp_path, small_pieces, as_process):
    """In turns: process 1 leaves its pieces and stops where it would wait, then process 0 adds its own and joins them.

    Two processes that really wait for each other: tests/evaluation/test_several_processes.py.
    """
    encoder, images = load(run), open_images("shapes:200@test")
    embed(encoder, images, tmp_path / "one.parquet")
    as_process(1, 2)
    with mock.patch.object(module, "make_table"):
        embed(encoder, images, tmp_path / "two.parquet")
    assert not (tmp_path / "two.parquet").exists()
    as_process(0, 2)
    embed(encoder, images, tmp_path / "two.parquet")
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()


def test_an_interrupted_embedding_continues(run, tmp_path, small_pieces, monkeypatch):
    """At any instant: here when the third of four pieces is about to be written."""
    encoder, images = load(run), open_images("shapes:200@test")
    original, done = module._write_piece, []

    def write(file, table):
        if file.name == "piece-000002.parquet" and "interrupted" not in done:
            done.append("interrupted")
            raise KeyboardInterrupt
        done.append(file.name)
        original(file, table)

    monkeypatch.setattr(module, "_write_piece", write)
    with pytest.raises(KeyboardInterrupt):
        embed(encoder, images, tmp_path / "f.parquet")
    assert not (tmp_path / "f.parquet").exists()
    shown = []
    embed(encoder, images, tmp_path / "f.parquet", report=lambda *words: shown.append(words))
    assert done == [f"piece-00000{n}.parquet" for n in (0, 1)] + ["interrupted"] + [
        f"piece-00000{n}.parquet" for n in (2, 3)
    ], "the pieces that were there were not computed again"
    assert shown[0] == ("embedding", 72, 200), "and count as done"
    embed(encoder, images, tmp_path / "whole.parquet")
    assert (tmp_path / "f.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_a_refused_embedding_leaves_nothing(run, tmp_path, small_pieces):
    """Hidden pieces stayed, though no command would ever use them: another image or encoder has other pieces."""
    encoder, images = load(run), open_images("shapes:200@test")
    whole, batches = type(encoder).tokens_of, []

    def damaged(self, *given):
        batches.append(given)
        tokens = whole(self, *given)
        return tokens if len(batches) < 3 else {name: each * torch.nan for name, each in tokens.items()}

    with mock.patch.object(type(encoder), "tokens_of", damaged), pytest.raises(DataError, match="are not finite"):
        embed(encoder, images, tmp_path / "f.parquet")
    assert list(tmp_path.iterdir()) == []
    with mock.patch.object(module, "chunks", side_effect=RunError("no room")), pytest.raises(RunError):
        embed(encoder, images, tmp_path / "f.parquet")
    assert list(tmp_path.iterdir()) == [], "nor does an empty folder"


def test_more_features_than_the_part_size_become_a_folder(run, tmp_path, small_pieces):
    """Files of at most that size, whose rows together are those of one file; the folder replaces what was there."""
    encoder, images = load(run), open_images("shapes:300@test")
    out = tmp_path / "f.parquet"
    embed(encoder, images, out)
    one = pq.read_table(out)
    assert embed(encoder, images, out, overwrite=True, part_bytes=2 * 64 * 64 * 4) == 300
    files = sorted(out.iterdir())
    assert [file.name for file in files] == [f"part-0000{n}-of-00003.parquet" for n in range(3)]
    assert [pq.ParquetFile(file).metadata.num_rows for file in files] == [128, 128, 44]
    assert pq.read_table(out).equals(one) and [path.name for path in tmp_path.iterdir()] == ["f.parquet"]
    assert embed(encoder, open_images("shapes:10"), out, overwrite=True) == 10 and out.is_file(), "and back"
    embed(encoder, open_images("shapes:10"), tmp_path / "folder")
    assert [file.name for file in (tmp_path / "folder").iterdir()] == ["part-00000-of-00001.parquet"]
    (tmp_path / "folder" / "mine.txt").touch()
    with pytest.raises(RunError, match=r"is not overwritten: it also holds mine\.txt"):
        embed(encoder, open_images("shapes:10"), tmp_path / "folder", overwrite=True)


def test_an_embedding_that_is_interrupted_while_it_joins_continues(run, tmp_path, small_pieces, monkeypatch):
    """Pieces whose file is finished are gone by then, and are not computed again."""
    encoder, images, size = load(run), open_images("shapes:300@test"), 2 * 64 * 64 * 4
    original, joined = table_files._write_part, []

    def join(table, part):
        joined.append(part)
        if joined == [0, 1]:
            raise KeyboardInterrupt
        original(table, part)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(table_files, "_write_part", join)
        embed(encoder, images, tmp_path / "f", part_bytes=size)
    (work,) = tmp_path.glob(".f.parts-*")
    assert len(list(work.glob("piece-*"))) == 3
    with mock.patch.object(module, "_write_piece", side_effect=AssertionError("computed again")):
        assert embed(encoder, images, tmp_path / "f", part_bytes=size) == 300
    embed(encoder, images, tmp_path / "whole", part_bytes=size)
    for one, other in zip(sorted((tmp_path / "f").iterdir()), sorted((tmp_path / "whole").iterdir())):
        assert one.name == other.name and one.read_bytes() == other.read_bytes()


def test_images_that_cannot_be_decoded_have_no_row(run, tmp_path, small_pieces, monkeypatch):
    """Also where a whole piece, or the first, has nothing else."""
    encoder, images = load(run), open_images("shapes:200@test")
    original = type(images.pixels).fetch

    def fetch(self, ids):
        from echoless.data import BadSample

        bad = [index for index in ids.tolist() if index < 70 or index == 150]
        pixels = list(original(self, ids))
        return [BadSample(i, f"{i}", "torn") if i in bad else pixel for i, pixel in zip(ids.tolist(), pixels)]

    monkeypatch.setattr(type(images.pixels), "fetch", fetch)
    images.max_bad_fraction = 1.0
    assert embed(encoder, images, tmp_path / "f.parquet") == 129
    paths = pq.read_table(tmp_path / "f.parquet")["path"].to_pylist()
    assert paths == [images.paths[index] for index in range(70, 200) if index != 150]
    few = open_images("shapes:60@test")
    few.max_bad_fraction = 1.0
    with pytest.raises(DataError, match="the data has no usable image"):
        embed(encoder, few, tmp_path / "none.parquet")


def test_tokens_are_the_patch_features_on_their_grid(run, tmp_path):
    """Against the model: one vector for each row and column of patches, of two layers and of the keys."""
    encoder, images = load(run), open_images("shapes:70@test")
    views = (View("block02/+mlp", PATCHES), PATCH, View("block05/key", PATCHES))
    embed(encoder, images, tmp_path / "f.parquet", views=views)
    table = pq.read_table(tmp_path / "f.parquet")
    assert table.column_names == ["path", "block02/+mlp", "block05/+mlp", "block05/key", "label"]
    batch = torch.stack([encoder.preprocess(_picture(images, index)) for index in (3, 69)])
    tokens = encoder.tokens(batch, [view.layer for view in views])
    for view in views:
        found = numbers_of(table[view.layer])[[3, 69]]
        assert found.shape == (2, 4, 4, 64)
        expected = tokens[view.layer][:, 1:].reshape(2, 4, 4, 64)
        np.testing.assert_allclose(found, expected, atol=2e-6)
        assert table[view.layer][3].as_py()[1][2] == found[0, 1, 2].tolist()
    np.testing.assert_array_equal(encoder.patches(batch), tokens[PATCH.layer][:, 1:].unflatten(1, (4, 4)))


def _picture(images, index) -> Image.Image:
    return Image.fromarray(images.get([index]).pixels[0].transpose(1, 2, 0))


def test_tokens_in_half_precision_and_as_an_array(run, tmp_path):
    encoder, images = load(run), open_images("shapes:70@test")
    embed(encoder, images, tmp_path / "f.parquet", views=[PATCH])
    full = numbers_of(pq.read_table(tmp_path / "f.parquet")["tokens"])
    embed(encoder, images, tmp_path / "f.npy", views=[PATCH], half=True)
    np.testing.assert_array_equal(np.load(tmp_path / "f.npy"), full.astype(np.float16))
    with pytest.raises(ConfigError, match=r"'f\.csv', which holds one vector for each image; give \.parquet or \.npy"):
        embed(encoder, images, tmp_path.relative_to(tmp_path) / "f.csv", views=[PATCH])
    with pytest.raises(ConfigError, match=r"f\.npy', which holds one layer; give \.parquet for 2 layers"):
        embed(encoder, images, tmp_path / "f.npy", views=[PATCH, View("block02/+mlp", PATCHES)])
    with pytest.raises(ConfigError, match="block05/key', whose values belong to patches; give --tokens"):
        embed(encoder, images, tmp_path / "g.parquet", views=[View("block05/key")])


def test_numbers_beyond_half_precision_are_refused(run, tmp_path):
    encoder, images = load(run), open_images("shapes:10")
    from dataclasses import replace

    large = replace(encoder, tokens=lambda *given: {k: 1e6 * v for k, v in encoder.tokens(*given).items()})
    with pytest.raises(DataError, match="are too large for fp16; give --dtype fp32"):
        embed(large, images, tmp_path / "f.parquet", half=True)


@pytest.mark.parametrize("kind", ["pca", "tsne"])
def test_a_map_has_its_places_in_x_and_y(run, tmp_path, small_pieces, kind):
    """Principal components against scikit-learn's; t-SNE against the map of `evaluate`."""
    from sklearn.decomposition import PCA

    from echoless.measures import tsne_map

    encoder, images = load(run), open_images("shapes:150@test")
    embed(encoder, images, tmp_path / "f.parquet", chart=kind, part_bytes=64 * 64 * 4)
    table = pq.read_table(tmp_path / "f.parquet")
    assert table.column_names == ["path", "x", "y", "feature", "label"]
    places, vectors = np.stack([table["x"], table["y"]], axis=1), numbers_of(table["feature"])
    if kind == "tsne":
        np.testing.assert_array_equal(places, tsne_map(vectors, seed=0))
    else:
        expected = PCA(2, svd_solver="full").fit_transform(vectors.astype(np.float64))
        signs = np.sign((places * expected).sum(axis=0))
        np.testing.assert_allclose(places, expected * signs, atol=1e-3 * np.abs(expected).max())


def test_maps_that_cannot_be_are_refused_before_any_work(run, tmp_path):
    encoder = load(run)
    with pytest.raises(ConfigError, match="map is 'tsne' for 20,001 images; allowed: 4 to 20,000, or --map pca"):
        embed(encoder, open_images("shapes:20001", cache="off"), tmp_path / "f.parquet", chart="tsne")
    with pytest.raises(ConfigError, match="map is 'pca', which is of one vector for each image"):
        embed(encoder, open_images("shapes:10"), tmp_path / "f.parquet", chart="pca", views=[PATCH])
    with pytest.raises(ConfigError, match=r"map is 'pca', but .* has no columns; give .parquet or .csv"):
        embed(encoder, open_images("shapes:10"), tmp_path / "f.npy", chart="pca")


def test_npy_and_half_precision(run, tmp_path):
    encoder, images = load(run), open_images("shapes:70@test")
    embed(encoder, images, tmp_path / "f.npy", half=True)
    vectors = np.load(tmp_path / "f.npy", allow_pickle=False)
    full = extract(encoder, images, [VIEW], cache=None)[VIEW].features_ND
    assert vectors.dtype == np.float16
    np.testing.assert_array_equal(vectors, full.astype(np.float16))
    assert (tmp_path / "f.paths.txt").read_text().split("\n")[:-1] == list(images.paths)


def test_bad_targets_are_refused_before_any_work(run, tmp_path):
    encoder = load(run)
    images = open_images("shapes:10")
    with pytest.raises(ConfigError, match=r"allowed: a name that ends in \.parquet, \.npy or \.csv, or a folder"):
        embed(encoder, images, tmp_path / "f.txt")
    with pytest.raises(ConfigError, match="block99"):
        embed(encoder, images, tmp_path / "f.npy", views=[View("block99")])
    assert not list(tmp_path.iterdir())
    (tmp_path / "f.npy").touch()
    with pytest.raises(RunError, match="exists; give --overwrite"):
        embed(encoder, images, tmp_path / "f.npy")
    embed(encoder, images, tmp_path / "f.npy", overwrite=True)
    assert np.load(tmp_path / "f.npy").shape == (10, 64)
    assert torch.get_num_threads() == 1


def test_the_paths_of_somebody_else_are_not_replaced(run, tmp_path):
    """An array has its paths in a second file, which is as precious as the first."""
    encoder, images = load(run), open_images("shapes:10")
    (tmp_path / "f.paths.txt").write_text("mine")
    with pytest.raises(RunError, match=r"f.paths.txt exists; give --overwrite"):
        embed(encoder, images, tmp_path / "f.npy")
    assert (tmp_path / "f.paths.txt").read_text() == "mine"
    (tmp_path / "g.npy").mkdir()
    with pytest.raises(RunError, match=r"g.npy cannot be written: it exists and is not a regular file"):
        embed(encoder, images, tmp_path / "g.npy", overwrite=True)


def test_an_array_never_stands_beside_the_paths_of_another(run, tmp_path, monkeypatch):
    """Killed between the two files: the array is missing, and is not the earlier one."""
    encoder, out = load(run), tmp_path / "f.npy"
    embed(encoder, open_images("shapes:10"), out)
    real, images = os.replace, open_images("shapes:12")

    def killed(source, target):
        if str(target).endswith(".npy"):
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", killed)
        embed(encoder, images, out, overwrite=True)
    assert not out.exists() and (tmp_path / "f.paths.txt").read_text().count("\n") == 12
    embed(encoder, images, out, overwrite=True)
    assert len(np.load(out)) == 12 and sorted(p.name for p in tmp_path.iterdir()) == ["f.npy", "f.paths.txt"]


def test_two_embeddings_do_not_write_one_file(run, tmp_path):
    """The second would delete the parts of the first, or join its own paths to the vectors of the other."""
    encoder, images, out = load(run), open_images("shapes:70"), tmp_path / "f.parquet"

    def second(stage: str, done: int, total: int) -> None:
        with pytest.raises(RunError, match=r"f.parquet is being written by another process"):
            embed(encoder, open_images("shapes:10"), out)

    assert embed(encoder, images, out, report=second) == 70
    assert [path.name for path in tmp_path.iterdir()] == ["f.parquet"]


def test_parts_of_images_that_were_replaced_do_not_stay(run, tmp_path, small_pieces, monkeypatch):
    encoder, out = load(run), tmp_path / "f.parquet"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "make_table", mock.Mock(side_effect=KeyboardInterrupt))
        embed(encoder, open_images("shapes:70"), out)
    (kept,) = tmp_path.iterdir()
    assert kept.name.startswith(".f.parquet.parts-")
    strange = tmp_path / ".f.parquet.parts-list"
    strange.mkdir()
    embed(encoder, open_images("shapes:71"), out)
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
    embed(load(run), images, tmp_path / "f.parquet")
    assert pq.read_table(tmp_path / "f.parquet")["path"].to_pylist() == [
        "back\\slash.png",
        "latin-\\xe9.png",
        "plain.png",
        "two\nlines.png",
    ]
    embed(load(run), images, tmp_path / "f.npy")
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


def test_collapsed_features_are_written_with_a_warning(run, tmp_path, small_pieces, capsys):
    """The same encoder, blind: without its patch embedding every image looks the same."""
    seeing = load_weights(run / "encoder")
    (name,) = (name for name in seeing.tensors if name.endswith("patch_embed.weight"))
    blind = seeing.tensors | {name: 0 * seeing.tensors[name]}
    save_weights(tmp_path / "blind", blind, seeing.config, seeing.shortcuts)
    assert echoless.embed(tmp_path / "blind", "shapes:200", out=tmp_path / "f.parquet") == 200
    assert "warning: The features collapsed: RankMe is 1, so nearly all" in capsys.readouterr().err
    echoless.embed(tmp_path / "blind", "shapes:200", out=tmp_path / "patches.parquet", tokens=True)
    assert "collapsed" not in capsys.readouterr().err, "of patches nothing is said"


def test_the_labels_that_were_joined_are_counted(run, tmp_path, capsys):
    (photos := tmp_path / "photos").mkdir()
    for index in range(4):
        Image.new("RGB", (32, 32), (60 * index, 0, 0)).save(photos / f"{index}.png")
    (tmp_path / "labels.csv").write_text("path,label\n0.png,cat\n1.png,dog\n2.png,cat\nother.png,cow\n")
    echoless.embed(run, photos, out=tmp_path / "f.parquet", labels=tmp_path / "labels.csv", map="tsne")
    assert "labels: 2 classes from labels.csv, on 3 of 4 images (cat, dog)" in capsys.readouterr().err
    assert pq.read_table(tmp_path / "f.parquet")["label"].to_pylist() == ["cat", "dog", "cat", None]
    echoless.search(tmp_path / "f.parquet", query="0.png", k=3, table=tmp_path / "near.csv", out=tmp_path / "page.html")
    with (tmp_path / "near.csv").open(newline="") as text:
        assert {row["path"]: row["label"] for row in csv.DictReader(text)}["3.png"] == ""
    assert "None" not in (tmp_path / "page.html").read_text()
