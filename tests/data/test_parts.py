"""Long work in parts: every part is done once, by whoever is free; nothing is lost with a process that dies; and what
several processes build is, byte for byte, what one would have built.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from echoless.data import making, open_images
from echoless.data.parts import SharedParts, remove_abandoned
from echoless.errors import DataError
from echoless.runtime import Share
from echoless.storage.lock import FileLock


def forked(work) -> int:
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException:
        os._exit(9)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def noting(log: Path, seconds: float = 0.0):
    """Work that says which part it did, and who did it."""

    def work(first, last, file, tell):
        time.sleep(seconds)
        file.write_bytes(bytes([first % 251]) * (last - first))
        with log.open("a") as opened:
            opened.write(f"{first} {os.getpid()}\n")
        tell(last - first)
        return {"first": first, "last": last}

    return work


def test_three_processes_do_every_part_once_and_each_does_some(tmp_path):
    log = tmp_path / "log"
    log.touch()
    children = [
        forked(lambda n=n: SharedParts(tmp_path / "parts", 300, Share(n, 3), smallest=10).finish(noting(log, 0.02)))
        for n in range(3)
    ]
    assert [ended(child) for child in children] == [0, 0, 0]
    lines = [line.split() for line in log.read_text().splitlines()]
    assert sorted(int(first) for first, _ in lines) == list(range(0, 300, 10))
    assert {int(pid) for _, pid in lines} == set(children)
    again = SharedParts(tmp_path / "parts", 300, Share(0, 1), smallest=10)
    records = again.finish(lambda *_: pytest.fail("nothing is left to do"))
    assert [record["first"] for record in records] == list(range(0, 300, 10))
    assert again.file(3).read_bytes() == bytes([30]) * 10


def test_the_part_of_a_killed_process_is_done_by_another_that_waits_for_it(tmp_path):
    marker = tmp_path / "marker"

    def hangs(first, last, file, tell):
        file.write_bytes(b"half")
        marker.touch()
        time.sleep(600)

    parts = SharedParts(tmp_path / "parts", 20, Share(0, 2), smallest=10)
    child = forked(lambda: parts.finish(hangs))
    while not marker.exists():
        time.sleep(0.01)
    told: list[int] = []

    def tell(done, total):
        told.append(done)
        if len(told) == 6:  # the other part is done, and the first is still claimed
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    log = tmp_path / "log"
    records = SharedParts(tmp_path / "parts", 20, Share(1, 2), smallest=10).finish(noting(log), tell)
    assert [record["first"] for record in records] == [0, 10] and told[-1] == 20
    assert not list((tmp_path / "parts").glob("*.tmp-*"))


def test_progress_counts_what_all_processes_have_done_and_may_stop_the_work(tmp_path):
    SharedParts(tmp_path, 30, Share(0, 1), smallest=10)._do(0, noting(tmp_path / "log"), lambda done: None)
    told: list[tuple[int, int]] = []
    SharedParts(tmp_path, 30, Share(0, 1), smallest=10).finish(
        noting(tmp_path / "log"), lambda done, total: told.append((done, total))
    )
    assert told[0] == (20, 30) and told[-1] == (30, 30)

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SharedParts(tmp_path / "other", 30, Share(0, 1), smallest=10).finish(noting(tmp_path / "log"), stop)


def test_without_locks_the_parts_are_dealt_out(tmp_path, monkeypatch):
    monkeypatch.setattr(FileLock, "_lock", lambda self, busy: True)  # `held` stays False: a disk that has no locks
    done = {0: [], 1: []}

    def work_of(index):
        def work(first, last, file, tell):
            done[index].append(first)
            return {}

        return work

    def impatient(counted, total):
        if counted == 20:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        SharedParts(tmp_path, 40, Share(1, 2), smallest=10).finish(work_of(1), impatient)
    SharedParts(tmp_path, 40, Share(0, 2), smallest=10).finish(work_of(0))
    assert sorted(done[0]) == [0, 20] and sorted(done[1]) == [10, 30]


def test_a_record_that_does_not_count_any_more_is_made_again(tmp_path):
    log = tmp_path / "log"
    parts = SharedParts(tmp_path / "parts", 20, Share(0, 1), smallest=10)
    parts.finish(noting(log))
    parts.finish(noting(log), valid=lambda number, record: number != 1 or log.read_text().count("\n") > 2)
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["0", "10", "10"]
    (tmp_path / "parts" / "00000.json").write_text("{")
    parts.finish(noting(log))
    assert log.read_text().splitlines()[-1].startswith("0 ")


def test_abandoned_parts_are_removed_after_a_day_and_others_stay(tmp_path):
    for name, hours in (("parts-old", 25), ("parts-new", 1), ("other-old", 99)):
        (tmp_path / name).mkdir()
        file = tmp_path / name / "00000.json"
        file.touch()
        for path in (file, tmp_path / name):
            os.utime(path, (time.time() - hours * 3600,) * 2)
    remove_abandoned(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other-old", "parts-new"]


# --- a decoded cache, built by several processes ---


@pytest.fixture
def folder(tmp_path: Path, picture, encoded) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    for i in range(300):
        (data / f"{i:03d}.png").write_bytes(encoded(picture(i % 7, 16 + i % 3, 16)))
    (data / "005.png").write_bytes(encoded(picture(5, 200, 150)))  # large: it lies in another order (data/layout.py)
    (data / "077.png").write_bytes(b"no image")
    old = time.time() - 60
    for file in data.iterdir():
        os.utime(file, (old, old))
    return data


def _bytes(root: Path) -> dict[str, bytes]:
    (cache,) = (path for path in root.iterdir() if (path / "pixels.bin").exists())
    return {f"{cache.name}/{file.name}": file.read_bytes() for file in cache.iterdir()}


@pytest.mark.parametrize("kind", ["folder", "tiles", "shapes"])
def test_two_processes_build_the_cache_that_one_builds(kind, folder, tmp_path):
    data, options = ("shapes:200", {}) if kind == "shapes" else (folder, {"tiles": 8} if kind == "tiles" else {})
    options |= {"max_bad_fraction": 0.1}
    one, two = tmp_path / "one", tmp_path / "two"
    alone = open_images(data, cache_dir=one, **options)
    children = [
        forked(lambda n=n: open_images(data, cache_dir=two, share=Share(n, 2, "t"), **options)) for n in range(2)
    ]
    assert [ended(child) for child in children] == [0, 0]
    assert _bytes(one) == _bytes(two)
    assert not list(two.glob("parts-*/*.bin")), "what was joined is not kept twice"
    again = open_images(data, cache_dir=two, share=Share(0, 2, "u"), **options)
    assert again.fingerprint == alone.fingerprint and again.bad == alone.bad
    assert np.array_equal(again.get([0]).pixels[0], alone.get([0]).pixels[0])


def test_parts_of_another_order_are_not_joined(folder, tmp_path, monkeypatch):
    """An earlier version was stopped when its parts were done: they are no parts of this version's cache."""
    options = {"cache_dir": tmp_path / "cache", "max_bad_fraction": 0.1, "share": Share(0, 2, "t")}

    def stopped(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as earlier_version, pytest.raises(KeyboardInterrupt):
        earlier_version.setattr(making, "VERSION", 2)
        earlier_version.setattr(making, "build_cache", stopped)
        open_images(folder, **options)
    (earlier,) = {path.parent for path in (tmp_path / "cache").glob("parts-*/*.bin")}
    open_images(folder, **options)
    assert len(list(earlier.glob("*.bin"))) == len(list(earlier.glob("*.json"))), "left as they were"


def test_a_cache_that_is_gone_is_built_again_from_the_start(folder, tmp_path):
    import shutil

    options = {"cache_dir": tmp_path / "cache", "max_bad_fraction": 0.1, "share": Share(0, 2, "t")}
    open_images(folder, **options)
    before = _bytes(tmp_path / "cache")
    for path in list((tmp_path / "cache").iterdir()):
        if not path.name.startswith("parts-"):
            shutil.rmtree(path)
    open_images(folder, **options)
    assert _bytes(tmp_path / "cache") == before


def test_a_damaged_part_is_refused_and_decoded_again(folder, tmp_path, monkeypatch):
    import echoless.data.making as making

    options = {"cache_dir": tmp_path / "cache", "max_bad_fraction": 0.1, "share": Share(0, 2, "t")}
    original = making._finish

    def damaging(parts, *given):
        records = original(parts, *given)
        broken = bytearray(parts.file(1).read_bytes())
        broken[5] ^= 1
        parts.file(1).write_bytes(broken)
        return records

    monkeypatch.setattr(making, "_finish", damaging)
    with pytest.raises(DataError, match=r"00001.bin is damaged; the same command decodes its images again"):
        open_images(folder, **options)
    monkeypatch.setattr(making, "_finish", original)
    assert open_images(folder, **options).usable == 299


def test_where_the_cache_cannot_be_written_every_process_reads_by_itself(folder, tmp_path):
    (tmp_path / "file").touch()
    images = open_images(folder, cache_dir=tmp_path / "file" / "cache", max_bad_fraction=0.1, share=Share(0, 2, "t"))
    assert "cannot be written" in images.cache_note
    assert len(images.get(range(10)).pixels) == 10
