"""The linear layers of our models give what torch's give, in values and gradients, whichever library multiplies."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from echoless import products
from echoless.models.linear import Dense, _Products


@pytest.fixture(autouse=True)
def onednn(monkeypatch):
    """As on a processor where oneDNN is the faster library."""
    monkeypatch.setattr(products, "_onednn_has_the_wider_vectors", lambda: True)


@pytest.fixture
def calls(monkeypatch):
    """Counts how often the layer has chosen the library itself."""
    counted = []
    apply = _Products.apply
    monkeypatch.setattr(_Products, "apply", lambda *arguments: counted.append(1) or apply(*arguments))
    return counted


def layers(inputs: int = 64, outputs: int = 192, bias: bool = True) -> tuple[Dense, nn.Linear]:
    ours, theirs = Dense(inputs, outputs, bias), nn.Linear(inputs, outputs, bias)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


@pytest.mark.parametrize("shape", [(1024, 64), (16, 65, 64), (2, 3, 128, 64)], ids=str)
@pytest.mark.parametrize("outputs", [48, 192], ids=["fewer", "more"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_values_and_gradients_are_those_of_torch_in_float64(calls, shape, outputs, bias):
    ours, theirs = layers(shape[-1], outputs, bias)
    theirs.double()
    x = torch.randn(shape, requires_grad=True)
    y = x.detach().double().requires_grad_()
    weights = torch.randn(*shape[:-1], outputs)

    found, expected = ours(x), theirs(y)
    (found * weights).sum().backward()
    (expected * weights.double()).sum().backward()

    assert calls
    pairs = [(found, expected), (x.grad, y.grad), (ours.weight.grad, theirs.weight.grad)]
    pairs += [(ours.bias.grad, theirs.bias.grad)] if bias else []
    for one, other in pairs:
        assert (one - other).abs().max() <= 1e-5 * other.abs().max()


def test_gradients_are_computed_for_what_needs_them(calls):
    ours, _ = layers()
    ours.weight.requires_grad_(False)
    x = torch.randn(512, 64, requires_grad=True)
    ours(x).sum().backward()
    assert calls and x.grad is not None and ours.weight.grad is None and ours.bias.grad is not None


def test_without_gradients_nothing_is_kept(calls):
    ours, theirs = layers()
    x = torch.randn(512, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-5)
        assert calls and not ours(x).requires_grad


def test_a_call_that_somebody_transforms_is_left_to_torch(calls):
    ours, theirs = layers()
    x, direction = torch.randn(512, 64), torch.randn(512, 64)

    tangents = [torch.func.jvp(layer, (x,), (direction,))[1] for layer in (ours, theirs)]
    pulled = [torch.func.vjp(layer, x)[1](torch.ones(512, 192))[0] for layer in (ours, theirs)]
    mapped = [torch.vmap(layer)(x[None])[0] for layer in (ours, theirs)]
    with torch.autocast("cpu", torch.bfloat16):
        cast = [layer(x) for layer in (ours, theirs)]
    traced = [torch.jit.trace(layer, x, check_trace=False)(x) for layer in (ours, theirs)]
    double = [layer.double()(x.double()) for layer in (ours, theirs)]

    for one, other in (tangents, pulled, mapped, cast, traced, double):
        assert torch.equal(one, other)
    assert not calls


def test_an_exported_layer_names_no_library(calls):
    ours, _ = layers()
    program = torch.export.export(ours, (torch.randn(512, 64),))
    assert "mkldnn" not in str(program.graph) and not calls
