"""Proves that the cache holds what was decoded, and that neither a killed nor a second builder can spoil it."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from echoless.data import cache, open_images
from echoless.data.cache import build_cache, default_cache_dir, in_parallel, open_cache, remove_debris
from echoless.data.images import BadSample
from echoless.errors import DataError

Picture = Callable[..., np.ndarray]
Encoded = Callable[..., bytes]
ABOUT = {"channels": 1, "bits": 8, "shape": [1, 2, 3]}


@pytest.fixture
def folder(tmp_path: Path, picture: Picture, encoded: Encoded) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    for i in range(300):
        (data / f"{i:03d}.png").write_bytes(encoded(picture(i % 7, 16, 16)))
    return data


def _entries(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.name != "content")


def _settled(root: Path) -> bool:
    return not [name for name in _entries(root) if name.startswith(".building-")]


def test_what_is_written_is_read(own_cache: Path) -> None:
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (1, h, w), dtype=np.uint8) for h, w in ((2, 3), (5, 4), (1, 1))]
    bad = BadSample(1, "b.png", "empty")
    pixels = build_cache(own_cache, lambda: "key", ABOUT, [[images[0], bad], [images[1], images[2]]])
    fetched = pixels.fetch(np.array([3, 1, 0, 2]))
    assert fetched[1] == bad and pixels.bad == [bad]
    for got, wanted in zip((fetched[0], fetched[2], fetched[3]), (images[2], images[0], images[1])):
        assert np.array_equal(got, wanted)
    assert _entries(own_cache) == ["key"] and _entries(own_cache / "key") == ["about.json", "index.npy", "pixels.bin"]


def test_small_images_are_one_array_and_large_ones_are_not_copied(own_cache: Path) -> None:
    for name, side in (("small", 32), ("large", 300)):
        images = [np.full((1, side, side), level, dtype=np.uint8) for level in (3, 5, 7)]
        pixels = build_cache(own_cache, lambda name=name: name, ABOUT, [images])
        fetched = pixels.fetch(np.array([2, 0]))
        assert [int(image.max()) for image in fetched] == [7, 3]
        mapped = [np.shares_memory(image, pixels._pixels) for image in fetched]
        assert isinstance(fetched, np.ndarray) == (name == "small") and mapped == [name == "large"] * 2


def test_an_error_of_the_disk_is_not_lost_while_images_are_decoded(own_cache: Path, monkeypatch) -> None:
    """Linux reports it once: had nobody listened to the first flush, the last one would succeed."""

    def failing(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(cache, "_FLUSHED_AT_ONCE", 1)
    monkeypatch.setattr(cache.os, "fdatasync", failing)
    image = np.zeros((1, 2, 3), dtype=np.uint8)
    with pytest.raises(OSError, match="Input/output error"):
        build_cache(own_cache, lambda: "key", ABOUT, [[image]] * 3)
    assert _entries(own_cache) == []


@pytest.mark.parametrize("damage", ["pixels.bin", "index.npy", "about.json"])
def test_a_damaged_cache_is_built_again(damage: str, folder: Path, own_cache: Path) -> None:
    before = open_images(folder).get(range(300)).pixels
    key = own_cache / _entries(own_cache)[0]
    with (key / damage).open("r+b") as file:
        file.truncate(20)
    assert np.array_equal(open_images(folder).get(range(300)).pixels, before)
    assert open_cache(own_cache, key.name) is not None and _settled(own_cache)


def test_pixels_that_were_zeroed_or_changed_are_refused_and_decoded_again(folder: Path, own_cache: Path) -> None:
    """By a faulty disk: the size is right, so that opening cannot tell; the first use of an image does."""
    before = open_images(folder).get(range(300)).pixels
    key = own_cache / _entries(own_cache)[0]
    whole = (key / "pixels.bin").read_bytes()
    for damaged in (bytes(len(whole)), whole[:-1] + bytes([whole[-1] ^ 1])):
        (key / "pixels.bin").write_bytes(damaged)
        with pytest.raises(DataError, match=r"is damaged: the pixels of image \d+ are not the ones that were written"):
            open_images(folder).get(range(300))
        assert np.array_equal(open_images(folder).get(range(300)).pixels, before)


def test_an_index_that_was_zeroed_is_not_believed(folder: Path, own_cache: Path) -> None:
    before = open_images(folder).get(range(300)).pixels
    file = own_cache / _entries(own_cache)[0] / "index.npy"
    np.save(file, np.zeros_like(np.load(file)))
    assert np.array_equal(open_images(folder).get(range(300)).pixels, before)


def test_changed_data_or_settings_have_another_cache(folder: Path, own_cache: Path, encoded: Encoded) -> None:
    open_images(folder)
    open_images(folder)
    assert len(_entries(own_cache)) == 1
    open_images(folder, channels=1)
    assert len(_entries(own_cache)) == 2
    same = (folder / "000.png").read_bytes()
    (folder / "000.png").write_bytes(same)
    os.utime(folder / "000.png", ns=(1, 1))
    open_images(folder)
    assert len(_entries(own_cache)) == 2  # the content decides, not its time
    (folder / "000.png").write_bytes((folder / "001.png").read_bytes())
    open_images(folder)
    assert len(_entries(own_cache)) == 3


BUILDER = """
import sys, time
from echoless.data import encoded, open_images
if sys.argv[2] == "slow":
    plain = encoded.decode
    def decode(*arguments):
        time.sleep(0.005)
        return plain(*arguments)
    encoded.decode = decode
