"""Proves that tiles cover every pixel, have stable numbers, and keep labels, identity and the order of a run.

Run alone: pytest tests/data/test_tiling.py
"""

from __future__ import annotations

import errno
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from echoless.data import Images, Loader, evaluation_batches, open_images
from echoless.data.overlap import count_known
from echoless.data.sources import FolderSource
from echoless.data.tiling import TilesOnDemand, Tiling, starts
from echoless.errors import ConfigError, DataError

Picture = Callable[..., np.ndarray]
Encoded = Callable[..., bytes]
SHAPES = {"a/wide.png": (40, 100), "a/tall.png": (70, 32), "b/small.png": (20, 24), "b/exact.png": (64, 64)}


@pytest.fixture
def scans(tmp_path: Path, picture: Picture, encoded: Encoded) -> Path:
    for number, (name, shape) in enumerate(SHAPES.items()):
        (tmp_path / "scans" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "scans" / name).write_bytes(encoded(picture(number, *shape)))
    return tmp_path / "scans"


@pytest.mark.parametrize("size", [1, 7, 32, 50])
@pytest.mark.parametrize("length", [1, 7, 31, 32, 33, 64, 100])
def test_tiles_of_an_axis_cover_it_inside(length: int, size: int) -> None:
    """As few as can cover it, all whole unless the axis is shorter, and only the last one moved inwards."""
    begin = starts(length, size)
    covered = {place for start in begin for place in range(start, start + size)}
    assert len(begin) == max(1, -(-length // size)) and covered >= set(range(length))
    assert begin[-1] == max(0, length - size) and begin[:-1] == [size * i for i in range(len(begin) - 1)]


@pytest.mark.parametrize("cache", ["on", "off"])
def test_a_tile_is_its_part_of_the_file(scans: Path, cache: str) -> None:
    images = open_images(scans, tiles=32, cache=cache)
    whole = open_images(scans, cache="off")
    pixels = {path: whole.get([index]).pixels[0] for index, path in enumerate(whole.paths)}
    assert images.files == 4 and len(images) == 2 * 4 + 3 * 1 + 1 + 2 * 2
    assert images.shape[0] == 3 and images.bad == []
    for index in (len(images) - 1, *range(len(images))):
        x, y = images.corners_N2[index]
        part = pixels[images.paths[index]][:, y : y + 32, x : x + 32]
        assert np.array_equal(images.get([index]).pixels[0], part)
    assert images.labels.tolist() == [0] * 11 + [1] * 5


def test_the_second_opening_reads_the_cache(scans: Path, own_cache: Path) -> None:
    first = open_images(scans, tiles=32)
    entries = sorted(path.name for path in own_cache.iterdir())
    second = open_images(scans, tiles=32)
    assert sorted(path.name for path in own_cache.iterdir()) == entries
    assert second.fingerprint == first.fingerprint and "cached in" in second.cache_note
    assert np.array_equal(second.corners_N2, first.corners_N2)


def test_tiles_of_another_size_are_other_images(scans: Path) -> None:
    tiles, others, whole = open_images(scans, tiles=32), open_images(scans, tiles=31), open_images(scans)
    assert len({tiles.fingerprint, others.fingerprint, whole.fingerprint}) == 3
    assert count_known(tiles, tiles) == len(tiles) and count_known(tiles, others) == 0


def test_order_and_crops_are_those_of_any_set(scans: Path) -> None:
    """A step is a function of its number, from the cache or from the files, with any number of threads."""

    def steps(images: Images, workers: int) -> list[torch.Tensor]:
        loader = Loader(images, size=(16, 16), batch_size=4, seed=1, mean=[0.5] * 3, std=[0.2] * 3, workers=workers)
        return [batch.images_BCHW for batch in loader.batches(2, 9)]

    cached, files = open_images(scans, tiles=32), open_images(scans, tiles=32, cache="off")
    expected = steps(cached, 0)
    for images, workers in ((cached, 2), (files, 0), (files, 2)):
        assert all(torch.equal(a, b) for a, b in zip(steps(images, workers), expected, strict=True))


def test_large_tiles_are_seen_whole(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    """No border is cropped away that no other tile has."""
    (tmp_path / "scan.png").write_bytes(encoded(picture(0, 320, 480)))
    images = open_images(tmp_path, tiles=160)
    batch = next(evaluation_batches(images, size=(160, 160), batch_size=6, mean=[0.0] * 3, std=[1.0] * 3, workers=0))
    rows = [torch.cat(list(batch.images_BCHW[start : start + 3]), dim=2) for start in (0, 3)]
    levels = (torch.cat(rows, dim=1) * 255).round().to(torch.uint8)
    assert torch.equal(levels, torch.from_numpy(picture(0, 320, 480)).permute(2, 0, 1))


def test_images_that_are_smaller_than_a_tile_are_counted(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    """They were taken as they are, at another scale, and nothing was said."""

    def said(size: int) -> list[str]:
        heard: list[str] = []
        images = open_images(tmp_path, tiles=size, say=heard.append, max_bad_fraction=0.5)
        assert images.notes == tuple(heard)
        return heard

    for number, (height, width) in enumerate(((20, 50), (50, 50), (64, 40))):
        (tmp_path / f"{number}.png").write_bytes(encoded(picture(number, height=height, width=width)))
    (tmp_path / "broken.png").write_bytes(b"no image")
    assert said(16) == []
    assert said(48) == [
        "tiles: 2 of 4 images have a side shorter than 48, which is not cut: their tiles are smaller, and seen at "
        "another scale than the others"
    ]
    assert said(64) == ["tiles: no image is larger than 64 x 64, so none is cut: each is one tile, as large as it is"]


def test_a_file_that_cannot_be_read_is_one_bad_tile(scans: Path) -> None:
    (scans / "a" / "broken.png").write_bytes(b"not an image")
    images = open_images(scans, tiles=32, max_bad_fraction=0.5)
    (bad,) = images.bad
    assert bad.path == "a/broken.png" and images.usable == 16
    batches = evaluation_batches(images, size=(8, 8), batch_size=5, mean=[0] * 3, std=[1] * 3)
    assert sum(len(batch.ids_B) for batch in batches) == 16


class Flaky:
    """`FolderSource.read` that fails for one file, at its reads of these numbers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, failing: range) -> None:
        self.reads, read = 0, FolderSource.read

        def failing_read(source: FolderSource, index: int) -> bytes:
            if source.paths[index] == name:
                self.reads += 1
                if self.reads in failing:
                    raise OSError(errno.EIO, "Input/output error")
            return read(source, index)

        monkeypatch.setattr(FolderSource, "read", failing_read)


def test_a_read_that_failed_once_is_not_remembered(scans: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashing a file reads it first, its size second; what cannot be read then is no property of the file."""
    with monkeypatch.context() as patch:
        Flaky(patch, "a/wide.png", range(2, 3))
        assert len(open_images(scans, tiles=32).paths) == 9
    assert len(open_images(scans, tiles=32).paths) == 16


def test_pixels_of_other_bytes_are_not_cached_under_this_name(scans: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that fails or is replaced between hashing and cutting would be in the cache for ever."""
    with monkeypatch.context() as patch:
        Flaky(patch, "a/wide.png", range(3, 9))
        with pytest.raises(DataError, match=r"a/wide\.png changed while it was read, or cannot be read any more"):
            open_images(scans, tiles=32, max_bad_fraction=1.0)
    images = open_images(scans, tiles=32)
    assert images.usable == len(images.paths) == 16 and not images.bad


def test_sizes_are_measured_again_with_other_decoders(scans: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be decoded before an extra was installed can be afterwards."""
    with monkeypatch.context() as patch:
        patch.setattr("echoless.data.encoded.file_shape", lambda data, settings: (0, 0))
        assert len(open_images(scans, tiles=32, max_bad_fraction=1.0).paths) == 4
    assert len(open_images(scans, tiles=32).paths) == 4, "kept"
    monkeypatch.setattr("echoless.data.encoded.decoder_versions", lambda: ["another"])
    assert len(open_images(scans, tiles=32).paths) == 16


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: bytes(len(data)), lambda data: data[:-16]])
def test_damaged_sizes_are_measured_again(scans: Path, own_cache: Path, damage: Callable[[bytes], bytes]) -> None:
    whole = open_images(scans, tiles=32)
    (sizes,) = (own_cache / "content").glob("*.shapes")
    sizes.write_bytes(damage(sizes.read_bytes()))  # and the pixels stay cached
    assert len(open_images(scans, tiles=32).paths) == len(whole.paths) == 16


@pytest.mark.parametrize("change", ["replaced", "failing"])
def test_a_tile_without_a_cache_is_of_the_file_that_was_hashed(
    scans: Path, monkeypatch: pytest.MonkeyPatch, change: str, picture: Picture, encoded: Encoded
) -> None:
    images = open_images(scans, tiles=32, cache="off", max_bad_fraction=1.0)
    (number, *_) = [i for i, path in enumerate(images.paths) if path == "a/wide.png"]
    if change == "replaced":
        (scans / "a" / "wide.png").write_bytes(encoded(picture(77, 64, 96)))
    else:
        Flaky(monkeypatch, "a/wide.png", range(99))
    assert not len(images.get([number]).pixels)
    reason = {"replaced": "it changed after the data set was opened", "failing": "Input/output error"}[change]
    assert [each.reason for each in images.bad] == [reason]


def test_what_cannot_be_cut_is_refused() -> None:
    with pytest.raises(ConfigError, match="tiles is 4; allowed: 8 or more"):
        open_images("shapes:4", tiles=4)
    with pytest.raises(ConfigError, match="shapes:4 holds no image files"):
        open_images("shapes:4", tiles=16)


def test_numbers_of_a_file_are_together() -> None:
    tiling = Tiling.of(np.array([[40, 100], [0, 0], [20, 24]]), 32)
    assert [list(tiling.numbers(file)) for file in range(3)] == [list(range(8)), [8], [9]]


def test_tiles_on_demand_do_not_keep_their_files_in_memory() -> None:
    """In random order, each tile of a batch kept a whole file."""
    tiling = Tiling.of(np.full((8, 2), 64), 32)

    def decoded(file: int) -> np.ndarray:
        image = np.full((3, 64, 64), file, np.uint8)
        files.append(weakref.ref(image))
        return image

    files: list[weakref.ref[np.ndarray]] = []
    tiles = TilesOnDemand(tiling, decoded).fetch(np.arange(0, 32, 4))
    assert [int(tile[0, 0, 0]) for tile in tiles] == list(range(8)) == list(range(len(files)))
    assert sum(each() is not None for each in files) <= 2
