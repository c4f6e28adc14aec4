"""What does `trial` do? It runs one trial of a sweep, wherever that is, and keeps its ledger."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from echoless.config.options import TrialOptions
from echoless.verbs.signature import signature_of

if TYPE_CHECKING:
    from echoless.sweeps.ledger import Outcome


@signature_of(TrialOptions)
def trial(options: TrialOptions) -> Outcome:
    """Returns how it ended: its state is done, failed or stopped."""
    from echoless.runtime import StopRequest
    from echoless.sweeps.ledger import planned_trial
    from echoless.sweeps.starting import Starting
    from echoless.sweeps.trials import run_alone

    out = Path(options.sweep)
    planned, starting = planned_trial(out, options.name), Starting.of(options)

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with StopRequest() as stop:
        return run_alone(planned, out, stop, say, starting)
