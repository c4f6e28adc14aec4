"""Proves that optimiser state comes back exactly, through files, and that training goes on bit for bit."""

from __future__ import annotations

import copy
import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from echoless.errors import RunError, UntrustedFile
from echoless.runs import flatten_state, load_checkpoint, save_checkpoint, unflatten_state
from echoless.training.soap import SOAP

OPTIMISERS = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2, betas=(0.9, 0.95)),
    "AdamW amsgrad, tensor lr": lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-2), amsgrad=True),
    "SGD momentum": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9),
    "SGD plain": lambda p: torch.optim.SGD(p, lr=1e-2),
    "LBFGS": lambda p: torch.optim.LBFGS(p, lr=1e-2, max_iter=3),
    "Rprop": lambda p: torch.optim.Rprop(p),
}


def foreign_soap(parameters):
    import pytorch_optimizer

    return pytorch_optimizer.SOAP(parameters, lr=1e-2, precondition_frequency=2)


OPTIMISERS["SOAP"] = lambda p: SOAP(p, lr=1e-2, precondition_frequency=2)
OPTIMISERS["SOAP of pytorch-optimizer"] = foreign_soap  # its bases lie column by column in memory


def make(name: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4, bias=False))
    return model, OPTIMISERS[name](model.parameters())


def train(model: nn.Module, optimiser: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        x = torch.randn(8, 6, generator=torch.Generator().manual_seed(step))

        def closure(x: torch.Tensor = x) -> torch.Tensor:
            optimiser.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        if isinstance(optimiser, torch.optim.LBFGS):
            optimiser.step(closure)
        else:
            closure()
            optimiser.step()


def equal(a: object, b: object) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.filterwarnings("ignore::UserWarning:pytorch_optimizer.*")
def test_training_goes_on_bit_for_bit_after_a_round_trip_through_the_disk(tmp_path, name):
    model, optimiser = make(name)
    train(model, optimiser, range(4))
    tensors, layout = flatten_state(optimiser.state_dict())
    path = save_checkpoint(tmp_path, 4, {"model": model.state_dict(), "optim": tensors}, {"optim": layout}, {})

    found = load_checkpoint(path)
    state = unflatten_state(found.tensors["optim"], found.state["optim"])
    assert equal(state, optimiser.state_dict())

    resumed_model, resumed = make(name)
    resumed_model.load_state_dict(found.tensors["model"])
    resumed.load_state_dict(copy.deepcopy(state))
    train(model, optimiser, range(4, 8))
    train(resumed_model, resumed, range(4, 8))
    assert equal(dict(model.state_dict()), dict(resumed_model.state_dict()))
    assert equal(resumed.state_dict(), optimiser.state_dict())


LEAVES = (st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text() | st.just("tensor")).map(
    lambda value: torch.arange(3.0) if value == "tensor" else value
)
KEYS = st.integers() | st.text() | st.tuples(st.integers(), st.text())
STATES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(KEYS, inner),
    max_leaves=15,
)


@given(STATES)
def test_any_nesting_comes_back_with_equal_values_and_types(state):
    tensors, layout = flatten_state(state)
    assert equal(unflatten_state(tensors, json.loads(json.dumps(layout, sort_keys=True, allow_nan=False))), state)


def test_places_that_share_a_name_keep_their_own_tensors():
    state = {0: torch.zeros(1), "0": torch.ones(1), "a.b": torch.full((1,), 2.0), "a": {"b": torch.full((1,), 3.0)}}
    assert equal(unflatten_state(*flatten_state(state)), state)


@pytest.mark.parametrize("order", [(2, 0, 1), (1, 2, 0), (0, 2, 1), (0, 1, 2)])
def test_the_order_in_memory_comes_back_through_the_disk(tmp_path, order):
    state = {"q": torch.arange(24.0).reshape(2, 3, 4).permute(order)}
    tensors, layout = flatten_state(state)
    found = load_checkpoint(save_checkpoint(tmp_path, 1, {"optim": tensors}, {"optim": layout}, {}))
    assert equal(unflatten_state(found.tensors["optim"], found.state["optim"]), state)


@pytest.mark.parametrize("value", [torch.float32, lambda: 0, {1, 2}, 1j, b"bytes"])
def test_what_cannot_be_saved_is_named(value):
    with pytest.raises(RunError, match=r"state\.0\.extra is a .*; allowed: tensors, numbers"):
        flatten_state({"state": {0: {"extra": value}}})


def test_a_state_without_end_is_refused():
    state: list = []
    state.append(state)
    with pytest.raises(RunError, match="levels deep; allowed: 32"):
        flatten_state(state)


@pytest.mark.parametrize(
    "layout",
    [
        {"$tensor": "missing"},
        {"$tensor": ["unhashable"]},
        {"$float": "1"},
        {"$tuple": 3},
        {"$items": [[1]]},
        {"$items": [[[1], 2]]},
        {"$items": 5},
        {"$import": "os"},
        {"$permuted": ["a", [0, 0]]},
        {"$permuted": ["a", "0"]},
        {"$permuted": "a"},
        {"$tensor": "a", "other": 1},
        json.loads("[" * 200 + "]" * 200),
    ],
)
def test_a_layout_that_means_nothing_is_refused(layout):
    with pytest.raises(UntrustedFile, match="the state"):
        unflatten_state({"a": torch.ones(1)}, layout)
