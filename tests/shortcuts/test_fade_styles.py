"""`fade` fades shortcuts however they are written, finds no others, and leaves everything else as it was.

The networks are small and written here, in the styles people use; what a faded one must compute is written out by hand
beside them.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from stacks import A4, WIDTH, Loop, Stack, Wrapped, mlp
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from echoless.shortcuts import fade, unfade
from echoless.shortcuts.travel import BUFFER


@pytest.fixture(autouse=True)
def one_seed() -> None:
    torch.manual_seed(0)


def faded_stack(model: Any, x: Tensor, coefficients: tuple[float, ...] = A4) -> Tensor:
    for alpha, branch in zip(coefficients, model.branches):
        x = alpha * x + branch(x)
    return x


class LoopOfTwo(Stack):
    def forward(self, x: Tensor) -> Tensor:
        for i in range(0, 4, 2):
            x = self.branches[i](x) + x
            x = x + self.branches[i + 1](x)
        return x


class TorchAdd(Stack):
    def forward(self, x: Tensor) -> Tensor:
        x = torch.add(x, self.branches[0](x))
        x = self.branches[1](x).add(x)
        x = self.branches[2](x).add_(x)
        return x.add(
            self.branches[3](x),
        )


class InPlace(Stack):
    def forward(self, x: Tensor) -> Tensor:
        x = x.clone()
        for branch in self.branches[:2]:
            y = branch(x)
            y += x
            x = y
        for branch in self.branches[2:]:
            y = branch(x)
            x += y
        return x


def dropout_add(x: Tensor, residual: Tensor, p: float, training: bool) -> Tensor:
    out = F.dropout(x, p=p, training=training)
    return residual + out


class PlainFunction(Stack):
    def forward(self, x: Tensor) -> Tensor:
        x = dropout_add(self.branches[0](x), x, 0.0, self.training)
        for branch in self.branches[1:]:
            x = dropout_add(branch(x), residual=x, p=0.0, training=self.training)
        return x


class NestedFunction(Stack):
    def forward(self, x: Tensor) -> Tensor:
        def join(stream: Tensor, branch: nn.Module) -> Tensor:
            return branch(stream) + stream

        for branch in self.branches:
            x = join(x, branch)
        return x


def announced(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Tensor:
        self.calls = getattr(self, "calls", 0) + 1
        return method(self, *args, **kwargs)

    return wrapper


class Decorated(Stack):
    @announced
    def forward(self, x: Tensor) -> Tensor:
        for branch in self.branches:
            x = x + branch(x)
        return x


class Parent(Stack):
    def join(self, x: Tensor, *, start: int) -> Tensor:
        for branch in self.branches[start : start + 4]:
            x = x + branch(x)
        return x


class Inherited(Parent):
    __private = 0

    def join(self, x: Tensor, *, start: int) -> Tensor:
        return super().join(x, start=start)

    def forward(self, x: Tensor) -> Tensor:
        return self.join(x, start=self.__private)


class Gated(Stack):
    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(x.mean(-1, keepdim=True))
        for branch in self.branches:
            x = x + 1.0 * (gate * branch(x)) / gate
        return x


class OtherLinesInTraining(Stack):
    def forward(self, x: Tensor) -> Tensor:
        for branch in self.branches:
            x = x + F.dropout(branch(x), 0.0) if self.training else x + branch(x)
        return x


STYLES = [
    Loop, LoopOfTwo, TorchAdd, InPlace, PlainFunction, NestedFunction, Decorated, Inherited, Wrapped, Gated,
    OtherLinesInTraining,
]  # fmt: skip


@pytest.mark.parametrize("style", STYLES)
def test_every_way_of_writing_a_shortcut_is_faded(style: type[nn.Module]) -> None:
    model, x = style().double(), torch.randn(2, 3, WIDTH, dtype=torch.double)
    report = fade(model, 0.4, example=x)
    assert len(report.shortcuts) == 4
    assert report.alphas == pytest.approx(A4, abs=1e-12)
    for mode in (True, False):
        model.train(mode)
        torch.testing.assert_close(model(x), faded_stack(model, x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("style", STYLES)
def test_alpha_one_changes_no_bit_and_unfade_restores_the_class(style: type[nn.Module]) -> None:
    model, x = style(), torch.randn(2, 3, WIDTH)
    keys, before, classes = list(model.state_dict()), model(x), [type(m) for m in model.modules()]
    fade(model, 1.0, example=x)
    assert torch.equal(model(x), before)
    assert [key for key in model.state_dict() if key != BUFFER] == keys
    unfade(model)
    assert torch.equal(model(x), before)
    assert [type(m) for m in model.modules()] == classes
    assert not any(name.startswith("faded") for m in model.modules() for name in vars(m))


@pytest.mark.parametrize("style", [Loop, TorchAdd, PlainFunction, NestedFunction, Inherited, Wrapped, Gated])
def test_a_faded_model_compiles_as_one_graph(style: type[nn.Module]) -> None:
    torch._dynamo.reset()
    model, x = style(), torch.randn(2, 3, WIDTH)
    fade(model, 0.4, example=x)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), faded_stack(model, x), rtol=1e-5, atol=1e-5)


def test_gradients_are_those_of_the_formula() -> None:
    model, x = TorchAdd().double(), torch.randn(2, 3, WIDTH, dtype=torch.double, requires_grad=True)
    fade(model, 0.4, example=x)
    ours = torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])
    theirs = torch.autograd.grad(faded_stack(model, x).square().sum(), [x, *model.parameters()])
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_recomputes_the_faded_branch(reentrant: bool) -> None:
    model, x = Wrapped().double(), torch.randn(2, 3, WIDTH, dtype=torch.double, requires_grad=True)
    fade(model, 0.4, example=x)
    y = x
    for block in model.blocks:
        y = checkpoint(block, y, use_reentrant=reentrant)
    y.square().sum().backward()
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    faded_stack(model, x.detach()).square().sum().backward()
    for gradient, parameter in zip(found, model.parameters()):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-10, atol=1e-10)


def test_a_deep_copy_is_faded_too_and_unfaded_by_itself() -> None:
    model, x = Wrapped(), torch.randn(2, 3, WIDTH)
    plain = model(x)
    fade(model, 0.4, example=x)
    faded, twin = model(x), copy.deepcopy(model)
    assert torch.equal(twin(x), faded)
    unfade(twin)
    assert torch.equal(twin(x), plain)
    assert torch.equal(model(x), faded)


def test_the_state_of_the_model_the_example_and_torch_is_left_as_it_was() -> None:
    class Busy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(WIDTH)
            self.branch = mlp()

        def forward(self, x: Tensor) -> Tensor:
            x += torch.rand(())
            x = self.norm(x)
            return x + self.branch(x)

    model, x = Busy(), torch.randn(5, WIDTH)
    model.branch.eval()
    buffers, example, random = copy.deepcopy(dict(model.named_buffers())), x.clone(), torch.get_rng_state()
    fade(model, 0.4, example=x)
    assert all(torch.equal(buffers[name], buffer) for name, buffer in model.named_buffers() if name != BUFFER)
    assert torch.equal(x, example)
    assert torch.equal(torch.get_rng_state(), random)
    assert model.training
    assert not model.branch.training


def test_half_precision_and_frozen_models_are_faded() -> None:
    model, x = Loop().bfloat16().requires_grad_(False), torch.randn(2, 3, WIDTH, dtype=torch.bfloat16)
    assert len(fade(model, 0.4, example=x).shortcuts) == 4
    torch.testing.assert_close(model(x), faded_stack(model, x), rtol=0.05, atol=0.05)  # rounded at other places


# --- what is no shortcut ---


class Distractions(nn.Module):
    """One shortcut among additions that look like one."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.randn(2, 3, WIDTH))
        self.left, self.right, self.condition = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.branch = mlp()

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        x = x + self.position
        x = x + 0.044715 * x**3
        x = self.left(x) + self.right(x)
        x = F.layer_norm(x, (WIDTH,)) * (1 + self.condition(c)) + self.condition(c)
        x = x + (x.round() - x).detach()
        return x + self.branch(x)


