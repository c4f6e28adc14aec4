"""What does `demo` do? The main job on a fresh machine: pretrain a plain and a faded encoder, and compare them.

The second half, which needs torch, is in `demonstration.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from echoless.config.metrics import Metric
from echoless.config.options import DemoOptions
from echoless.verbs.early import require_folder
from echoless.verbs.signature import signature_of


@signature_of(DemoOptions)
def demo(options: DemoOptions, say: Callable[[str], None] = print) -> dict[str, list[Metric]]:
    """Returns the metrics of the runs "plain" and "faded", which differ in alpha_min alone."""
    require_folder(options.out)

    from echoless.verbs.demonstration import run_demo

    return run_demo(options, say)
