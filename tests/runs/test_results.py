"""Proves that measurements are merged by metric and protocol, and that two commands at once lose none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from echoless.errors import RunError, UntrustedFile
from echoless.runs.results import merge_results, read_results


def record(metric: str, value: float, **protocol: object) -> dict:
    return {"metric": metric, "value": value, "n": 100, "protocol": protocol}


def test_a_number_measured_again_replaces_the_earlier_one_and_is_the_newest(tmp_path):
    """Pages and lists show the newest: after a measurement with other labels, repeating the first shows it again."""
    path = tmp_path / "results.json"
    assert read_results(path) == []
    merge_results(path, [record("knn", 0.4, k=20, layer="last"), record("rank", 12.0)])
    merge_results(path, [record("knn", 0.5, layer="last", k=20), record("knn", 0.3, k=5)])
    assert [(r["metric"], r["value"]) for r in read_results(path)] == [("rank", 12.0), ("knn", 0.5), ("knn", 0.3)]


def test_two_writers_at_once_lose_no_record(tmp_path):
    """Each opens the lock anew, which the kernel treats like two processes."""
    path = tmp_path / "results.json"

    def write(metric: str) -> None:
        for k in range(15):
            merge_results(path, [record(metric, 0.5, k=k)])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, ("knn", "rank")))
    assert len(read_results(path)) == 30


def test_what_is_not_a_record_is_refused_both_ways(tmp_path):
    path = tmp_path / "results.json"
    with pytest.raises(RunError, match="it needs metric, value and protocol"):
        merge_results(path, [{"metric": "knn"}])
    for content in ("{}", "[1]", '[{"metric": "knn", "value": 1}]', "null"):
        path.write_text(content)
        with pytest.raises(UntrustedFile, match="is not a list of metric records"):
            read_results(path)
