"""Which arguments does `doctor` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass


@dataclass(frozen=True)
class DoctorOptions:
    """Check what this machine supports and which libraries are missing.

    Ends with a self-test of about ten seconds: a tiny model is trained for a few steps, saved and resumed. The exit
    code is 0 unless something that pretraining needs is broken.
    """

    EXAMPLES = (
        "echoless doctor",
        "echoless doctor --no-self-test",
        "echoless doctor --plan",
    )

    _: KW_ONLY
    self_test: bool = True
    """Run the self-test."""
    plan: bool = False
    """Instead, measure how fast this machine decodes, encodes and writes, and print what 10^6, 10^8 and 10^9 images
    would cost in bytes, hours and files."""
