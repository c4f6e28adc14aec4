"""Everything that decides decoded pixels is part of the name of their cache, and nothing else is.

The fields are read from the settings themselves: one that is added without a strategy fails here.
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image

from echoless.data import encoded, open_images
from echoless.data.content import Content
from echoless.data.decode import DecodeSettings
from echoless.data.encoded import _key
from echoless.data.resizing import Fit

SIDES = st.integers(1, 4096)
FITS = st.builds(
    Fit, st.sampled_from(["cover", "inside"]), st.tuples(SIDES, SIDES), st.sampled_from(["bicubic", "bilinear"])
)
VALUES = {
    "channels": st.none() | st.integers(1, 12),
    "bits": st.none() | st.sampled_from([8, 16]),
    "reduction": st.none() | FITS,
    "pixel_limit": st.integers(1, 10**9),
}
SETTINGS = st.builds(DecodeSettings, **VALUES)


def content(word: str = "images") -> Content:
    return Content(fingerprint=word, digests_ND=np.zeros((0, 16), np.uint8))


def test_every_setting_has_a_strategy():
    assert {field.name for field in fields(DecodeSettings)} == VALUES.keys()


@given(SETTINGS, st.sampled_from(sorted(VALUES)), st.data())
def test_another_value_of_any_setting_is_another_cache(settings, name, data):
    value = data.draw(VALUES[name])
    assume(value != getattr(settings, name))
    assert _key(content(), replace(settings, **{name: value})) != _key(content(), settings)


@given(SETTINGS)
def test_equal_settings_are_one_cache_and_other_images_another(settings):
    assert _key(content(), settings) == _key(content(), replace(settings)) != _key(content("others"), settings)


def test_what_could_not_be_decoded_is_tried_again_by_other_decoders(tmp_path: Path, monkeypatch) -> None:
    """An image that was bad before an extra was installed is not bad for ever."""
    for number in range(3):
        Image.fromarray(np.full((8, 8, 3), number, np.uint8)).save(tmp_path / f"{number}.png")
    decode = encoded.decode_or_bad

    def without_the_extra(source, settings, index, data):
        return decode(source, settings, index, b"" if index == 1 else data)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(encoded, "decode_or_bad", without_the_extra)
        before = open_images(tmp_path, max_bad_fraction=1.0)
    remembered = open_images(tmp_path, max_bad_fraction=1.0)
    monkeypatch.setattr(encoded, "decoder_versions", lambda: ("an extra 1.0",))
    after = open_images(tmp_path, max_bad_fraction=1.0)
    assert [sorted(images.excluded) for images in (before, remembered, after)] == [[1], [1], []]
