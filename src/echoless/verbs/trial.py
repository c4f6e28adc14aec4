"""What does `trial` do? It runs one trial of a sweep, wherever that is, and keeps its ledger."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from echoless.config.options import TrialOptions
from echoless.config.options.evaluate import INCEPTION
from echoless.errors import DataError
from echoless.verbs.early import require_data, require_labels
from echoless.verbs.signature import signature_of

if TYPE_CHECKING:
    from echoless.sweeps.experiment import Trial
    from echoless.sweeps.ledger import Outcome

_INPUTS = ("train", "test", "labels", "test_labels", "latent", "masks", "test_masks", "extractor")


@signature_of(TrialOptions)
def trial(options: TrialOptions) -> Outcome:
    """Returns how it ended: its state is done, failed or stopped."""
    from echoless.runtime import StopRequest
    from echoless.sweeps.ledger import Ledger, planned_trial
    from echoless.sweeps.starting import Starting
    from echoless.sweeps.trials import run_alone

    out = Path(options.sweep)
    planned, starting = planned_trial(out, options.name), Starting.of(options)
    _require_inputs(planned, len(Ledger(out, planned).finished))

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with StopRequest() as stop:
        return run_alone(planned, out, stop, say, starting)


def _require_inputs(planned: Trial, finished: int) -> None:
    """Refuse what only the last command would miss, after days of training. `sweep --print` checks no path, since its
    lines may be for another machine."""
    from echoless.sweeps.commands import option_of

    for words in planned.commands[finished:]:
        given = {name: values[0] for name in _INPUTS if (values := option_of(words, name))}
        require_data(*words[1:2] if words[0] == "pretrain" else (), given.get("train"), given.get("test"))
        require_labels(given.get("labels"), given.get("test_labels"))
        extractor = given.get("extractor", "")
        file = extractor.removeprefix(INCEPTION) if extractor.startswith(INCEPTION) else None
        for path in (file, given.get("latent"), given.get("masks"), given.get("test_masks")):
            if path is not None and not Path(path).exists():
                raise DataError(f"{path} does not exist, and `{words[0]}` of this trial needs it; nothing was started")
