"""R34: a clock that is wrong, or that is set during the work, changes no number and believes no old image.

The clock of the process is moved by a day back or a year ahead; the files keep the times of the file system, as those
of a server with another clock do. Run alone: pytest tests/reliability/test_r34_clocks.py
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from PIL import Image
from tiny import fingerprint, tiny_config, tiny_images, tiny_run

import echoless
from echoless.data import open_images
from echoless.storage.atomic import clear_leftovers, new_file
from echoless.training import loop

DAY = 86_400
JUMPS = pytest.mark.parametrize("seconds", [-DAY, 365 * DAY], ids=["a day back", "a year ahead"])


@contextmanager
def clock_moved(seconds: int) -> Iterator[None]:
    now, now_ns = time.time, time.time_ns
    with (
        mock.patch.object(time, "time", lambda: now() + seconds),
        mock.patch.object(time, "time_ns", lambda: now_ns() + seconds * 10**9),
    ):
        yield


class Died(BaseException):
    """As if the process had ended here."""


def die_after(step: int) -> Callable[..., None]:
    keep = loop._keep

    def kept(session: object, done: int, report: object) -> None:
        keep(session, done, report)
        if done == step:
            raise Died

    return kept


@pytest.fixture
def own_cache(tmp_path_factory, monkeypatch) -> None:
    monkeypatch.setenv("ECHOLESS_CACHE", str(tmp_path_factory.mktemp("cache")))


@JUMPS
def test_a_run_resumed_under_another_clock_is_the_same_run(tmp_path, seconds):
    """Every file of the last checkpoint, the encoder and the log are equal in every bit; it had died at step 6 of 8."""
    images = tiny_images(32)
    config = tiny_config(images, steps=8)
    tiny_run(tmp_path / "whole", images, config)
    with mock.patch.object(loop, "_keep", die_after(6)), pytest.raises(Died):
        tiny_run(tmp_path / "torn", images, config)
    with clock_moved(seconds):
        tiny_run(tmp_path / "torn", images, config, resume=True)
    assert fingerprint(tmp_path / "whole", 8) == fingerprint(tmp_path / "torn", 8)


def noise(place: Path, seed: int) -> None:
    """A bitmap, whose size does not say what it shows."""
    place.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(place)


@JUMPS
def test_an_image_that_is_replaced_under_another_clock_is_seen(tmp_path, own_cache, seconds):
    """Read twice before, so that everything that can be remembered is; read again under either clock."""
    for number in range(4):
        noise(tmp_path / "photos" / f"{number}.bmp", number)
    before = [open_images(tmp_path / "photos") for _ in range(2)]
    with clock_moved(seconds):
        again = open_images(tmp_path / "photos")
        noise(tmp_path / "photos" / "2.bmp", 99)
        after = open_images(tmp_path / "photos")
    later = open_images(tmp_path / "photos")
    assert before[0].fingerprint == before[1].fingerprint == again.fingerprint
    assert after.fingerprint == later.fingerprint != before[0].fingerprint
    changed = [bool((a != b).any()) for a, b in zip(before[0].get(range(4)).pixels, after.get(range(4)).pixels)]
    assert changed == [False, False, True, False]


@JUMPS
def test_a_measurement_is_repeated_under_another_clock(tmp_path, own_cache, seconds):
    """Features and results of a day that has not come yet, or of the last year, are the same numbers."""
    run = tmp_path / "run"
    echoless.pretrain("shapes:64", out=run, recipe="demo", max_steps=2, batch_size=16)
    wanted = {"train": "shapes:60", "test": "shapes:40@test", "metrics": ("knn",), "baselines": False}
    first = echoless.evaluate(run, **wanted)
    with clock_moved(seconds):
        second = echoless.evaluate(run, **wanted)
    assert list(first) == list(second)


@JUMPS
def test_what_a_living_process_writes_is_no_leftover_for_another_clock(tmp_path, seconds):
    """By its process, not by its age: a file that is being written stays until it is there."""
    with mock.patch("os.getpid", return_value=os.getppid()), new_file(tmp_path / "table.parquet") as file:
        file.write(b"half")
        with clock_moved(seconds), mock.patch("os.getpid", return_value=1_234_567):
            clear_leftovers(tmp_path)
        file.write(b" and half")
    assert (tmp_path / "table.parquet").read_bytes() == b"half and half"
