"""Values land where they should, ticks are round numbers inside the axis, and thinning a curve loses no spike."""

from __future__ import annotations

import math
import statistics

from hypothesis import given
from hypothesis import strategies as st

from echoless.reports.axes import Axis, fit, medians, thin, tick_text

NUMBERS = st.floats(-1e9, 1e9, allow_nan=False)


@given(st.lists(NUMBERS, min_size=1, max_size=20), st.booleans())
def test_every_value_has_a_place_and_ticks_lie_inside(values, log):
    axis = fit(values, log=log)
    places = [axis.place(value) for value in values]
    assert all(0 <= place <= 1 for place in places)
    assert sorted(places) == [place for _, place in sorted(zip(values, places))]
    ticks = axis.ticks()
    slack = 1e-6 * (axis.high - axis.low)
    assert ticks and all(axis.low - slack <= tick <= axis.high + slack for tick in ticks) and len(ticks) <= 12


def test_a_logarithmic_axis_is_used_only_where_it_can_be():
    assert fit([1e-4, 1.0], log=True).log and not fit([0.0, 1.0], log=True).log and not fit([1.0, 2.0], log=True).log
    assert Axis(0.01, 100.0, log=True).place(1.0) == 0.5


def test_ticks_are_round():
    assert Axis(0.0, 1.0).ticks() == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert Axis(0.001, 1.0, log=True).ticks() == [0.001, 0.01, 0.1, 1.0]
    assert [tick_text(value) for value in (0, 0.5, 40_000, 1e-5, 2e6)] == ["0", "0.5", "40k", "1e-05", "2M"]


def test_a_thinned_curve_keeps_its_ends_and_its_spikes():
    xs = [float(i) for i in range(10_000)]
    ys = [math.sin(x / 500) for x in xs]
    ys[1234], ys[7777] = 9.0, -9.0
    thin_x, thin_y = thin(xs, ys, 400)
    assert len(thin_x) <= 400 and thin_x == sorted(thin_x) and (thin_x[0], thin_x[-1]) == (0.0, 9999.0)
    assert max(thin_y) == 9.0 and min(thin_y) == -9.0
    for count in (5, 400):
        assert thin(xs[:count], ys[:count], 400) == (xs[:count], ys[:count]), "what is short enough stays as it is"


def test_medians_are_those_of_equal_spans():
    xs, ys = [float(i) for i in range(100)], [float(i * i % 37) for i in range(100)]
    middle, values = medians(xs, ys, 10)
    assert middle == [4.5 + 10 * i for i in range(10)]
    assert values == [statistics.median(ys[10 * i : 10 * i + 10]) for i in range(10)]
    assert len(medians(xs[:3], ys[:3], 10)[0]) == 3