def test_embeddings_polynomials_merges_modulation_and_straight_through_are_left_alone() -> None:
    model, example = Distractions(), (torch.randn(2, 3, WIDTH), torch.randn(2, 3, WIDTH))
    report = fade(model, 0.4, example=example)
    assert [(s.add, s.identity) for s in report.shortcuts] == [("x + self.branch(x)", "x (left)")]
    reasons = {other.add: other.reason for other in report.left_alone}
    assert len(reasons) == 5
    assert "neither operand" in reasons["x + self.position"]
    assert "no layer" in reasons["x + 0.044715 * x**3"]
    assert "merge" in reasons["self.left(x) + self.right(x)"]
    table = str(report)
    assert table.startswith("Distractions: 1 shortcut faded, 5 additions left alone.\n"), "no space at its end"
    assert all(other.add[:40] in table for other in report.left_alone)


class ConvBlock(nn.Module):
    def __init__(self, width: int, wider: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, wider, 3, padding=1), nn.ReLU(), nn.Conv2d(wider, wider, 3, padding=1)
        )
        self.skip = nn.Identity() if width == wider else nn.Conv2d(width, wider, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + self.skip(x)


class UNet(nn.Module):
    """Additive long skips around blocks with shortcuts of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 3, 1)
        self.down, self.up = ConvBlock(4, 8), ConvBlock(8, 4)
        self.middle = nn.Sequential(ConvBlock(8, 8), ConvBlock(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.head(self.up(self.middle(self.down(x))) + x)


def test_projections_and_long_skips_fade_only_when_asked_for() -> None:
    x = torch.randn(2, 3, 8, 8)
    model = UNet()
    plain = fade(model, 0.5, example=x)
    assert [s.where for s in plain.shortcuts] == ["middle.0", "middle.1"]
    unfade(model)
    report = fade(model, 0.5, example=x, include="projections")
    assert [s.where for s in report.shortcuts] == ["down", "middle.0", "middle.1", "up"]
    unfade(model)
    report = fade(model, 0.7, example=x, include=("projections", "long skips"))
    assert [s.where for s in report.shortcuts] == ["down", "middle.0", "middle.1", "up", ""]
    a, b, c, d, e = report.alphas
    stem = model.stem(x)
    y = a * model.down.skip(stem) + model.down.body(stem)
    y = b * y + model.middle[0].body(y)
    y = c * y + model.middle[1].body(y)
    y = d * model.up.skip(y) + model.up.body(y)
    torch.testing.assert_close(model(x), model.head(e * stem + y), rtol=1e-5, atol=1e-5)


def test_a_sum_keeps_the_memory_layout_it_had() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.branch = nn.Conv2d(4, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = x.to(memory_format=torch.channels_last)
            y = x + self.branch(x).contiguous()
            y = self.branch(y).contiguous() + y
            return y.permute(0, 2, 3, 1).view(len(y), -1, 4)  # fails on any other layout

        def expected(self, x: Tensor) -> Tensor:
            x = 0.4 * x + self.branch(x)
            return (0.4 * x + self.branch(x)).permute(0, 2, 3, 1).flatten(1, 2)

    class Swapped(Mixed):
        def forward(self, x: Tensor) -> Tensor:
            x = x.to(memory_format=torch.channels_last)
            y = self.branch(x).contiguous() + x
            return y.view(len(y), 4, -1)

        def expected(self, x: Tensor) -> Tensor:
            return (0.4 * x + self.branch(x)).flatten(2)

    for model in (Mixed().eval(), Swapped().eval()):
        x = torch.randn(2, 4, 6, 6)
        fade(model, 0.4, example=x, schedule="constant", within=None)
        torch.testing.assert_close(model(x), model.expected(x))


def test_parallel_branches_share_one_shortcut() -> None:
    class Parallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = mlp(), mlp()

        def forward(self, x: Tensor) -> Tensor:
            return x + self.first(x) + self.second(x)

    model, x = Parallel(), torch.randn(2, 3, WIDTH)
    assert [s.add for s in fade(model, 0.4, example=x).shortcuts] == ["x + self.first(x)"]
    torch.testing.assert_close(model(x), 0.4 * x + model.first(x) + model.second(x))
