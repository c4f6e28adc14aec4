"""What does `inspect` do? See `exchange/inspecting.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echoless.config.options import InspectOptions
from echoless.verbs.signature import signature_of

if TYPE_CHECKING:
    from echoless.shortcuts import FadeReport


@signature_of(InspectOptions)
def inspect(options: InspectOptions) -> FadeReport:
    """Returns the shortcuts with their alphas; `print` it."""
    from echoless.exchange.inspecting import inspect_with

    return inspect_with(options)
