"""Proves that channels, depth and size of a set are found from few images, and that few of them are decoded for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from echoless.data import survey
from echoless.data.decode import DecodeSettings
from echoless.data.sources import FolderSource
from echoless.data.survey import Survey, look_at
from echoless.errors import DataError

Picture = Callable[..., np.ndarray]
Encoded = Callable[..., bytes]


def _look(folder: Path, files: list[bytes], settings: DecodeSettings | None = None) -> Survey:
    folder.mkdir()
    for number, data in enumerate(files):
        (folder / f"{number:03d}.jpg").write_bytes(data)
    return look_at(FolderSource(folder), settings or DecodeSettings())


def test_the_header_of_a_jpeg_says_what_its_pixels_say(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    """The channels of most; files that need their pixels decoded (PNG) are counted beside those that do not."""
    grey = [encoded(picture(i, 20, 30, 1), "JPEG") for i in range(3)]
    colour = [encoded(picture(i, 40, 50, 3), "JPEG") for i in range(5)]
    wide = [encoded(picture(i, 40, 50, 1, np.uint16)) for i in range(3)]
    assert _look(tmp_path / "a", grey + colour).shape == (3, 40, 50)
    assert _look(tmp_path / "b", grey + colour[:2]).shape == (1, 20, 30)
    mixed = _look(tmp_path / "c", grey + colour[:1] + wide)
    assert mixed.shape.channels == 1 and mixed.bits == 8 and len(mixed.files) == 7
    assert _look(tmp_path / "d", wide + colour[:1]).bits == 16
    assert _look(tmp_path / "e", grey + colour, DecodeSettings(channels=1, bits=16)).shape.channels == 1


def test_ordinary_jpegs_are_decoded_once(tmp_path: Path, picture: Picture, encoded: Encoded, monkeypatch) -> None:
    decoded = []
    decode = survey.decode
    monkeypatch.setattr(survey, "decode", lambda *given: decoded.append(1) or decode(*given))
    _look(tmp_path / "a", [encoded(picture(i), "JPEG") for i in range(100)])
    assert len(decoded) == 1


def test_a_set_without_any_image_is_refused_though_headers_are_whole(
    tmp_path: Path, picture: Picture, encoded: Encoded
) -> None:
    """The first image counts only if its pixels can be decoded; so does every other until one was."""
    cut = [encoded(picture(i, 200, 200), "JPEG")[:700] for i in range(4)]
    with pytest.raises(DataError, match="none of the images that were tried can be decoded; first: 000"):
        _look(tmp_path / "a", cut)
    assert len(_look(tmp_path / "b", [*cut, encoded(picture(0), "JPEG")]).files) == 1


def test_a_size_beyond_the_limit_is_not_counted(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    files = [encoded(picture(0, 40, 50), "JPEG"), *(encoded(picture(i, 90, 90), "JPEG") for i in range(3))]
    assert _look(tmp_path / "a", files, DecodeSettings(pixel_limit=2000)).shape == (3, 40, 50)
