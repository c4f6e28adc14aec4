"""Proves that equal values are equal bytes, and that hostile JSON is refused before it costs anything."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.errors import RunError, UntrustedFile
from echoless.storage import read_json, read_json_object, write_json
from echoless.storage.jsonfile import JSON_LIMIT, json_bytes, parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@given(VALUES)
def test_every_json_value_comes_back_equal_and_the_standard_library_agrees(value):
    data = json_bytes(value, "x")
    assert json.loads(data) == value
    assert parse_json(data, "x") == value


def test_the_order_of_keys_does_not_change_the_bytes(tmp_path):
    write_json(tmp_path / "a", {"x": 1, "y": [1.5, None]})
    write_json(tmp_path / "b", {"y": [1.5, None], "x": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert read_json(tmp_path / "a") == {"x": 1, "y": [1.5, None]}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1: 2, "a": 3}, object(), {"x": {1, 2}}])
def test_what_json_cannot_say_is_refused_with_the_path(tmp_path, value):
    with pytest.raises(RunError, match=r"config\.json cannot be written as JSON"):
        write_json(tmp_path / "config.json", value)
    assert names(tmp_path) == []


def test_a_file_too_large_to_read_back_is_not_written(tmp_path):
    with pytest.raises(RunError, match=f"bytes of JSON; allowed: {JSON_LIMIT}"):
        write_json(tmp_path / "a", "x" * JSON_LIMIT)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"9" * 100_000, "digit"),
        (b"1e999", "out of range"),
        (b"NaN", "not a JSON number"),
        (b"[-Infinity]", "not a JSON number"),
        (b'"\xff"', "utf-8"),
    ],
)
def test_hostile_json_is_refused_with_a_reason(tmp_path, text, reason):
    (tmp_path / "a").write_bytes(text)
    with pytest.raises(UntrustedFile, match=reason):
        read_json(tmp_path / "a")


def test_a_large_file_is_refused_unread(tmp_path):
    with (tmp_path / "a").open("wb") as file:
        file.truncate(2**40)  # sparse: it takes no space
    with pytest.raises(UntrustedFile, match=f"a is {2**40} bytes; allowed: {JSON_LIMIT}"):
        read_json(tmp_path / "a")


def test_only_plain_files_are_read(tmp_path):
    (tmp_path / "real").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (("link", "is a link"), ("folder", "is a folder"), ("pipe", "is not a plain file")):
        with pytest.raises(UntrustedFile, match=f"{name} {reason}"):
            read_json(tmp_path / name)
    with pytest.raises(RunError, match="missing cannot be read: No such file"):
        read_json(tmp_path / "missing")
    with pytest.raises(UntrustedFile, match="holds a JSON list; allowed: an object"):
        (tmp_path / "real").write_text("[]")
        read_json_object(tmp_path / "real")
