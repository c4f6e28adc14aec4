"""Proves that a journal survives being cut at any byte, and that resuming writes every step once."""

from __future__ import annotations

import errno
import json
import os

import pytest

from echoless.errors import RunError, UntrustedFile
from echoless.runs.journal import LINE_LIMIT, Journal, MetricsJournal


def filled(path, steps: int) -> MetricsJournal:
    metrics = MetricsJournal(path)
    for step in range(1, steps + 1):
        metrics.record({"step": step, "loss": 1 / step})
    return metrics


def test_records_come_back_and_pandas_style_readers_agree(tmp_path):
    filled(tmp_path / "m", 3)
    lines = (tmp_path / "m").read_text().splitlines()
    assert [json.loads(line) for line in lines] == list(MetricsJournal(tmp_path / "m").read())
    assert list(MetricsJournal(tmp_path / "missing").read()) == []


def test_every_line_is_one_write(tmp_path, monkeypatch):
    writes: list[bytes] = []
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: writes.append(data) or real(descriptor, data))
    filled(tmp_path / "m", 2)
    assert writes == [b'{"loss": 1.0, "step": 1}\n', b'{"loss": 0.5, "step": 2}\n']


def test_cut_at_any_byte_the_whole_lines_are_read_and_the_next_writer_heals_it(tmp_path):
    filled(tmp_path / "m", 4).close()
    whole = (tmp_path / "m").read_bytes()
    for end in range(len(whole) + 1):
        (tmp_path / "m").write_bytes(whole[:end])
        complete = whole[:end].count(b"\n")
        assert [record["step"] for record in MetricsJournal(tmp_path / "m").read()] == list(range(1, complete + 1))
        metrics = MetricsJournal(tmp_path / "m")
        metrics.record({"step": 99})
        metrics.close()
        steps = [json.loads(line)["step"] for line in (tmp_path / "m").read_text().splitlines()]
        assert steps == [*range(1, complete + 1), 99]


def test_resuming_drops_what_came_after_the_checkpoint(tmp_path):
    metrics = filled(tmp_path / "m", 9)
    metrics.append(b'{"torn"')
    again = MetricsJournal(tmp_path / "m")
    again.truncate_after(4)
    again.record({"step": 5})
    assert [record["step"] for record in again.read()] == [1, 2, 3, 4, 5]
    again.truncate_after(100)
    again.truncate_after(0)
    assert list(again.read()) == []
    MetricsJournal(tmp_path / "missing").truncate_after(1)
    assert not (tmp_path / "missing").exists()


def test_a_number_that_is_not_finite_is_null(tmp_path):
    MetricsJournal(tmp_path / "m").record({"step": 1, "rank": float("nan"), "norms": [1.0, float("inf")]})
    assert list(MetricsJournal(tmp_path / "m").read()) == [{"step": 1, "rank": None, "norms": [1.0, None]}]


def test_a_line_that_does_not_fit_on_the_disk_is_taken_back(tmp_path, monkeypatch):
    metrics = filled(tmp_path / "m", 2)
    before, real = (tmp_path / "m").read_bytes(), os.write

    def full(descriptor: int, data: bytes) -> int:
        real(descriptor, data[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(
            RunError, match=r"m cannot be written: the disk is full \(\d+ bytes needed, \d+ bytes free\)"
        ):
            metrics.record({"step": 3})
    assert (tmp_path / "m").read_bytes() == before


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[1]\n", "a JSON list; allowed: an object"),
        (b"nonsense\n{}\n", "is not valid JSON"),
        (b'{"step": "x"}\n', "whose step is 'x'"),
        (b"x" * (LINE_LIMIT + 2), "a line longer than"),
    ],
)
def test_lines_nobody_wrote_are_refused(tmp_path, content, words):
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(UntrustedFile, match=words):
        list(MetricsJournal(tmp_path / "m").read())


def test_a_journal_does_not_write_through_a_link(tmp_path):
    (tmp_path / "outside").write_text("precious")
    (tmp_path / "log").symlink_to(tmp_path / "outside")
    with pytest.raises(RunError, match="log cannot be written"):
        Journal(tmp_path / "log").append(b"x\n")
    assert (tmp_path / "outside").read_text() == "precious"
