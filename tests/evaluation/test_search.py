"""`search` finds the nearest images, planted copies and strangers in what `embed` wrote, and refuses in one sentence.

Run alone: pytest tests/evaluation/test_search.py
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import echoless
from echoless.cli.main import main
from echoless.data import open_images
from echoless.errors import ConfigError, DataError, RunError
from echoless.evaluation import originals
from echoless.evaluation.approximate import approximate_neighbours
from echoless.evaluation.duplicates import ALTERATIONS, Duplicates
from echoless.evaluation.feature_table import FeatureTable
from echoless.measures import nearest_in_blocks
from echoless.verbs.searching import SearchResult

CLASSES = ("disc", "ring")


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """Drawn images in two folders; of the first ones there are altered copies."""
    folder, images = tmp_path_factory.mktemp("photos"), open_images("shapes:120@test")
    for index in range(120):
        picture = Image.fromarray(images.get([index]).pixels[0].transpose(1, 2, 0)).resize((96, 96))
        place = folder / CLASSES[index % 2]
        place.mkdir(exist_ok=True)
        picture.save(place / f"{index:03d}.png")
        for number, alter in enumerate(ALTERATIONS.values()):
            if index // 4 == number:
                alter(picture).save(place / f"{index:03d}-copy.png")
    return folder


@pytest.fixture(scope="module")
def features(run, photos, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("features") / "features.parquet"
    echoless.embed(run, photos, out=out)
    return out


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_an_image_of_the_table_finds_itself_with_its_own_digits(features, photos):
    """By its file, encoded again: the vector is bitwise that of the table. And by its path, without an encoder."""
    found = echoless.search(features, query=photos / "disc" / "040.png", k=3)
    first = found.neighbours.to_pylist()[0]
    assert (first["path"], first["rank"], first["label"]) == ("disc/040.png", 1, "disc")
    assert first["similarity"] == pytest.approx(1, abs=1e-6)
    stored = echoless.search(features, query="disc/040.png", k=2)
    assert stored.neighbours["path"].to_pylist() == found.neighbours["path"].to_pylist()[1:]
    dotted = echoless.search(features, query="./disc/040.png", k=2)
    assert dotted.neighbours["path"] == stored.neighbours["path"], "as a name that begins with a dash may be given"
    assert "disc/040.png" in str(found) and Path("search.html").read_text().count("data:image/jpeg") == 3


def test_the_images_of_a_folder_are_queries(features, photos):
    found = echoless.search(features, query=photos / "ring", k=5, out="ring.html")
    assert len(found.neighbours) == 5 * len(list((photos / "ring").iterdir()))
    assert found.neighbours["query"].to_pylist()[::5] == sorted(p.name for p in (photos / "ring").iterdir())
    assert "queries are not shown" in Path("ring.html").read_text() and "more; --table FILE.csv" in str(found)


def test_files_of_a_query_folder_that_are_no_images_are_left_out_and_named(features, photos):
    """One broken file or link of hundreds ended the search."""
    Path("queries").mkdir()
    for name in ("040.png", "042.png"):
        shutil.copy(photos / "disc" / name, "queries")
    Path("queries/broken.jpg").write_bytes(b"no image")
    Path("queries/link.jpg").symlink_to("nowhere")
    found = echoless.search(features, query="queries", k=1)
    assert found.neighbours["path"].to_pylist() == ["disc/040.png", "disc/042.png"]
    assert found.notes[-2].startswith("unreadable query, left out: queries/broken.jpg: ")
    assert found.notes[-1] == "unreadable query, left out: queries/link.jpg: No such file or directory"
    for name in ("040.png", "042.png"):
        Path("queries", name).unlink()
    with pytest.raises(DataError, match=r"none of the 2 images can be used; queries/broken\.jpg: "):
        echoless.search(features, query="queries", k=1)


def test_planted_copies_are_found_and_told_from_others(features):
    """Re-encoded, cropped by 2 % and mirrored, with an encoder that has hardly learned anything."""
    found = echoless.search(features, duplicates=True, table="copies.csv")
    groups: dict[int, set[str]] = {}
    for row in found.duplicates.to_pylist():
        groups.setdefault(row["group"], set()).add(row["path"].replace("-copy", ""))
    pairs = [names for names in groups.values() if len(names) == 1]
    print(f"duplicates: {len(pairs)} of 12 copies in {len(groups)} groups; {found.notes[1]}")
    assert len(pairs) >= 11 and len(groups) <= 14
    assert "chosen with altered copies of 132 images of the set" in found.notes[1]
    assert "100.0 % (mirrored)" in found.notes[1]
    assert len(Path("copies.csv").read_text().splitlines()) == 1 + len(found.duplicates)


def frames(scenes: int, each: int, folder: Path, size: int = 192, detail: int = 6) -> Path:
    """Films of smooth noise: from frame to frame, the camera moves by a pixel."""
    folder.mkdir()
    for scene in range(scenes):
        coarse = np.random.default_rng(scene).integers(0, 256, (detail, detail, 3), dtype=np.uint8)
        whole = Image.fromarray(coarse).resize((size + each, size), Image.Resampling.BICUBIC)
        for frame in range(each):
            whole.crop((frame, 0, frame + size, size)).save(folder / f"{scene:02d}-{frame:02d}.png")
    return folder


@pytest.mark.parametrize(("size", "detail"), [(192, 6), (64, 10), (128, 24), (224, 12)])
def test_frames_of_films_are_near_duplicates_of_their_neighbours(run, tmp_path, size, detail):
    """They agree better than altered copies do, and the threshold rose until it found neither."""
    echoless.embed(run, frames(14, 12, tmp_path / "film", size, detail), out="film.parquet")
    found = echoless.search("film.parquet", duplicates=True)
    scenes: dict[int, set[str]] = {}
    for row in found.duplicates.to_pylist():
        scenes.setdefault(row["group"], set()).add(row["path"].split("-")[0])
    print(found.notes[-1])
    assert len(found.duplicates) == 14 * 12 and len(scenes) == 14
    assert all(len(each) == 1 for each in scenes.values())
    assert "NOT found" not in str(found)


def test_the_kinds_of_copies_that_are_missed_are_listed_as_in_a_sentence():
    """ "those a and those b and those c", it said."""
    found = Duplicates([], torch.zeros(0), 0.9, dict.fromkeys(ALTERATIONS, 0.1), calibrated_on=9)
    assert "those JPEG of quality 50, those cropped by 2 % and those mirrored mostly stay below 0.9" in found.doubt


def test_where_no_threshold_tells_copies_from_look_alikes_it_is_said_with_what_to_type(run, tmp_path):
    """A single film in which everything is alike: most near-duplicates are missed, and that is no success."""
    echoless.embed(run, frames(1, 60, tmp_path / "film"), out="film.parquet")
    found = echoless.search("film.parquet", duplicates=True)
    print("\n".join(found.notes))
    assert "most near-duplicates were NOT found" in found.notes[-1]
    assert found.notes[-1].endswith("give --threshold 0.95")
    assert len(echoless.search("film.parquet", duplicates=True, threshold=0.95).duplicates) == 60


def test_a_set_in_which_all_images_are_a_little_alike_makes_no_large_group(run, tmp_path):
    """As X-rays are: one body, and what is each one's own."""
    (tmp_path / "alike").mkdir()
    for number in range(80):
        body, own = (np.random.default_rng(seed).normal(size=(8, 8, 3)) for seed in (0, number + 1))
        pixels = (128 + 30 * body + 6 * own).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).resize((96, 96), Image.Resampling.BICUBIC).save(tmp_path / "alike" / f"{number}.png")
    echoless.embed(run, tmp_path / "alike", out="alike.parquet")
    found = echoless.search("alike.parquet", duplicates=True)
    print("\n".join(found.notes))
    assert len(found.duplicates) <= 8


