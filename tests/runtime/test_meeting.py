"""Processes wait for each other at a store while all are alive, and end within a stated time when one is not."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from echoless.errors import DataError, RunError
from echoless.runtime import Share, Team, meeting
from echoless.runtime.meeting import Meeting, SignsOfLife, new_name


@pytest.fixture
def store():
    return dist.TCPStore("127.0.0.1", 0, 1, True, timeout=timedelta(seconds=30))


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(meeting, "BEAT", 0.05)
    monkeypatch.setattr(meeting, "SILENCE", 0.6)


def together(*calls) -> list[object]:
    """Each call in a thread of its own; their results, or the errors they raise."""
    results: list[object] = [None] * len(calls)

    def run(index, call):
        try:
            results[index] = call()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


@pytest.fixture
def pair(store, quick):
    both = [Meeting(store.clone(), rank, 2) for rank in range(2)]
    yield both
    for each in both:
        each.leave()


def test_processes_that_are_started_again_agree_on_a_name_that_no_earlier_start_had(store):
    """At the same store, as torchrun --max-restarts keeps it, and whoever comes first."""
    names = []
    for late in (0, 1, 2, 0):

        def join(rank, late=late):
            time.sleep(0.2 * (rank == late))
            return new_name(store.clone(), rank, 3)

        found = together(*(lambda rank=rank: join(rank) for rank in range(3)))
        assert len(set(found)) == 1
        names += found[:1]
    assert len(set(names)) == 4


def test_processes_that_never_start_are_named(store, monkeypatch):
    monkeypatch.setattr(meeting, "JOINING", 0.3)
    with pytest.raises(RunError, match=r"process 1 of 2 has not started within 0\.005 minutes"):
        new_name(store, 0, 2)
    with pytest.raises(RunError, match="process 0 of 2 has not started"):
        new_name(store, 1, 2)


def test_everybody_hears_everybody_again_and_again(pair):
    for word in ("first", "second"):
        said = together(*(lambda each=each, said=f"{word}{n}": each.exchange(said) for n, each in enumerate(pair)))
        assert said == [[f"{word}0", f"{word}1"]] * 2


def test_a_refusal_reaches_all_and_is_known_before_the_others_arrive(pair):
    waiting = threading.Thread(target=lambda: pair[0].exchange(refuses=True))
    waiting.start()
    deadline = time.monotonic() + 30
    while not pair[1].called_off and time.monotonic() < deadline:
        time.sleep(0.01)
    assert pair[1].called_off
    assert pair[1].exchange() is None
    waiting.join(30)
    assert not pair[1].called_off, "the next meeting is another one"


def test_a_team_refuses_in_one_voice_however_long_the_others_worked(pair):
    teams = [Team(rank, 2, torch.device("cpu"), each) for rank, each in enumerate(pair)]

    def work(team, seconds, error=None):
        with team.together():
            time.sleep(seconds)
            if error is not None:
                raise error
        return "done"

    assert together(lambda: work(teams[0], 0), lambda: work(teams[1], 0.3)) == ["done", "done"]
    one, other = together(lambda: work(teams[0], 0, DataError("no images")), lambda: work(teams[1], 0.3))
    assert isinstance(one, DataError)
    assert isinstance(other, RunError) and "another process of this run refused to start" in str(other)


def test_processes_with_other_images_refuse_in_one_voice(pair):
    """One has no room for a cache, does not know that image 3 is bad, and would draw other batches."""
    teams = [Team(rank, 2, torch.device("cpu"), each) for rank, each in enumerate(pair)]
    same = together(*(lambda team=team: team.require_same("images", "abc without []") for team in teams))
    assert same == [None, None]
    said = together(
        lambda: teams[0].require_same("images", "abc without [3]"),
        lambda: teams[1].require_same("images", "abc without []"),
    )
    assert [str(each)[:48] for each in said] == ["process 1 has other images than process 0: its f"] * 2


def test_nobody_waits_for_a_process_that_has_left(pair):
    """It ended with an error of its own, outside of what processes do together."""
    pair[1].leave()
    (said,) = together(lambda: pair[0].exchange())
    assert isinstance(said, RunError) and str(said) == "process 1 has ended; its message says why"


def test_the_store_may_be_away_twice_for_a_moment(store, quick):
    life = SignsOfLife(store.clone(), 0, 1, pytest.fail)
    looks = iter([RuntimeError, *[None] * 15, RuntimeError, None])

    def look(now):
        error = next(looks, None)
        if error is not None:
            raise error("away")

    life._look = look
    life.start()
    time.sleep(1.8)
    life.stop()
    assert next(looks, "all looked") == "all looked"


def test_a_process_that_is_silent_ends_the_others_within_the_stated_time(store, quick):
    ended: list[str] = []
    watching = SignsOfLife(store.clone(), 0, 2, ended.append)
    other = SignsOfLife(store.clone(), 1, 2, ended.append)
    watching.start(), other.start()
    time.sleep(3 * meeting.SILENCE)
    assert not ended, "both give signs of life"
    other._over.set()  # it dies: no farewell
    watching.join(20)
    (reason,) = ended
    assert reason.startswith("process 1 has given no sign of life for 0.6 s; this process ends too")


def test_a_process_that_left_is_not_missed(store, quick):
    ended: list[str] = []
    watching = SignsOfLife(store.clone(), 0, 2, ended.append)
    other = SignsOfLife(store.clone(), 1, 2, ended.append)
    watching.start(), other.start()
    time.sleep(0.3)
    other.stop()
    time.sleep(3 * meeting.SILENCE)
    watching.stop()
    assert not ended


def test_the_disk_that_all_see_is_shared_by_all_and_others_by_their_node(pair, tmp_path):
    node = [Share(0, 1), Share(0, 1)]
    teams = [Team(rank, 2, torch.device("cpu"), each, node[rank]) for rank, each in enumerate(pair)]
    common = together(*(lambda team=team: team.share_of(tmp_path / "cache") for team in teams))
    assert [(share.index, share.count) for share in common] == [(0, 2), (1, 2)]
    assert common[0].token == common[1].token != ""
    apart = together(*(lambda team=team: team.share_of(tmp_path / f"disk{team.rank}") for team in teams))
    assert [(share.index, share.count) for share in apart] == [(0, 1), (0, 1)]
    assert not list((tmp_path / "cache").iterdir())


def test_one_process_shares_with_nobody(tmp_path):
    assert Team(0, 1, torch.device("cpu")).share_of(tmp_path) == Share(0, 1)
