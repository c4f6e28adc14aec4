"""An array on disk is a .npy file that numpy reads, with or without a call that reserves space (macOS has none)."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest

from echoless.errors import RunError
from echoless.storage.mapped import create_array


@pytest.mark.parametrize("reserving", [True, False])
def test_a_new_array_is_a_file_that_numpy_reads(reserving, tmp_path, monkeypatch):
    if not reserving:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    array = create_array(tmp_path / "x.npy", np.float32, (3, 5))
    array[:] = np.arange(15).reshape(3, 5)
    array.flush()
    assert np.array_equal(np.load(tmp_path / "x.npy"), np.arange(15, dtype=np.float32).reshape(3, 5))
    assert (tmp_path / "x.npy").stat().st_size == 128 + 15 * 4


def test_a_full_disk_is_told_with_what_the_array_needs(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(RunError, match=r"the disk is full \(4000 bytes needed"):
        create_array(tmp_path / "x.npy", np.float32, (1000,))
