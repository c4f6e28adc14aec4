"""Proves that the checksum of cached pixels is the CRC-32 of zlib, whichever library computes it."""

from __future__ import annotations

import zlib

import numpy as np

from echoless.storage.checksum import crc32


def test_the_checksum_is_that_of_zlib() -> None:
    assert crc32(b"123456789") == 0xCBF43926  # the check value in every catalogue of CRCs
    rng = np.random.default_rng(0)
    for size in (0, 1, 15, 16, 17, 255, 4096, 5000, 562_500):
        values = rng.integers(0, 256, size, dtype=np.uint8)
        assert crc32(values.data) == zlib.crc32(values.tobytes())
        wide = values[: size // 2 * 2].view(np.uint16)
        assert crc32(wide.data) == zlib.crc32(wide.tobytes())