def test_equal_files_agree_by_one(run, tmp_path):
    """Half precision made it 0.9998."""
    folder, pixels = tmp_path / "twins", np.random.default_rng(0)
    folder.mkdir()
    for index in range(12):
        Image.fromarray(pixels.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(folder / f"{index}.png")
        shutil.copy(folder / f"{index}.png", folder / f"{index} copy.png")
    echoless.embed(run, folder, out="twins.parquet")
    found = echoless.search("twins.parquet", duplicates=True).duplicates
    assert len(found) == 24 and min(found["agreement"].to_pylist()) > 1 - 1e-6


def near(*cosines: float) -> list[list[float]]:
    """Vectors with these cosines to the first axis."""
    return [[c, (1 - c * c) ** 0.5] for c in cosines]


@pytest.mark.parametrize(
    ("cosines", "shown"),
    [((0.91, 0.72, 0.43), "0.91 0.72 0.43"), ((0.99991, 0.99983, 0.99978), "0.9999 0.9998 0.9998")],
)
def test_similarities_have_the_decimals_that_tell_them_apart(cosines, shown):
    table = pa.table({"path": ["q", "a", "b", "c"], "feature": near(1.0, *cosines)})
    pq.write_table(table, "cosines.parquet")
    text = str(echoless.search("cosines.parquet", query="q", k=3))
    assert [line.split()[1] for line in text.splitlines()[1:4]] == shown.split()
    assert ("on average: read the similarities against that" in text) == (min(cosines) > 0.95)


def test_all_queries_of_a_table_have_the_same_decimals():
    """Two in one list stood beside four in the next."""
    columns = {"query": ["q", "q", "r", "r"], "rank": [1, 2, 1, 2], "path": ["a", "b", "c", "d"]}
    found = SearchResult("search.html", pa.table(columns | {"similarity": [0.91, 0.72, 0.99991, 0.99978]}))
    assert str(found).splitlines()[:-1] == [
        "query q",
        "   1  0.9100  a",
        "   2  0.7200  b",
        "query r",
        "   1  0.9999  c",
        "   2  0.9998  d",
    ]


def test_images_at_an_address_are_compared_and_shown(run, photos, capsys):
    """Where the user names the address: an address that only the table names is not opened."""
    fsspec = pytest.importorskip("fsspec")
    images = [{"bytes": file.read_bytes(), "path": file.name} for file in sorted((photos / "disc").iterdir())]
    pq.write_table(pa.table({"image": images}), "near.parquet")
    fsspec.filesystem("memory").pipe("/search/far.parquet", Path("near.parquet").read_bytes())
    echoless.embed(run, "memory://search/far.parquet", out="features.parquet")
    with pytest.raises(DataError, match=r"images are at memory://search/far.parquet, which is not opened unasked"):
        echoless.search("features.parquet", duplicates=True)
    found = echoless.search("features.parquet", query="040.png", k=3)
    assert "data:image/jpeg" not in found.page.read_text()
    assert "images: none are shown; the table says that its images are at memory://" in capsys.readouterr().err
    found = echoless.search("features.parquet", duplicates=True, root="memory://search/far.parquet")
    assert len(found.duplicates) >= 2 * 5 and "data:image/jpeg" in found.page.read_text()


def test_duplicates_by_features_alone_need_a_threshold_and_no_images(features, tmp_path):
    with pytest.raises(ConfigError, match="by is 'features', which needs --threshold"):
        echoless.search(features, duplicates=True, by="features")
    found = echoless.search(features, duplicates=True, by="features", threshold=1 - 1e-5)
    vectors = FeatureTable(features).vectors().astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    near = (vectors @ vectors.T > 1 - 1e-5) & ~np.eye(len(vectors), dtype=bool)
    assert abs(int(near.any(axis=1).sum()) - len(found.duplicates)) <= 2, "but for rounding"


def test_each_kind_of_search_has_a_page_of_its_own(features):
    """A query, then duplicates, then outliers left one page of three."""
    for asked in ({"query": "disc/040.png"}, {"duplicates": True, "threshold": 0.9}, {"outliers": True}):
        found = echoless.search(features, **asked)
        (kind,) = asked.keys() - {"threshold"}
        name = "search.html" if kind == "query" else f"{kind}.html"
        assert found.page == Path(name) and str(found).endswith(f"{name}: the page of this search")
    assert {path.name for path in Path().glob("*.html")} == {"search.html", "duplicates.html", "outliers.html"}
    both = echoless.search(features, duplicates=True, outliers=True, threshold=0.9)
    assert both.page == Path("search.html")
    assert echoless.search(features, outliers=True, out="mine.html").page == Path("mine.html")


def test_an_outlier_comes_first(run, photos, tmp_path):
    shutil.copytree(photos, tmp_path / "odd")
    Image.fromarray(np.zeros((96, 96, 3), np.uint8)).save(tmp_path / "odd" / "disc" / "black.png")
    echoless.embed(run, tmp_path / "odd", out="f.parquet")
    found = echoless.search("f.parquet", outliers=True, k=5)
    assert found.outliers["path"][0].as_py() == "disc/black.png" and len(found.outliers) == 133
    distances = found.outliers["distance"].to_pylist()
    assert distances == sorted(distances, reverse=True)


def test_a_folder_of_parts_and_tiles_and_data_without_files(run, photos, tmp_path):
    """Thumbnails come from wherever the images are."""
    echoless.embed(run, photos, out="parts", part_size="10K")
    assert len(echoless.search("parts", query="disc/040.png", k=4).neighbours) == 4
    echoless.embed(run, photos, out="tiles.parquet", tiles=48)
    found = echoless.search("tiles.parquet", query=photos / "disc" / "040.png", k=4)
    assert {"x", "y"} <= set(found.neighbours.column_names) and " at 48,0" in str(
        echoless.search("tiles.parquet", outliers=True)
    )
    echoless.embed(run, "shapes:30", out="drawn.parquet")
    echoless.search("drawn.parquet", query="shapes/train/00000003", k=4)
    assert Path("search.html").read_text().count("data:image/jpeg") == 5


def test_images_that_were_named_by_a_pattern_are_found_again_from_another_folder(run, photos, tmp_path, monkeypatch):
    """A folder that holds a .tar beside its images is given as a pattern: pages and duplicates need its files, too."""
    monkeypatch.chdir(photos.parent)
    echoless.embed(run, f"{photos.name}/**/*", out=tmp_path / "f.parquet")
    monkeypatch.chdir(tmp_path)
    found = echoless.search("f.parquet", query="disc/040.png", k=4)
    assert Path("search.html").read_text().count("data:image/jpeg") == 5 and "not shown" not in str(found)
    assert len(echoless.search("f.parquet", duplicates=True).duplicates) >= 12


def test_shards_that_were_named_by_a_pattern_are_found_again(run, photos, tmp_path, monkeypatch):
    (tmp_path / "shards").mkdir()
    with tarfile.open(tmp_path / "shards" / "0.tar", "w") as tar:
        for file in sorted((photos / "disc").glob("*.png")):
            tar.add(file, file.name)
    echoless.embed(run, "shards/*.tar", out="f.parquet")
    echoless.search("f.parquet", query="040.png", k=4)
    assert Path("search.html").read_text().count("data:image/jpeg") == 5


def test_images_that_are_gone_are_counted_and_not_called_shown(run, photos, tmp_path):
    shutil.copytree(photos / "disc", tmp_path / "disc")
    echoless.embed(run, "disc", out="f.parquet")
    assert "not shown" not in str(echoless.search("f.parquet", query="040.png", k=4))
    shutil.move("disc", "moved")
    printed = str(echoless.search("f.parquet", query="040.png", k=4))
    assert f"4 of the 4 images on the page are not shown: not found at {tmp_path}/disc; give --root PLACE" in printed
    assert "not shown" not in str(echoless.search("f.parquet", query="040.png", k=4, root="moved"))


def test_each_tile_of_a_query_has_its_own_list_which_names_its_corner(run, photos):
    """All tiles of a file have its path."""
    echoless.embed(run, photos, out="tiles.parquet", tiles=48)
    echoless.search("tiles.parquet", query="disc/040.png", k=1)
    assert "The 1 image nearest to each of 4 queries" in Path("search.html").read_text()
    found = echoless.search("tiles.parquet", query="disc/040.png", k=2)
    corners = [f"disc/040.png at {x},{y}" for y in (0, 48) for x in (0, 48)]
    assert found.neighbours["query"].to_pylist() == [name for name in corners for _ in range(2)]
    assert [line for line in str(found).splitlines() if line.startswith("query")] == [
        f"query {name}" for name in corners
    ]
    page = Path("search.html").read_text()
    assert all(name in page for name in corners)
    near = found.neighbours.to_pylist()[0]
    assert f"{near['path']} at {near['x']},{near['y']}" in page


def test_a_file_is_cut_as_the_images_of_a_table_of_tiles_were(run, photos, tmp_path):
    """A whole scan, made as small as a tile, was compared with tiles, and nobody said so."""
    shutil.copyfile(photos / "disc" / "040.png", "scan.png")
    Image.open("scan.png").crop((48, 0, 96, 48)).save("tile.png")
    echoless.embed(run, photos, out="tiles.parquet", tiles=48)
    found = echoless.search("tiles.parquet", query="scan.png", k=1)
    corners = [(x, y) for y in (0, 48) for x in (0, 48)]
    rows = [(row["query"], row["path"], (row["x"], row["y"])) for row in found.neighbours.to_pylist()]
    assert rows == [(f"scan.png at {x},{y}", "disc/040.png", (x, y)) for x, y in corners]
    assert found.neighbours["similarity"].to_pylist() == pytest.approx([1.0] * 4, abs=1e-6), "the vectors of the table"
    said = "query: 1 file cut into 4 tiles of 48 x 48, as the images of the table were"
    assert said in str(found)
    assert Path("search.html").read_text().count("data:image/jpeg") == 8, "each tile is shown beside its neighbour"
    (one,) = echoless.search("tiles.parquet", query="tile.png", k=1).neighbours.to_pylist()
    assert (one["query"], one["path"], one["x"], one["y"]) == ("tile.png at 0,0", "disc/040.png", 48, 0)
    assert "cut into" not in str(echoless.search("tiles.parquet", query="tile.png", k=1))
    echoless.embed(run, photos, out="whole.parquet")
    whole = echoless.search("whole.parquet", query="scan.png", k=1)
    assert whole.neighbours["query"].to_pylist() == ["scan.png"] and "cut into" not in str(whole)


def test_an_encoder_that_is_gone_or_another_one_is_refused(run, photos, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    echoless.embed("run", photos / "disc", out="f.parquet")
    shutil.move("run", "moved")
    photo = photos / "disc" / "040.png"
    with pytest.raises(
        RunError, match=r"the encoder of f\.parquet cannot be opened .* give --encoder with its new place"
    ):
        echoless.search("f.parquet", query=photo)
    assert echoless.search("f.parquet", query=photo, encoder="moved", k=1).neighbours["path"][0].as_py() == "040.png"
    other = sorted((run / "snapshots").glob("step-*"))[0]
    with pytest.raises(RunError, match=r"is not the encoder that made f\.parquet"):
        echoless.search("f.parquet", query=photo, encoder=other)


def test_images_that_are_gone_leave_the_lists_and_refuse_the_rest(run, photos, tmp_path):
    shutil.copytree(photos / "disc", "gone")
    echoless.embed(run, "gone", out="f.parquet")
    shutil.rmtree("gone")
    assert len(echoless.search("f.parquet", query="040.png", k=3).neighbours) == 3
    assert Path("search.html").read_text().count("no image") == 4
    with pytest.raises(DataError, match="any more, so that no pair can be confirmed; give --root PLACE, or --by"):
        echoless.search("f.parquet", duplicates=True)
    assert len(echoless.search("f.parquet", duplicates=True, root=photos / "disc").duplicates) >= 10, "found again"


def test_any_table_with_paths_and_vectors_can_be_searched_by_path():
    vectors = pa.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    pq.write_table(pa.table({"path": ["a", "b", "c"], "feature": vectors}), "other.parquet")
    assert echoless.search("other.parquet", query="a", k=2).neighbours["path"].to_pylist() == ["b", "c"]
    Image.new("RGB", (8, 8)).save("query.png")
    with pytest.raises(ConfigError, match="does not say which encoder made it; give --encoder RUN"):
        echoless.search("other.parquet", query="query.png")


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"path": ["a"], "vector": [[1.0]]}, "has the columns path, vector; it must have path and feature"),
        ({"path": ["a"], "feature": [1.0]}, "the column feature is double; allowed: lists of numbers"),
        ({"path": ["a", "b"], "feature": [[1.0], [1.0, 2.0]]}, "has vectors of 1 to 2 numbers; they must be equal"),
        ({"path": ["a", "b"], "feature": [[1.0], None]}, "has rows without a feature"),
        ({"path": ["a", "b"], "feature": [[1.0], [float("nan")]]}, "not finite in row 1"),
        ({"path": ["a"], "feature": [[[1.0], [2.0, 3.0]]]}, "feature is list<.*; allowed: lists of numbers"),
        ({"path": ["a", "b"], "feature": [[1.0], [1.0]], "label": [["x"], ["y"]]}, "label is list.*; allowed: text or"),
        ({"path": pa.array([], pa.string()), "feature": pa.array([], pa.list_(pa.float32()))}, "holds no rows"),
    ],
)
def test_tables_that_cannot_be_searched_are_refused(table, sentence):
    pq.write_table(pa.table(table), "bad.parquet")
    with pytest.raises(DataError, match=sentence):
        echoless.search("bad.parquet", query="a")


