"""R21: the content decides every cache. Names, sizes and times never do, whenever and however a file is replaced.

Run alone: pytest tests/data/test_content.py -s
"""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from echoless.data import Images, open_images
from echoless.data.content import DIGEST_BYTES, Hasher, Memory
from echoless.data.sources import FolderSource


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("ECHOLESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def noise(path: Path, seed: int) -> None:
    """Every file has the same size, whatever it shows."""
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def folder(root: Path, seed: int, count: int = 6) -> Path:
    for number in range(count):
        noise(root / f"{number}.bmp", 1000 * seed + number)
    return root


def pixels(images: Images) -> np.ndarray:
    return np.stack(images.get(range(len(images))).pixels)


def settle(root: Path, monkeypatch) -> None:
    """As if the files had been written an hour before everything that follows."""
    clock = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: clock() + 3600 * 10**9)


def test_equal_names_and_sizes_of_different_images_share_nothing(tmp_path):
    first, second = (open_images(folder(tmp_path / name, seed)) for seed, name in enumerate(("train", "test")))
    assert first.fingerprint != second.fingerprint
    assert not np.array_equal(pixels(first), pixels(second))


def test_a_copy_elsewhere_is_the_same_set(tmp_path):
    whole = folder(tmp_path / "whole", 0)
    assert open_images(whole).fingerprint == open_images(shutil.copytree(whole, tmp_path / "copy")).fingerprint


@pytest.mark.parametrize("cache", ["auto", "off"])
def test_no_replacement_is_missed(tmp_path, monkeypatch, cache):
    """Random images replaced at random times, by writing, by renaming, with the old time of change put back."""
    root, draw, missed = folder(tmp_path / "set", 0), random.Random(0), 0
    fingerprint, shown = _look(root, cache)
    for change in range(100):
        target = root / f"{draw.randrange(6)}.bmp"
        times = (target.stat().st_atime_ns, target.stat().st_mtime_ns)
        place = draw.choice((target, tmp_path / "new.bmp"))
        noise(place, 10_000 + change)
        place.replace(target)
        if draw.random() < 0.5:
            os.utime(target, ns=times)
        before = (fingerprint, shown)
        fingerprint, shown = _look(root, cache)
        missed += fingerprint == before[0] or np.array_equal(shown, before[1])
    print(f"content cache={cache} replacements=100 missed={missed}")
    assert missed == 0


def test_an_edit_through_another_name_of_the_file_is_seen(tmp_path, monkeypatch):
    """A hard link outside of the folder: the file in it keeps its name, its place and its inode."""
    root = folder(tmp_path / "set", 0)
    (tmp_path / "other.bmp").hardlink_to(root / "3.bmp")
    settle(root, monkeypatch)
    before, times = _look(root, "auto"), (root / "3.bmp").stat()
    noise(tmp_path / "other.bmp", 99)
    os.utime(tmp_path / "other.bmp", ns=(times.st_atime_ns, times.st_mtime_ns))
    after = _look(root, "auto")
    assert after[0] != before[0] and not np.array_equal(after[1], before[1])


def _look(root: Path, cache: str) -> tuple[str, np.ndarray]:
    images = open_images(root, cache=cache)
    return images.fingerprint, pixels(images).copy()


def test_files_that_stay_untouched_are_not_read_again(tmp_path, monkeypatch):
    root = folder(tmp_path / "set", 0)
    settle(root, monkeypatch)
    first = open_images(root)
    monkeypatch.setattr(Path, "read_bytes", _only_memory(Path.read_bytes, root))
    again = open_images(root)
    assert again.fingerprint == first.fingerprint and np.array_equal(pixels(again), pixels(first))


@pytest.mark.skipif(os.name != "posix", reason="only there the time of change cannot be set")
def test_a_time_of_modification_in_the_future_does_not_cost_a_reading(tmp_path, monkeypatch):
    """A camera with a wrong clock, or a card of another time zone. A time of change in the future is not believed."""
    root = folder(tmp_path / "set", 0)
    later = time.time_ns() + 365 * 86400 * 10**9
    for file in root.iterdir():
        os.utime(file, ns=(later, later))
    settle(root, monkeypatch)
    open_images(root)
    source = FolderSource(root)
    assert Memory(tmp_path / "cache", source.stamps).recall(source.paths) is not None
    ahead = [each._replace(changed_ns=later) for each in source.stamps]
    hasher = Hasher()
    hasher.digests = bytearray(16 * len(ahead))
    memory = Memory(tmp_path / "cache", ahead)
    memory.keep(hasher)
    assert memory.exists and memory.recall(source.paths) is None


def _only_memory(plain, root):
    def read(path):
        assert root not in path.parents, f"{path} was read again"
        return plain(path)

    return read


def test_young_files_are_hashed_again_because_a_stamp_may_not_tell(tmp_path):
    """Within the resolution of its time of change a file can be written twice with one stamp."""
    root = folder(tmp_path / "set", 0)
    open_images(root)
    source = FolderSource(root)
    assert Memory(tmp_path / "cache", source.stamps).recall(source.paths) is None


def test_a_damaged_memory_is_not_believed(tmp_path, monkeypatch, own_cache):
    root = folder(tmp_path / "set", 0)
    settle(root, monkeypatch)
    true = open_images(root).fingerprint
    (memory,) = (own_cache / "content").iterdir()
    data = memory.read_bytes()
    for damaged in (b"", data[:-DIGEST_BYTES], bytes(len(data)), data[:-1] + bytes([data[-1] ^ 1])):
        memory.write_bytes(damaged)
        assert open_images(root).fingerprint == true


def test_an_image_that_could_not_be_read_once_is_read_the_next_time(tmp_path, monkeypatch):
    root = folder(tmp_path / "set", 0, count=200)
    settle(root, monkeypatch)
    plain = FolderSource.read

    def failing(self, index):
        if index == 3:
            raise OSError(5, "Input/output error")
        return plain(self, index)

    with monkeypatch.context() as patch:
        patch.setattr(FolderSource, "read", failing)
        assert [sample.index for sample in open_images(root).bad] == [3]
    assert open_images(root).bad == []


def test_arrays_are_hashed_image_by_image(tmp_path):
    def saved(seed: int) -> Path:
        file = tmp_path / "set.npz"
        np.savez(file, images=np.random.default_rng(seed).integers(0, 256, (8, 4, 4, 3), dtype=np.uint8))
        return file

    first, second = open_images(saved(0)), open_images(saved(1))
    assert first.fingerprint != second.fingerprint and len(first.digests_ND) == 8
