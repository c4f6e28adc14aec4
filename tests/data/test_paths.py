"""Paths of many images are held on disk or computed, and are otherwise the list of strings that they stand for.

Run alone: pytest tests/data/test_paths.py
"""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

from echoless.data import open_images, paths
from echoless.data.content import Stamp, stamp
from echoless.data.paths import ChosenPaths, JoinedPaths, NumberedPaths, PathColumn
from echoless.data.sources import FolderSource
from echoless.storage import mapped

ODD = ["", "b", "a/ü.png", "a/\udce9.png", "a/\ue000.png", "a/\U0001f600.png", "z\n.png", "a/b", "a-b", "a"]


def test_a_column_is_the_list_and_sorts_as_python_does(monkeypatch):
    """Also with letters beyond ASCII, bytes that are no text, and line breaks; in memory and in a file."""
    for worth in (2**24, 1):
        monkeypatch.setattr(mapped, "_WORTH_A_FILE", worth)
        column = PathColumn.of(iter(ODD))
        assert column == ODD and list(column) == ODD and len(column) == len(ODD) and column.unique
        assert [column[i] for i in range(-len(ODD), len(ODD))] == ODD + ODD
        assert column[2:9:3] == ODD[2:9:3] and column.index("a/b") == 7
        assert column.in_order(column.order()) == sorted(ODD)
    monkeypatch.setattr(paths, "_AT_ONCE", 3)
    assert PathColumn.of(ODD) == ODD, "in several blocks"
    assert not PathColumn.of(["a", "b", "a"]).unique and not len(PathColumn.of([]))
    assert PathColumn.of(["a"]) != ["b"] and PathColumn.of(["a"]) != "a"
    with pytest.raises(IndexError, match="path 3 of 3"):
        PathColumn.of("abc")[3]


def test_computed_paths_are_the_lists_that_they_stand_for():
    numbered = NumberedPaths("a.parquet/", 3)
    assert numbered == ["a.parquet/00000000", "a.parquet/00000001", "a.parquet/00000002"]
    joined = JoinedPaths([numbered, NumberedPaths("b/", 0), NumberedPaths("c/", 2)])
    assert (
        joined == [*numbered, "c/00000000", "c/00000001"] and joined[-1] == "c/00000001" and joined[1:4][2] == joined[3]
    )
    assert ChosenPaths(joined, [4, 0, 0]) == ["c/00000001", numbered[0], numbered[0]]


def test_a_folder_has_the_order_and_the_stamps_of_its_files(tmp_path):
    """Against the file system itself, in sorted order; times before 1970 included."""
    for number in random.Random(0).sample(range(200), 200):
        file = tmp_path / f"class{number % 3}" / f"{number}.png"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(bytes(number))
    old = tmp_path / "class0" / "3.png"
    os.utime(old, ns=(-(10**18), -(10**18)))
    source = FolderSource(tmp_path)
    expected = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.png"))
    assert source.paths == expected and source.labels == [path.split("/")[0] for path in expected]
    assert list(source.stamps) == [stamp(tmp_path / path) for path in expected] == source.stamps[:]
    assert isinstance(source.stamps[7], Stamp) and source.stamps[expected.index("class0/3.png")].modified_ns == -(
        10**18
    )


def test_two_paths_with_one_hash_are_two_paths(monkeypatch):
    monkeypatch.setattr(paths, "hash", len, raising=False)
    assert PathColumn.of(["a", "b", "cc"]).unique and not PathColumn.of(["a", "b", "a"]).unique


def test_usable_ids_are_those_that_are_not_left_out():
    """Every window of places, against the list that is filtered one by one."""
    for left_out in ((), (0,), (59,), (0, 1, 2, 58, 59), (5, 6, 30), tuple(range(60))):
        some = open_images("shapes:60")
        some.leave_out(left_out)
        expected = [index for index in range(60) if index not in left_out]
        for first, last in ((0, None), (0, 7), (5, 12), (50, 70), (3, 3)):
            assert some.usable_ids(first, last).tolist() == expected[first:last]


def test_an_array_in_a_file_is_the_array_and_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "_WORTH_A_FILE", 1)
    array = np.random.default_rng(0).integers(0, 9, (100, 3))
    kept = mapped.in_a_file(array, tmp_path)
    np.testing.assert_array_equal(kept, array)
    assert kept is not array and not list(tmp_path.iterdir())
    assert mapped.in_a_file(array, tmp_path / "nowhere") is array, "without such a folder it stays in memory"
