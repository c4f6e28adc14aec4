"""What does `demo` do? It pretrains plain and faded encoders side by side on a fresh machine, and compares them.

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
    """Returns the metrics of every run by its name: "plain-0", "faded-0", ... Runs of a seed differ in alpha_min."""
    require_folder(options.out)

    from echoless.verbs.demonstration import run_demo

    return run_demo(options, say)
