"""What does `sweep` do? See `sweeps/run.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from echoless.config.options import SweepOptions
from echoless.verbs.early import require_data, require_test_of
from echoless.verbs.signature import signature_of

if TYPE_CHECKING:
    from echoless.sweeps.run import Swept


def _print(text: str) -> None:
    print(text, flush=True)


@signature_of(SweepOptions)
def sweep(options: SweepOptions, say: Callable[[str], None] = _print) -> Swept:
    """Returns which runs failed, and whether a signal stopped the sweep."""
    require_test_of(options.test_labels, options.test)
    if not options.print:  # printed commands may be for another machine
        require_data(options.data, options.test)

    from echoless.sweeps.run import run_sweep

    return run_sweep(options, say)
