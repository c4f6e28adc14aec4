"""The linear layers of our models give what torch's give, in values and gradients, whichever library multiplies."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

from echoless import products
from echoless.models.linear import Dense, _Products
from echoless.shortcuts import fade


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


def test_gradients_can_be_differentiated_again(calls):
    second = []
    for layer in layers():
        x = torch.linspace(-1, 1, 512 * 64).view(512, 64).requires_grad_()
        (gradient,) = torch.autograd.grad(layer(x).tanh().sum(), x, create_graph=True)
        gradient.square().sum().backward()
        second.append((x.grad, layer.weight.grad))
    assert calls
    for one, other in zip(*second):
        assert (one - other).abs().max() <= 1e-5 * other.abs().max()


def test_a_frozen_weight_keeps_no_activations():
    ours, _ = layers()
    ours.weight.requires_grad_(False)
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda saved: kept.append(saved) or saved, lambda saved: saved):
        ours(torch.randn(512, 64, requires_grad=True))
    assert [saved.shape for saved in kept] == [(192, 64)]


def test_fade_counts_one_use_of_a_weight(calls):
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(nn.Sequential(Dense(64, 64), nn.GELU(), Dense(64, 64)) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = x + block(x)
            return x

    network = Network()
    fade(network, alpha_min=0.5, example=torch.randn(1024, 64), zero_init=True)
    assert all(not block[2].weight.any() for block in network.blocks)


def test_without_gradients_nothing_is_kept(calls):
    ours, theirs = layers()
    x = torch.randn(512, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-5)
        assert calls and not ours(x).requires_grad


def test_a_call_that_somebody_transforms_is_left_to_torch(calls):
    ours, theirs = layers()
    x, direction = torch.randn(512, 64), torch.randn(512, 64)

    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, direction)
        forward = [forward_ad.unpack_dual(layer(dual)).tangent for layer in (ours, theirs)]
    tangents = [torch.func.jvp(layer, (x,), (direction,))[1] for layer in (ours, theirs)]
    pulled = [torch.func.vjp(layer, x)[1](torch.ones(512, 192))[0] for layer in (ours, theirs)]
    mapped = [torch.vmap(layer)(x[None])[0] for layer in (ours, theirs)]
    with torch.autocast("cpu", torch.bfloat16):
        cast = [layer(x) for layer in (ours, theirs)]
    traced = [torch.jit.trace(layer, x, check_trace=False)(x) for layer in (ours, theirs)]
    double = [layer.double()(x.double()) for layer in (ours, theirs)]

    for one, other in (forward, tangents, pulled, mapped, cast, traced, double):
        assert torch.equal(one, other)
    assert not calls


def test_an_exported_layer_names_no_library(calls):
    ours, _ = layers()
    program = torch.export.export(ours, (torch.randn(512, 64),))
    assert "mkldnn" not in str(program.graph) and not calls
