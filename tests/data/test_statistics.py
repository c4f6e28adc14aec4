"""Mean and standard deviation of a set are those of its pixels between 0 and 1, for 8 and for 16 bits.

Run alone: pytest tests/data/test_statistics.py
"""

from __future__ import annotations

import numpy as np
import pytest

from echoless.data import measure_statistics, open_images


@pytest.mark.parametrize("bits", [8, 16])
def test_they_are_those_of_numpy(tmp_path, bits):
    kind = {8: np.uint8, 16: np.uint16}[bits]
    pixels = np.random.default_rng(0).integers(0, 2**bits, (12, 10, 14, 2)).astype(kind)
    pixels[..., 1] //= 4  # a darker channel
    np.savez(tmp_path / "set.npz", images=pixels)
    found = measure_statistics(open_images(tmp_path / "set.npz"))
    scaled = pixels / (2**bits - 1)
    assert found.mean == pytest.approx(scaled.mean(axis=(0, 1, 2)), rel=1e-9)
    assert found.std == pytest.approx(scaled.std(axis=(0, 1, 2)), rel=1e-9)


def test_a_channel_that_never_changes_is_not_divided_by_zero(tmp_path):
    np.savez(tmp_path / "set.npz", images=np.full((4, 8, 8, 1), 255, np.uint8))
    assert measure_statistics(open_images(tmp_path / "set.npz")).std == (1.0,)
