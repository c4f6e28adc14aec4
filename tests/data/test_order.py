"""Proves that order is a pure function: complete, seeded, stable under exclusion, and equal for every world size."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from echoless.data import batch_indices, epoch_order, rank_slice
from echoless.errors import ConfigError, DataError


@settings(max_examples=50)
@given(seed=st.integers(0, 2**40), epoch=st.integers(0, 1000), count=st.integers(1, 300), data=st.data())
def test_an_epoch_visits_every_usable_sample_once(seed: int, epoch: int, count: int, data: st.DataObject) -> None:
    excluded = data.draw(st.frozensets(st.integers(0, count - 1), max_size=count - 1))
    order = epoch_order(seed, epoch, count, excluded).tolist()
    assert sorted(order) == sorted(set(range(count)) - excluded)


@settings(max_examples=50)
@given(seed=st.integers(0, 99), count=st.integers(2, 200), data=st.data())
def test_excluding_samples_does_not_reorder_the_others(seed: int, count: int, data: st.DataObject) -> None:
    excluded = data.draw(st.frozensets(st.integers(0, count - 1), max_size=count - 1))
    clean = epoch_order(seed, 3, count).tolist()
    assert epoch_order(seed, 3, count, excluded).tolist() == [i for i in clean if i not in excluded]


def test_epochs_and_seeds_differ_and_calls_repeat() -> None:
    first = epoch_order(0, 0, 1000)
    assert torch.equal(first, epoch_order(0, 0, 1000))
    assert not torch.equal(first, epoch_order(0, 1, 1000))
    assert not torch.equal(first, epoch_order(1, 0, 1000))


def test_writing_to_an_order_changes_no_other_call() -> None:
    epoch_order(0, 0, 10).zero_()
    assert sorted(epoch_order(0, 0, 10).tolist()) == list(range(10))


@settings(max_examples=50)
@given(count=st.integers(1, 50), batch_size=st.integers(1, 120), steps=st.integers(1, 8))
def test_batches_in_a_row_are_epochs_in_a_row(count: int, batch_size: int, steps: int) -> None:
    """No tail is dropped, even where a batch holds several epochs."""
    batches = torch.cat([batch_indices(7, step, batch_size, count) for step in range(steps)]).tolist()
    epochs = -(-steps * batch_size // count)
    stream = torch.cat([epoch_order(7, epoch, count) for epoch in range(epochs)]).tolist()
    assert batches == stream[: steps * batch_size]


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_the_slices_of_all_ranks_are_the_batch(world: int) -> None:
    batch = batch_indices(0, 5, 10, 33)
    pieces = [batch[rank_slice(10, rank, world)] for rank in range(world)]
    assert torch.equal(torch.cat(pieces), batch)
    assert max(map(len, pieces)) - min(map(len, pieces)) <= 1


def test_impossible_requests_are_refused_in_a_sentence() -> None:
    with pytest.raises(DataError, match="none of the 2 images can be used: 2 are unreadable"):
        batch_indices(0, 0, 4, 2, frozenset({0, 1}))
    with pytest.raises(ConfigError, match="rank is 2; allowed: 0 to 1"):
        rank_slice(4, 2, 2)