def test_wrong_arguments_are_refused_in_one_sentence(features, tmp_path):
    for words, sentence in {
        ("nowhere.parquet", "--outliers"): "features 'nowhere.parquet' does not exist; give the .parquet file",
        (str(features),): "nothing to search for; give --query IMAGE, --duplicates or --outliers",
        (str(features), "--query", "nowhere.jpg"): "'nowhere.jpg' is no file or folder, and no path in",
        (str(features), "--outliers", "--out", "x.pdf"): "out is 'x.pdf'; allowed: a file whose name ends in .html",
        (str(features), "--outliers", "--table", "x.txt"): "table is 'x.txt'; allowed: a name that ends in .csv",
        (str(features), "--outliers", "--threshold", "0.5"): "threshold is 0.5, which needs --duplicates",
        (str(features), "--outliers", "--k", "0"): "k is 0; allowed: a whole number, 1 or more",
        (str(tmp_path), "--outliers"): "holds no .parquet file; give what `echoless embed` wrote",
    }.items():
        code, shown = _typed("search", *words)
        assert code == 2 and sentence in shown, (words, shown)
    (tmp_path / "text.jpg").write_text("no image")
    assert "text.jpg cannot be used" in _typed("search", str(features), "--query", "text.jpg")[1]


def test_no_file_of_others_is_replaced(features):
    """A table replaced any file that was named, the features themselves too; a page replaced any .html."""
    before, words = features.read_bytes(), ("search", str(features), "--outliers")
    code, shown = _typed(*words, "--table", str(features))
    assert code == 2 and "which exists; give --overwrite to replace it, or another --table" in shown
    assert features.read_bytes() == before
    Path("mine.html").write_text("<title>mine</title>")
    for verb in (words, ("report", ".")):
        code, shown = _typed(*verb, "--out", "mine.html")
        assert code == 2 and "out is 'mine.html', which exists and is no page of echoless; give another --out" in shown
        assert ("or --overwrite to replace it" in shown) == (verb is words), "where the verb has it"
    assert Path("mine.html").read_text() == "<title>mine</title>"
    for _ in range(2):
        assert _typed(*words, "--out", "page.html")[0] == 0
    assert _typed(*words, "--out", "mine.html", "--table", "odd.csv")[0] == 2
    assert not Path("odd.csv").exists()
    for more in ((), ("--overwrite",)):
        assert _typed(*words, "--out", "page.html", "--table", "odd.csv", *more)[0] == 0


