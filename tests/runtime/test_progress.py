"""What a person sees: plain lines that are not too many, a living line on a terminal, durations in words."""

from __future__ import annotations

import io
import time

import pytest

from echoless.runtime import Progress, duration


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (45.4, "45 s"),
        (89, "89 s"),
        (90, "90 s"),
        (91, "91 s"),
        (3590, "60 min"),
        (3600, "1 h 0 min"),
        (12_000, "3 h 20 min"),
        (187_200, "2 d 4 h"),
    ],
)
def test_durations_are_in_words(seconds, words):
    assert duration(seconds) == words


@pytest.fixture
def clock(monkeypatch):
    """Time that passes when told to."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_plain_lines_come_every_fifteen_seconds_and_at_the_end(clock):
    stream = io.StringIO()
    with Progress("training", 100, stream=stream) as progress:
        progress.begin(0)
        for done in range(1, 101):
            clock[0] += 1.0
            progress.show(done, f"loss {done}")
    lines = stream.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == [f"{done}/100" for done in (1, 16, 31, 46, 61, 76, 91, 100)]
    assert lines[1] == "training 16/100 steps  loss 16  84 s left"
    assert lines[-1] == "training 100/100 steps  loss 100"


def test_without_a_start_the_count_begins_at_nothing(clock):
    progress = Progress("reading", 10, stream=io.StringIO())
    clock[0] += 5.0
    assert progress.seconds_left(5) == pytest.approx(5.0)


def test_work_of_an_earlier_process_is_not_credited_to_this_one(clock):
    progress = Progress("training", 100, stream=io.StringIO())
    progress.begin(50)
    assert progress.seconds_left(50) is None
    clock[0] += 20.0
    assert progress.seconds_left(60) == pytest.approx(80.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_one_living_line_with_the_right_total():
    stream = Terminal()
    with Progress("reading", 1, "images", stream=stream) as progress:
        progress.total = 40
        progress.show(40, "loss 0.5")
        progress.say("a line that stays [not markup]")
    assert "40/40" in stream.getvalue() and "a line that stays [not markup]" in stream.getvalue()


def test_of_slow_units_the_time_counts_down_between_them(clock):
    """A sweep of four runs showed 5, 6, 7 and 9 minutes left while its third run trained."""
    progress = Progress("sweep", 4, "runs", stream=io.StringIO())
    clock[0] += 300.0
    assert progress.seconds_left(2) == pytest.approx(300.0)
    clock[0] += 120.0
    assert progress.seconds_left(2) == pytest.approx(180.0)
    clock[0] += 500.0
    assert progress.seconds_left(2) == 0.0
