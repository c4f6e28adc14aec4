"""Which arguments does `doctor` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass


@dataclass(frozen=True)
class DoctorOptions:
    """Say what this machine can do, and what is missing.

    Ends with a self-test of at most about ten seconds: a tiny model trains for a few steps (fewer where the machine is
    busy), is saved, and is resumed. The exit code is 0 unless something that pretraining needs is broken.
    """

    _: KW_ONLY
    self_test: bool = True
    """Train a few steps; --no-self-test only looks."""
