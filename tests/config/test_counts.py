"""Numbers of things are written for people: plurals, and speeds without exponents."""

from __future__ import annotations

import pytest

from echoless.config.counts import counted, first_few, joined, speed_in_words


def test_one_is_singular():
    assert (counted(1, "class", "classes"), counted(2, "class", "classes")) == ("1 class", "2 classes")


def test_names_are_listed_as_in_a_sentence():
    """`RUN and --train and --test and --out are missing`, it said."""
    assert [joined("abcd"[:n]) for n in (1, 2, 3, 4)] == ["a", "a and b", "a, b and c", "a, b, c and d"]


def test_a_list_is_not_cut_for_a_single_item():
    """Of four bad images three were named, and the fourth was "1 more"."""
    assert [len(first_few(range(count), 3)) for count in (0, 3, 4, 5, 99)] == [0, 3, 4, 3, 3]


@pytest.mark.parametrize(
    ("speed", "text"),
    [(7.364, "7.36"), (34.94, "34.9"), (999.4, "999"), (999.6, "1,000"), (1139.3, "1,139"), (2e6, "2,000,000")],
)
def test_a_speed_has_three_digits_and_no_exponent(speed, text):
    assert speed_in_words(speed) == f"{text} images/s"
