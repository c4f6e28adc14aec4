"""Proves that hostile or broken tar shards do no harm: nothing is followed, unpickled, extracted or over-allocated."""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from echoless.data import open_images
from echoless.data.provenance import short_name
from echoless.data.shards import absolute_pattern, expand, expand_braces, is_local_pattern
from echoless.errors import DataError

Picture = Callable[..., np.ndarray]
Encoded = Callable[..., bytes]


def _add(tar: tarfile.TarFile, name: str, data: bytes = b"", **fields: object) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    tar.addfile(info, io.BytesIO(data))


def test_links_devices_and_pickles_are_passed_over(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    canary, secret = tmp_path / "canary", tmp_path / "secret.png"
    secret.write_bytes(encoded(picture(9)))

    class Payload:
        def __reduce__(self) -> tuple:
            return Path.touch, (canary,)

    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        _add(tar, "good.png", encoded(picture(0)))
        _add(tar, "good.pkl", pickle.dumps(Payload()))
        _add(tar, "good.cls", b"4")
        _add(tar, "link.png", type=tarfile.SYMTYPE, linkname=str(secret))
        _add(tar, "hard.png", type=tarfile.LNKTYPE, linkname="good.png")
        _add(tar, "pipe.png", type=tarfile.FIFOTYPE)
        _add(tar, "device.png", type=tarfile.CHRTYPE)
        _add(tar, "../../escape.png", encoded(picture(1)))
        _add(tar, "escape.cls", b"1")
    images = open_images(tmp_path / "a.tar")
    assert images.paths == ["good.png", "../../escape.png"]
    assert not canary.exists() and not (tmp_path.parent.parent / "escape.png").exists()
    assert images.class_names == ("4",) and images.labels.tolist() == [
        0,
        -1,
    ]  # the key of the second is ../../escape, which has no label


def test_a_shard_cut_short_keeps_what_is_whole(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for i in range(4):
            _add(tar, f"{i}.png", encoded(picture(i)))
    data = (tmp_path / "a.tar").read_bytes()
    size = len(encoded(picture(3)))
    start = data.index(encoded(picture(3)))
    (tmp_path / "a.tar").write_bytes(data[: start + size // 2])
    images = open_images(tmp_path / "a.tar", max_bad_fraction=0.5)
    assert [sample.path for sample in images.bad] in ([], ["3.png"])
    kept = [i for i in range(len(images)) if i not in images.excluded]
    assert kept == [0, 1, 2]


def test_an_announced_size_allocates_nothing(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        _add(tar, "0.png", encoded(picture(0)))
        _add(tar, "1.png", b"x" * 10)
    data = bytearray((tmp_path / "a.tar").read_bytes())
    start = data.index(b"1.png\0")
    header = data[start : start + 512]
    header[124:136] = b"77777777777\0"  # eight gigabytes
    header[148:156] = b"        "
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    data[start : start + 512] = header
    (tmp_path / "a.tar").write_bytes(data)
    images = open_images(tmp_path / "a.tar", max_bad_fraction=0.5)
    assert 0 not in images.excluded
    assert len(images) == 1 or images.bad[0].path == "1.png"


def test_what_is_no_plain_tar_is_refused(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    with tarfile.open(tmp_path / "a.tar", "w:gz") as tar:
        _add(tar, "0.png", encoded(picture(0)))
    with pytest.raises(DataError, match="not a readable uncompressed tar"):
        open_images(tmp_path / "a.tar")
    with tarfile.open(tmp_path / "b.tar", "w") as tar:
        _add(tar, "0.txt", b"text")
    with pytest.raises(DataError, match="holds no image"):
        open_images(tmp_path / "b.tar")


def test_braces_expand_like_a_shell_does() -> None:
    assert expand_braces("a-{08..11}.tar") == ["a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar"]
    assert expand_braces("{x,y}{0..1}") == ["x0", "x1", "y0", "y1"]
    assert expand_braces("plain") == ["plain"]


def test_a_pattern_can_be_named_from_anywhere_and_in_a_protocol(tmp_path, monkeypatch):
    """`*` alone would name no set; an absolute pattern finds the same files from every folder."""
    (tmp_path / "photos" / "a").mkdir(parents=True)
    (tmp_path / "photos" / "a" / "1.png").touch()
    (tmp_path / "photos" / "[2].png").touch()
    monkeypatch.chdir(tmp_path)
    relative = expand("photos/**/*.png")
    everywhere = absolute_pattern("photos/**/*.png")
    monkeypatch.chdir("/")
    assert expand(str(everywhere)) == [tmp_path / file for file in relative] and len(relative) == 2
    assert short_name(f"{tmp_path}/photos/**/*") == "photos/**/*" and short_name(f"{tmp_path}/photos") == "photos"
    assert not is_local_pattern(f"{tmp_path}/photos/[2].png"), "a file may have such a name"
    assert not is_local_pattern("s3://bucket/*.tar") and short_name("s3://bucket/train-*.tar") == "train-*.tar"
