"""A group is taken apart where all processes end together, and left to the end of the process where one ends alone."""

from __future__ import annotations

import pytest

from echoless.errors import ConfigError, EcholessError, NonFiniteError
from echoless.runtime import distributed


@pytest.fixture
def taken_apart(monkeypatch) -> list[bool]:
    calls: list[bool] = []
    monkeypatch.setattr(distributed.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed.dist, "destroy_process_group", lambda: calls.append(True))
    return calls


def end(error: BaseException | None) -> None:
    try:
        if error is not None:
            raise error
    finally:
        distributed.leave_team()


@pytest.mark.parametrize("error", [EcholessError("refused by all"), NonFiniteError("all stop")])
def test_a_refusal_is_of_all_and_takes_the_group_apart(error, taken_apart):
    end(None)
    with pytest.raises(EcholessError):
        end(error)
    assert len(taken_apart) == 2


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), KeyboardInterrupt()])
def test_an_error_of_one_waits_for_nobody(error, taken_apart):
    with pytest.raises(type(error)):
        end(error)
    assert not taken_apart


@pytest.mark.parametrize("value", ["x", "-1", "2.5", "", "9" * 30])
def test_a_world_that_is_no_number_is_refused_in_one_sentence(monkeypatch, value):
    monkeypatch.setenv("WORLD_SIZE", value)
    with pytest.raises(ConfigError, match=r"WORLD_SIZE is .* in the environment; allowed: a whole number"):
        distributed.join_team("cpu")