def _typed(*words: str) -> tuple[int, str]:
    import contextlib
    import io

    with contextlib.redirect_stderr(io.StringIO()) as shown, contextlib.redirect_stdout(shown):
        code = main(words)
    return code, shown.getvalue()


def test_the_list_for_programs(features):
    code, printed = _typed("search", str(features), "--query", "disc/040.png", "--k", "2", "--json")
    records = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    *found, summary = records
    assert code == 0 and [record["rank"] for record in found] == [1, 2]
    assert {"kind", "query", "similarity", "path", "label"} <= set(found[0])
    assert (summary["kind"], summary["neighbours"], summary["page"]) == ("summary", 2, "search.html")


def test_nothing_found_is_said_to_programs_too(run):
    """They got no line at all, as from a command that had failed in silence."""
    echoless.embed(run, "shapes:2@test", out="two.parquet")
    words = ("--duplicates", "--by", "features", "--threshold", "1", "--json")
    code, printed = _typed("search", "two.parquet", *words)
    (summary,) = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert code == 0 and summary["duplicates"] == 0
    assert "0 groups of near-duplicates, with 0 of 2 images" in summary["notes"]


def test_faiss_finds_nearly_all_of_the_true_neighbours_and_says_how_many():
    pytest.importorskip("faiss", reason="NOT RUN: faiss is not installed")
    vectors = np.random.default_rng(0).standard_normal((6000, 16)).astype(np.float32)
    blocks = lambda: iter([vectors[:2500], vectors[2500:]])  # noqa: E731
    found = approximate_neighbours(blocks, 6000, lambda: iter([vectors[:300]]), 10)
    true = nearest_in_blocks(blocks(), vectors[:300], 10)[1]
    share = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.rows_MK.tolist(), true.tolist())])
    print(f"faiss: measured {found.recall:.3f}, true {share:.3f}")
    assert found.recall >= 0.99 and share > 0.97


