"""The page of a search costs the memory of one file, decodes each once, and stays small enough to be used.

Run alone: pytest tests/evaluation/test_search_thumbnails.py
"""

from __future__ import annotations

import re
import weakref
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import echoless
from echoless.evaluation import originals
from echoless.reports.search_page import Tile
from echoless.verbs import searching

FILES, SIDE, TILE = 4, 240, 60  # 16 tiles of each file


@pytest.fixture
def tiles(run, tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("scans").mkdir()
    for number in range(FILES):
        pixels = np.random.default_rng(number).integers(0, 256, (SIDE // 8, SIDE // 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((SIDE, SIDE)).save(f"scans/{number}.png")
    echoless.embed(run, "scans", out="tiles.parquet", tiles=TILE)
    return Path("tiles.parquet")


class Decoded:
    """Counts whole files that are decoded, and those that are in memory at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files, self.most, self._alive = 0, 0, 0
        decode = originals.decode

        def counted(data: bytes, settings: object) -> np.ndarray:
            image = np.array(decode(data, settings))  # it owns its memory: whatever is cut from it refers to it
            self.files, self._alive = self.files + 1, self._alive + 1
            self.most = max(self.most, self._alive)
            weakref.finalize(image, self._gone)
            return image

        monkeypatch.setattr(originals, "decode", counted)

    def _gone(self) -> None:
        self._alive -= 1


@pytest.mark.parametrize(
    "asked", [{"query": "scans/0.png", "k": 20}, {"query": "0.png", "k": 20}, {"outliers": True}], ids=str
)
def test_thumbnails_of_tiles_hold_one_file_and_decode_each_once(tiles, monkeypatch, asked):
    """Every thumbnail decoded its whole file and kept it: 960 of six photographs took more than 20 GB."""
    decoded = Decoded(monkeypatch)
    echoless.search(tiles, **asked)
    assert decoded.most == 1
    assert decoded.files == (FILES if "outliers" in asked else 1 + FILES), "those of the queries, then the others"


def test_duplicates_of_tiles_hold_few_files_and_decode_each_once(tiles, monkeypatch):
    """For the candidates, for the altered copies, and for the page."""
    decoded = Decoded(monkeypatch)
    echoless.search(tiles, duplicates=True)
    assert decoded.most == 1 and 2 * FILES <= decoded.files <= 3 * FILES


def test_each_tile_is_shown_as_its_own_part_of_the_file(tiles):
    """In whatever order the files are decoded."""
    searcher = searching.Searcher(searching.FeatureTable(tiles))
    paths, corners = list(searcher.paths)[::-3], searcher.corners[::-3]
    found = searcher.originals.made(lambda tile: tile, paths, corners)
    for path, (x, y), tile in zip(paths, corners, found):
        whole = np.asarray(Image.open(Path("scans") / path)).transpose(2, 0, 1)
        assert np.array_equal(tile, whole[:, y : y + TILE, x : x + TILE])


def test_a_page_has_a_bounded_number_of_thumbnails_and_says_what_it_leaves_out(tiles, monkeypatch):
    """A photograph of 48 tiles put 960 neighbours on one page. The list is whole."""
    monkeypatch.setattr(searching, "THUMBNAILS", 100)
    found = echoless.search(tiles, query="0.png", k=20, table="near.csv")
    page = Path("search.html").read_text()
    assert page.count("data:image/jpeg") == 16 * (1 + 5) and len(found.neighbours) == 16 * 20
    assert "of each query only the nearest 5 of 20 are shown; --table FILE.csv writes all of them." in page
    assert "are shown" not in echoless.search(tiles, query="0.png", k=5).page.read_text()


def test_thumbnails_that_take_long_are_counted(tiles, monkeypatch, capsys):
    """A search sat silent for minutes. A short one says nothing."""
    line = re.compile(r"^thumbnails 32/32 images$", re.M)
    for seconds, said in ((1e9, False), (0.0, True)):
        monkeypatch.setattr(searching, "_QUIETLY", seconds)
        echoless.search(tiles, query="0.png", k=2)
        assert bool(line.search(capsys.readouterr().err)) == said


def test_below_a_thumbnail_the_name_of_the_file_is_whole(tiles):
    """Tiles were called `…g at 2560,2488`: whose they were could not be told."""
    tile = Tile("scans of 2024/hospital of the north/IMG_0000.JPG at 2560,2488")
    assert (tile.folder, tile.file) == ("scans of…e north/", "IMG_0000.JPG at 2560,2488")
    assert (Tile("a/b.png").folder, Tile("a/b.png").file, Tile("b.png").folder) == ("a/", "b.png", "")
    page = echoless.search(tiles, outliers=True).page.read_text()
    assert "<bdi>0.png at 60,120</bdi>" in page and 'title="0.png at 60,120"' in page
    (style,) = re.findall(r"\.tile \.path {(.*?)}", page)
    assert "ellipsis" not in style and "hidden" not in style
