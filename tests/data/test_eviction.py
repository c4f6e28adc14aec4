"""Proves that decoded caches stay under their limit, that one in use stays, and that no kill leaves half of one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from echoless.data import open_images
from echoless.data.cache import build_cache, open_cache, remove_debris
from echoless.data.eviction import cache_limit, make_room
from echoless.errors import ConfigError

ABOUT = {"channels": 1, "bits": 8, "shape": [1, 10, 10]}


def fill(root: Path, *keys: str) -> None:
    """Caches of 1000 images of 100 pixels, the first unused for longest."""
    for age, key in enumerate(reversed(keys)):
        build_cache(root, lambda key=key: key, ABOUT, [[np.full((1, 10, 10), 7, np.uint8)] * 1000])
        os.utime(root / key / "about.json", (10**9 - age, 10**9 - age))


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.name != "content")


def test_the_cache_unused_for_longest_goes_first(own_cache: Path) -> None:
    fill(own_cache, "a", "b", "c")
    assert make_room(own_cache, 10**6) == "" and names(own_cache) == ["a", "b", "c"]
    assert open_cache(own_cache, "a") is not None  # used now
    sentence = make_room(own_cache, 300_000)
    assert names(own_cache) == ["a", "c"]
    assert sentence.startswith("removed the least recently used cache (") and str(own_cache) in sentence
    assert make_room(own_cache, 0).startswith("removed the 2 least recently used caches (")
    assert names(own_cache) == []


def test_other_folders_are_left_alone(own_cache: Path) -> None:
    (own_cache / "latents-1").mkdir()
    (own_cache / "latents-1" / "about.json").write_text("{}")
    (own_cache / "features").mkdir()
    fill(own_cache, "a")
    make_room(own_cache, 0)
    assert names(own_cache) == ["features", "latents-1"]


USER = """
import sys
from pathlib import Path
from echoless.data.cache import open_cache
pixels = open_cache(Path(sys.argv[1]), "a")
print("open", flush=True)
sys.stdin.read()
print(int(pixels.fetch([0, 999])[1].sum()), flush=True)
"""


def test_a_cache_that_another_process_uses_stays_until_it_ends(own_cache: Path) -> None:
    fill(own_cache, "a", "b")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", USER, str(own_cache)], text=True, **pipes) as user:
        assert user.stdout is not None and user.stdout.readline() == "open\n"
        assert make_room(own_cache, 0).startswith("removed the least recently used cache")
        assert names(own_cache) == ["a"]
        user.kill()
    assert make_room(own_cache, 0).startswith("removed the least recently used cache")
    assert names(own_cache) == []


def test_a_cache_in_use_here_stays_until_it_is_let_go(own_cache: Path) -> None:
    fill(own_cache, "a")
    pixels = open_cache(own_cache, "a")
    assert pixels is not None and make_room(own_cache, 0) == ""
    assert pixels.fetch(np.array([5])).sum() == 700
    del pixels
    assert make_room(own_cache, 0) and names(own_cache) == []


KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from echoless.data.eviction import make_room
def rmtree(folder, **_):
    os.unlink(folder / "index.npy")
    os.kill(os.getpid(), signal.SIGKILL)
shutil.rmtree = rmtree
make_room(Path(sys.argv[1]), 0)
"""


def test_a_kill_in_the_middle_leaves_no_half_cache(own_cache: Path) -> None:
    fill(own_cache, "a")
    done = subprocess.run([sys.executable, "-c", KILLED, str(own_cache)], check=False)
    assert done.returncode == -signal.SIGKILL
    (leftover,) = own_cache.iterdir()
    assert leftover.name.startswith(".building-a-") and open_cache(own_cache, "a") is None
    os.utime(leftover, (10**9, 10**9))  # as if a minute had passed
    remove_debris(own_cache)
    assert names(own_cache) == []
    print("eviction kills=1 half_caches=0 debris=0")


TRAFFIC = """
import sys
from echoless.data import open_images
for turn in range(24):
    count = 20 + (5 * turn + int(sys.argv[1])) % 4
    images = open_images(f"shapes:{count}")
    print(count, int(images.get(range(count)).pixels.sum()), flush=True)
"""


def test_two_processes_that_evict_each_others_caches_read_what_is_right(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ECHOLESS_CACHE_LIMIT", "0.15M")  # two sets of twenty
    start = [sys.executable, "-c", TRAFFIC]
    both = [subprocess.Popen([*start, str(number)], stdout=subprocess.PIPE, text=True) for number in range(2)]
    answers = [process.communicate()[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    right = {n: int(open_images(f"shapes:{n}", cache="off").get(range(n)).pixels.sum()) for n in range(20, 24)}
    assert all(line == f"{n} {right[n]}" for lines in answers for line in lines for n in [int(line.split()[0])])
    assert all(len(lines) == 24 for lines in answers)
    assert not [name for name in names(own_cache) if name.startswith(".")]


def test_opening_says_what_went_and_does_not_cache_what_can_never_fit(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ECHOLESS_CACHE_LIMIT", "100 KB")
    said: list[str] = []
    for count in (20, 21):
        open_images(f"shapes:{count}", say=said.append)
    assert len(said) == 1 and said[0].startswith("removed the least recently used cache")
    assert len(names(own_cache)) == 1
    assert "more than the 100,000 that all caches may take" in open_images("shapes:100", say=said.append).cache_note
    assert len(said) == 1 and len(names(own_cache)) == 1


def test_the_limit_is_a_quarter_of_the_disk_or_what_was_chosen(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ECHOLESS_CACHE_LIMIT", raising=False)
    assert cache_limit(own_cache) == shutil.disk_usage(own_cache).total // 4
    for text, expected in (("1234", 1234), ("20G", 20 * 10**9), ("1.5 tb", 15 * 10**11), ("0", 0)):
        monkeypatch.setenv("ECHOLESS_CACHE_LIMIT", text)
        assert cache_limit(own_cache) == expected
    for text in ("-1", "much", "20 GiB", "1e9"):
        monkeypatch.setenv("ECHOLESS_CACHE_LIMIT", text)
        with pytest.raises(ConfigError, match=f"ECHOLESS_CACHE_LIMIT is '{text}'; allowed: a number of bytes"):
            open_images("shapes:10")