def test_faiss_finds_all_neighbours_among_few_rows():
    """So few that the first try looks into every cell of the index."""
    pytest.importorskip("faiss", reason="NOT RUN: faiss is not installed")
    vectors = np.random.default_rng(0).standard_normal((100, 16)).astype(np.float32)
    found = approximate_neighbours(lambda: iter([vectors]), 100, lambda: iter([vectors[:10]]), 5)
    true = nearest_in_blocks(iter([vectors]), vectors[:10], 5)[1]
    assert found.recall == 1 and found.rows_MK.tolist() == true.tolist()


def test_faiss_by_name_and_without_it(features, monkeypatch):
    pytest.importorskip("faiss", reason="NOT RUN: faiss is not installed")
    found = echoless.search(features, outliers=True, engine="faiss", k=3)
    assert "of the true neighbours of a few rows were found" in found.notes[0]
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ConfigError, match=r"need faiss; install the extra: pip install 'echoless\[search\]'"):
        echoless.search(features, outliers=True, engine="faiss")


@pytest.mark.parametrize("spread", [1e-6, 1.0])
def test_a_table_of_collapsed_features_is_searched_with_a_warning(spread):
    """By the rule of `evaluate`: RankMe below two."""
    noise = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array((1 + spread * noise).ravel()), 16)
    pq.write_table(pa.table({"path": [f"{i}.png" for i in range(300)], "feature": vectors}), "f.parquet")
    found = echoless.search("f.parquet", query="7.png", k=2)
    warned = [note for note in found.notes if note.startswith("warning: The features collapsed: RankMe is 1")]
    assert len(warned) == (spread < 1) and all(note in str(found) for note in warned)


