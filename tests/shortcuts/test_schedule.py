"""The schedule is the paper's: golden effective alphas, exact ends, both readings of Eq. (5), and its inverse."""

from __future__ import annotations

import math

import numpy as np
import pytest

from echoless.shortcuts import alpha_min_for, alphas, choose_alpha_min, contributions, effective_alpha

# depth, alpha_min, all sub-layers multiplied (the authors' code), each block counted once (Eq. 5).
GOLDEN = """
12 .5 6.08e-4 1.77e-2  12 .6 3.58e-3 4.68e-2  12 .7 1.77e-2 1.12e-1  12 .8 7.56e-2 2.46e-1  12 .9 2.89e-1 5.10e-1
18 .5 1.53e-5 2.82e-3  18 .6 2.17e-4 1.15e-2  18 .7 2.36e-3 4.08e-2  18 .8 2.08e-2 1.29e-1  18 .9 1.55e-1 3.74e-1
24 .5 3.85e-7 4.47e-4  24 .6 1.31e-5 2.83e-3  24 .7 3.15e-4 1.49e-2  24 .8 5.74e-3 6.79e-2  24 .9 8.33e-2 2.74e-1
"""
ROWS = [tuple(map(float, row)) for row in np.array(GOLDEN.split()).reshape(-1, 4)]


@pytest.mark.parametrize(("depth", "alpha_min", "sublayers", "blocks"), ROWS)
def test_effective_alpha_is_the_published_table(depth, alpha_min, sublayers, blocks):
    per_sublayer = effective_alpha(alphas(int(depth), alpha_min=alpha_min))
    per_block = effective_alpha(alphas(int(depth), alpha_min=alpha_min, per="block"))
    assert per_sublayer == pytest.approx(sublayers, rel=5e-3)
    assert per_block == pytest.approx(blocks**2, rel=1e-2), "both shortcuts of a block fade: the square"


def test_sublayers_are_evenly_spaced_with_exact_ends():
    values = alphas(12, alpha_min=0.6)
    assert values[0] == 1.0 and values[-1] == 0.6
    np.testing.assert_allclose(values, np.linspace(1, 0.6, 24), rtol=1e-15)


def test_blocks_follow_equation_5():
    values = alphas(4, alpha_min=0.6, per="block")
    np.testing.assert_allclose(values, np.repeat([0.9, 0.8, 0.7, 0.6], 2), rtol=1e-15)
    assert values[-1] == 0.6


def test_cosine_and_constant():
    steps = np.arange(24) / 23
    np.testing.assert_allclose(
        alphas(12, alpha_min=0.6, schedule="cosine"), 0.6 + 0.4 * (1 + np.cos(np.pi * steps)) / 2, rtol=1e-14
    )
    assert set(alphas(3, alpha_min=0.7, schedule="constant")) == {0.7}


@pytest.mark.parametrize(("fade", "kept"), [("attention", 1), ("mlp", 0)])
def test_fading_one_kind_leaves_the_other_at_one_and_moves_nothing(fade, kept):
    both, one = alphas(6, alpha_min=0.5), alphas(6, alpha_min=0.5, fade=fade)
    assert all(alpha == 1.0 for alpha in one[kept::2])
    assert one[1 - kept :: 2] == both[1 - kept :: 2]


def test_other_networks_give_their_own_count():
    assert alphas(shortcuts=9, alpha_min=0.5) == pytest.approx(tuple(np.linspace(1, 0.5, 9)))
    assert alphas(shortcuts=1, alpha_min=0.5) == (0.5,)


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
@pytest.mark.parametrize("per", ["sublayer", "block"])
@pytest.mark.parametrize("effective", [1e-4, 3e-3, 0.3, 1.0])
def test_alpha_min_for_inverts_effective_alpha(schedule, per, effective):
    alpha_min = alpha_min_for(12, effective, schedule=schedule, per=per)
    found = effective_alpha(alphas(12, alpha_min=alpha_min, schedule=schedule, per=per))
    assert found == pytest.approx(effective, rel=1e-12)


def test_auto_reaches_the_recommended_range_or_says_that_the_floor_decided():
    deep, shallow = choose_alpha_min(12), choose_alpha_min(4)
    assert 1e-3 <= deep.effective < 1e-2 and "recommended" in deep.rule
    assert shallow.alpha_min == 0.5 and "floor" in shallow.rule
    assert alphas(12)[-1] == deep.alpha_min


def test_contributions_are_equation_4():
    """Unrolled by hand with numbers in place of tensors: x <- alpha x + f, one coefficient at a time."""
    values = alphas(3, alpha_min=0.4)
    coefficients = np.zeros(len(values) + 1)
    coefficients[0] = 1.0
    for branch, alpha in enumerate(values, start=1):
        coefficients *= alpha
        coefficients[branch] = 1.0
    np.testing.assert_allclose(contributions(values), coefficients, rtol=1e-14)
    assert contributions(values)[0] == pytest.approx(math.prod(values))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"depth": 12, "alpha_min": 1.2}, r"alpha_min is 1.2; allowed: a number in \[0, 1\], or 'auto'"),
        ({"depth": 12, "alpha_min": float("nan")}, "alpha_min is nan"),
        ({"depth": 12, "alpha_min": True}, "alpha_min is True"),
        ({"depth": 0}, "depth is 0; allowed: a whole number, 1 or more"),
        ({"depth": 2.5}, "depth is 2.5"),
        ({"depth": 12, "schedule": "linaer"}, "schedule is 'linaer'.*did you mean 'linear'"),
        ({"depth": 12, "per": "layer"}, "per is 'layer'; allowed: sublayer, block"),
        ({"depth": 12, "fade": "attn"}, "fade is 'attn'"),
        ({"depth": 12, "shortcuts": 3}, "exactly one of the two"),
        ({}, "exactly one of the two"),
        ({"shortcuts": 3, "fade": "mlp"}, "only depth= says which"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        alphas(**arguments)


def test_an_impossible_effective_alpha_is_refused():
    with pytest.raises(ValueError, match=r"effective is 0; allowed: a number in \(0, 1\]"):
        alpha_min_for(12, 0)


@pytest.mark.parametrize("choice", [{}, {"per": "block"}, {"fade": "mlp"}, {"schedule": "cosine"}])
def test_auto_is_the_alpha_min_whose_effective_alpha_is_the_recommended_one(choice):
    """3e-3, or the floor of 0.5 where that would need less; for the schedule that was asked for and no other."""
    wanted = alpha_min_for(16, 3e-3, **choice)
    found = choose_alpha_min(16, **choice)
    assert found.alpha_min == max(wanted, 0.5)
    assert alphas(16, **choice) == alphas(16, alpha_min=found.alpha_min, **choice)
    assert found.effective == pytest.approx(3e-3 if wanted > 0.5 else effective_alpha(alphas(16, **choice)), rel=1e-9)
