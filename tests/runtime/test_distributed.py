"""A group is taken apart where all processes end together, and left to the end of the process where one ends alone."""

from __future__ import annotations

import pytest
import torch

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


@pytest.fixture
def pair(monkeypatch) -> distributed.Team:
    """The first of two processes; the other one's value is always 5."""

    def all_reduce(tensor: torch.Tensor, op: object = distributed.dist.ReduceOp.SUM) -> None:
        if op == distributed.dist.ReduceOp.SUM:
            tensor += 5
        else:
            assert op == distributed.dist.ReduceOp.MAX
            tensor.clamp_(min=5)

    monkeypatch.setattr(distributed.dist, "all_reduce", all_reduce)
    return distributed.Team(0, 2, torch.device("cpu"))


def test_the_mean_and_the_maximum_are_over_the_processes(pair):
    assert pair.mean(torch.tensor(3.0)) == 4.0
    assert pair.maximum(3.0, 7.3) == [5.0, 7.3], "not rounded on the way"


def test_one_process_alone_exchanges_nothing():
    alone = distributed.Team(0, 1, torch.device("cpu"))
    assert alone.mean(torch.tensor(3.0)) == 3.0 and alone.maximum(3.0, 7.0) == [3.0, 7.0]