def test_a_sample_of_a_table_is_from_all_over_it():
    vectors = np.arange(5000, dtype=np.float32).repeat(2).reshape(5000, 2)
    rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 2)
    table = pa.table({"path": [str(i) for i in range(5000)], "feature": rows})
    for group_size in (5000, 100):
        pq.write_table(table, "f.parquet", row_group_size=group_size)
        sample = FeatureTable("f.parquet").sample(250)[:, 0]
        assert 250 <= len(sample) <= 500 and sample[0] == 0 and sample[-1] > 4500
        assert np.diff(sample).min() > 0


def said(about: dict[str, str], **columns) -> Path:
    """A table whose metadata somebody else wrote."""
    table = pa.table({"path": ["a.png", "b.png"], "feature": pa.array([[1.0, 0.0], [0.0, 1.0]]), **columns})
    metadata = {f"echoless.{key}": value for key, value in about.items()}
    pq.write_table(table.replace_schema_metadata(metadata), "t.parquet")
    return Path("t.parquet")


@pytest.mark.parametrize(
    ("about", "columns", "sentence"),
    [
        ({"tiles": "many"}, {}, "says in its metadata that tiles is 'many'; allowed: a whole number, 1 or more"),
        ({"tiles": "-3"}, {}, "tiles is '-3'"),
        ({"tiles": "9" * 5000}, {}, "tiles is '9999"),
        ({"noise": "nan"}, {}, "noise is 'nan'; allowed: a number from 0 to 1"),
        ({"noise": "1e3"}, {}, "noise is '1e3'"),
        ({"tiles": "8"}, {"x": ["1", "2"], "y": ["1", "2"]}, "the column x is string; allowed: whole numbers"),
        ({"tiles": "8"}, {"x": [1, None], "y": [1, 2]}, "the column x is int64; allowed: whole numbers, one in each"),
    ],
)
def test_metadata_that_is_malformed_is_refused_in_one_sentence(about, columns, sentence):
    with pytest.raises(DataError, match=sentence):
        echoless.search(said(about, **columns), outliers=True)


