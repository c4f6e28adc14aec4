"""Every way of joining a stream with its branch computes what its formula says, in one kernel where it is fixed."""

from __future__ import annotations

import math

import pytest
import torch

from echoless.shortcuts import VARIANTS, make_shortcut, residual

X = torch.randn(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
F = torch.randn(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
HALF = math.sqrt(0.5)

FORMULAS = {
    "faded": lambda: 0.6 * X + F,
    "identity": lambda: X + F,
    "scale_both": lambda: HALF * (X + F),
    "scale_branch": lambda: X + HALF * F,
    "learnable": lambda: X + F,
    "magnitude_preserving": lambda: (0.7 * X + 0.3 * F) / math.sqrt(0.7**2 + 0.3**2),
    "none": lambda: F,
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_variant_computes_its_formula(variant):
    joined = make_shortcut(variant, 0.6).double()(X, F)
    torch.testing.assert_close(joined, FORMULAS[variant](), rtol=1e-14, atol=0)


@pytest.mark.parametrize("variant", sorted(set(VARIANTS) - {"learnable"}))
def test_fixed_variants_add_nothing_to_the_state_dict(variant):
    assert not make_shortcut(variant, 0.6).state_dict()


def test_alpha_one_is_the_plain_residual_bit_for_bit():
    assert torch.equal(residual(X, F, 1.0), X + F)


def test_the_faded_sum_is_one_kernel_with_one_output():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        residual(X, F, 0.6)
    kernels = [event.name for event in profile.events() if event.name.startswith("aten::")]
    assert kernels == ["aten::add"]


def test_a_learnable_alpha_starts_at_one_and_learns():
    shortcut = make_shortcut("learnable").double()
    shortcut(X, F).sum().backward()
    assert shortcut.alpha.item() == 1.0
    torch.testing.assert_close(shortcut.alpha.grad, X.sum())


def test_magnitude_preserving_keeps_unit_variance():
    x, f = (torch.randn(200_000, generator=torch.Generator().manual_seed(s)) for s in (3, 4))
    assert make_shortcut("magnitude_preserving")(x, f).var().item() == pytest.approx(1.0, abs=0.01)


def test_an_unknown_variant_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match=r"variant is 'learnabel'.*did you mean 'learnable'"):
        make_shortcut("learnabel")
