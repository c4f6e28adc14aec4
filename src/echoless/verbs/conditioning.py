"""What does `conditioning` do? Refuse what cannot be, then measure the Jacobian of every block of three fresh ViTs.

The second half, which needs torch, is in `jacobians.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from echoless.config.options import ConditioningOptions
from echoless.verbs.early import require_data, require_folder
from echoless.verbs.signature import signature_of


@signature_of(ConditioningOptions)
def conditioning(options: ConditioningOptions, say: Callable[[str], None] = print) -> list[dict[str, Any]]:
    """Returns what conditioning.json holds."""
    require_data(options.data)
    require_folder(options.out)

    from echoless.verbs.jacobians import measure_conditioning

    return measure_conditioning(options, say)