def test_odd_places_in_metadata_are_places_without_images():
    """A zero byte, a device without an end, a pipe, a tile beyond its image: no image, and no traceback."""
    os.mkfifo("a.png")
    Path("b.png").symlink_to("/dev/zero")
    for root in (".", "/nowhere\0else", "/dev/zero", "x:y"):
        echoless.search(said({"root": root}), outliers=True)
        assert "data:image/jpeg" not in Path("outliers.html").read_text()
    Image.new("RGB", (16, 16), (200, 0, 0)).save("c.png")
    corners = {"path": ["c.png", "c.png"], "x": [0, 10**12], "y": [0, -5]}
    echoless.search(said({"root": ".", "tiles": "8"}, **corners), outliers=True)
    assert Path("outliers.html").read_text().count("data:image/jpeg") == 1


@pytest.mark.parametrize("place", ["s3://bucket/run", "timm:hf-hub:somebody/model", "local-dir:/tmp"])
def test_an_encoder_that_may_come_from_the_network_must_be_named(place):
    Image.new("RGB", (8, 8)).save("query.png")
    with pytest.raises(ConfigError, match=f"says that '{place}' made it, which may come from the network"):
        echoless.search(said({"run": place}), query="query.png")


def test_what_the_table_opens_is_said_before_it_is_opened(features, photos, run, capsys):
    echoless.search(features, query=photos / "disc" / "040.png", k=1)
    lines = capsys.readouterr().err.splitlines()
    assert f"encoder: {run}, as {features} says; --encoder names another" in lines
    assert f"images: {photos}, as {features} says; --root names another place" in lines
    echoless.search(features, query=photos / "disc" / "040.png", k=1, encoder=run, root=photos)
    assert " says; " not in capsys.readouterr().err, "what the user named is known"


