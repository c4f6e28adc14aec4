"""What may be asked of `inspect`?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from echoless.config.model import Fade, Schedule


@dataclass(frozen=True, kw_only=True)
class InspectOptions:
    """How the shortcuts that are found would be faded."""

    alpha_min: float | Literal["auto"] = "auto"
    """Weight of the last identity shortcut."""
    schedule: Schedule = "linear"
    """How alpha falls with depth."""
    fade: Fade = "both"
    """Which shortcuts fade."""
    within: tuple[str, ...] | None = None
    """Only shortcuts in these modules: names, or patterns such as `encoder.layer.1?`."""
