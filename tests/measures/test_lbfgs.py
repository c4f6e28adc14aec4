"""Proves that `minimise` finds minima: those of closed forms, and those of scipy. Run alone: this file."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from echoless.measures.lbfgs import minimise

C, E = 3, 5


def quadratic() -> tuple[torch.Tensor, torch.Tensor]:
    """Hessians of the rows of x, (C, E, E), of condition 10^4, and the minimum."""
    draws = torch.Generator().manual_seed(0)
    basis, _ = torch.linalg.qr(torch.randn(C, E, E, generator=draws))
    return basis * torch.logspace(-2, 2, E) @ basis.mT, torch.randn(C, E, generator=draws)


@pytest.mark.parametrize("metric", ["one", "none", "each"])
def test_the_minimum_of_a_quadratic_in_any_metric_and_at_once_in_its_own(metric):
    hessian_CEE, minimum_CE = quadratic()
    calls = 0

    def function(x_CE):
        nonlocal calls
        calls += 1
        gradient_CE = torch.bmm((x_CE - minimum_CE).unsqueeze(1), hessian_CEE).squeeze(1)
        return float(((x_CE - minimum_CE) * gradient_CE).sum()) / 2, gradient_CE

    inverse_root_CEE = torch.linalg.inv(torch.linalg.cholesky(hessian_CEE)).mT
    root = {"one": inverse_root_CEE[0], "none": torch.eye(E), "each": inverse_root_CEE}[metric]
    found = minimise(function, torch.zeros(C, E), root, tolerance=1e-5, most=200)
    torch.testing.assert_close(found, minimum_CE, rtol=0, atol=3e-3)
    assert metric != "each" or calls <= 3  # a Newton step, and one more look


def test_the_minimum_of_a_function_whose_newton_steps_go_too_far_is_that_of_scipy():
    """log cosh is almost linear away from its minimum: a step by the curvature there is far too long."""
    draws = torch.Generator().manual_seed(1)
    centres_KE = torch.randn(7, E, generator=draws)
    values = []

    def function(x_CE):
        apart_CKE = 20 * (x_CE.unsqueeze(1) - centres_KE)
        values.append(float((apart_CKE.abs() + torch.nn.functional.softplus(-2 * apart_CKE.abs())).sum()))
        return values[-1], 20 * apart_CKE.tanh().sum(dim=1)

    start = 3 * torch.ones(C, E)
    found = minimise(function, start, 10 * torch.eye(E), tolerance=1e-3, most=300)

    def same(x):
        apart = 20 * (x[None] - centres_KE.double().numpy())
        return float(np.logaddexp(apart, -apart).sum()), 20 * np.tanh(apart).sum(axis=0)

    expected = minimize(same, start[0].double().numpy(), jac=True, method="L-BFGS-B", options={"ftol": 1e-15})
    for row in found:
        assert same(row.double().numpy())[0] <= expected.fun + 1e-4
    assert len(values) > 5 and max(values[1:]) > values[0], "some step must have been too long, and was shortened"


def test_it_ends_after_the_most_steps_and_where_nothing_is_left_to_do():
    hessian_CEE, minimum_CE = quadratic()

    def function(x_CE):
        gradient_CE = torch.bmm((x_CE - minimum_CE).unsqueeze(1), hessian_CEE).squeeze(1)
        return float(((x_CE - minimum_CE) * gradient_CE).sum()) / 2, gradient_CE

    assert minimise(function, minimum_CE, torch.eye(E), tolerance=1e-6, most=9) is minimum_CE
    start = torch.zeros(C, E)
    assert minimise(function, start, torch.eye(E), tolerance=0.0, most=0) is start
    short = minimise(function, start, torch.eye(E), tolerance=0.0, most=3)
    assert function(short)[0] < function(start)[0]