def told(done, total):
    print("progress", done, flush=True)
images = open_images(sys.argv[1], progress=told)
print("opened", len(images), images.get(range(len(images))).pixels.sum(), flush=True)
"""


def _start(folder: Path, pace: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILDER, str(folder), pace]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})


def test_a_killed_builder_leaves_nothing_that_matters(folder: Path, own_cache: Path) -> None:
    """SIGKILL in the middle of the build; the next start builds, and cleans up."""
    builder = _start(folder, "slow")
    assert builder.stdout is not None and builder.stdout.readline().startswith("progress")
    builder.send_signal(signal.SIGKILL)
    builder.wait()
    builder.stdout.close()
    assert [name for name in _entries(own_cache) if name.startswith(".building-")]
    images = open_images(folder)
    assert len(images) == 300 and images.bad == []
    assert _settled(own_cache) and len(_entries(own_cache)) == 1
    print("cache kills=1 usable_after=1 debris=0")


def test_two_builders_at_once_agree(folder: Path, own_cache: Path) -> None:
    builders = [_start(folder, "slow") for _ in range(2)]
    answers = [builder.communicate()[0].splitlines()[-1] for builder in builders]
    assert [builder.returncode for builder in builders] == [0, 0]
    expected = open_images(folder, cache="off").get(range(300)).pixels
    assert answers == [f"opened 300 {np.stack(expected).sum()}"] * 2
    assert _settled(own_cache) and len(_entries(own_cache)) == 1


def test_work_in_progress_is_not_debris(own_cache: Path) -> None:
    def chunks() -> object:
        yield [np.zeros((1, 2, 3), np.uint8)]
        remove_debris(own_cache)
        young = own_cache / ".building-young"
        young.mkdir()
        old = own_cache / ".building-old"
        old.mkdir()
        os.utime(old, (time.time() - 3600,) * 2)
        remove_debris(own_cache)
        assert young.exists() and not old.exists()
        young.rmdir()

    assert len(build_cache(own_cache, lambda: "key", ABOUT, chunks()).index) == 1


def test_a_failed_build_leaves_nothing(own_cache: Path) -> None:
    def chunks() -> object:
        yield [np.zeros((1, 2, 3), np.uint8)]
        raise RuntimeError("the source failed")

    with pytest.raises(RuntimeError, match="the source failed"):
        build_cache(own_cache, lambda: "key", ABOUT, chunks())
    assert _entries(own_cache) == []


def test_no_room_means_no_cache_and_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import resource

    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    images = open_images(folder, cache_dir=blocked / "cache")
    assert images.cache_note.startswith("no cache: ") and "bytes needed" in images.cache_note
    assert len(images.get([0, 1]).pixels) == 2
    with pytest.raises(DataError, match="cache is 'on' but no cache"):
        open_images(folder, cache="on", cache_dir=blocked / "cache")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        full = open_images(folder, cache_dir=tmp_path / "full")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    assert full.cache_note.startswith("no cache: ") and _entries(tmp_path / "full") == []


def test_a_cache_larger_than_half_the_disk_is_not_built(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from collections import namedtuple

    from echoless.data import cache_place

    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(cache_place.shutil, "disk_usage", lambda _: usage(10**6, 0, 300_000))
    assert "more than half" in open_images(folder).cache_note
    assert "cached in" in open_images(folder, cache="on").cache_note


def test_a_thread_that_collects_what_nobody_closed_does_not_wait_for_itself() -> None:
    """Where the consumer failed, the generator goes whenever its last reference does, in whatever thread that is."""
    kept: list[Iterator[int]] = []
    dropped, ready = threading.Event(), threading.Event()

    def drop(item: int) -> int:
        if item == 2:
            assert ready.wait(10)
            kept.clear()
            dropped.set()
        return item

    kept.append(in_parallel(drop, range(5), 1))
    assert next(kept[0]) == 0
    ready.set()
    assert dropped.wait(10)  # an error in there would be an unraisable one, which fails the test


def test_the_place_of_the_cache_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ECHOLESS_CACHE", str(tmp_path / "a"))
    assert default_cache_dir() == tmp_path / "a"
    monkeypatch.delenv("ECHOLESS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert default_cache_dir() == tmp_path / "b" / "echoless"


def test_parallel_results_keep_their_order_and_errors_come_through() -> None:
    def slow_first(number: int) -> int:
        time.sleep(0.02 if number % 4 == 0 else 0)
        if number == 30:
            raise ValueError("thirty")
        return number

    results = in_parallel(slow_first, range(40), 3)
    assert [next(results) for _ in range(30)] == list(range(30))
    with pytest.raises(ValueError, match="thirty"):
        next(results)


def test_the_cache_holds_no_path_of_this_machine(folder: Path, own_cache: Path) -> None:
    open_images(folder)
    key = own_cache / _entries(own_cache)[0]
    assert str(folder) not in json.dumps(json.loads((key / "about.json").read_text()))