def test_an_archive_of_originals_is_opened_once(run, photos, monkeypatch):
    """However many groups the page shows, and every file is decoded once for all of its tiles."""
    with tarfile.open("photos.tar", "w") as archive:
        for file in sorted((photos / "disc").iterdir()):
            archive.add(file, file.name)
    echoless.embed(run, "photos.tar", out="f.parquet", tiles=48)
    opened, decoded = [], []
    find, decode = originals.find_source, originals.decode
    monkeypatch.setattr(originals, "find_source", lambda *given: opened.append(given) or find(*given))
    monkeypatch.setattr(originals, "decode", lambda *given: decoded.append(given) or decode(*given))
    found = echoless.search("f.parquet", duplicates=True, threshold=0.9)
    assert len(found.duplicates) > 4 and len(opened) == 1
    files, shown = len(list((photos / "disc").iterdir())), len(found.duplicates)
    assert files <= len(decoded) <= files + shown


def test_many_vectors_are_read_without_holding_them(tmp_path, monkeypatch):
    """200 MB of vectors: the memory of the process grows by a few blocks; what is mapped belongs to the system."""
    width, rows = 512, 100_000
    writer = None
    for start in range(0, rows, 10_000):
        block = np.random.default_rng(start).standard_normal((10_000, width)).astype(np.float32)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(block.ravel()), width)
        table = pa.table({"path": [str(start + i) for i in range(10_000)], "feature": lists})
        writer = writer or pq.ParquetWriter("big.parquet", table.schema, compression="none")
        writer.write_table(table)
    writer.close()
    before = own_memory()
    vectors = FeatureTable("big.parquet").vectors()
    grown = own_memory() - before
    print(f"vectors of {vectors.nbytes / 1e6:.0f} MB: the process grew by {grown / 1e6:.0f} MB")
    assert vectors.shape == (rows, width) and grown < vectors.nbytes / 2
    assert (vectors[start:] == block).all(), "in their order"


def own_memory() -> int:
    """Bytes that belong to this process alone."""
    pytest.importorskip("resource", reason="NOT RUN: /proc is of Linux")
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return 1024 * int(line.split()[1])
