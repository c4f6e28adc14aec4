"""Which arguments does `trial` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from echoless.config.options.fields import AnyPath, group


@dataclass(frozen=True)
class TrialOptions:
    """Run one trial of a sweep: the line that `sweep --print` prints.

    Continues where an earlier attempt stopped, and records what is finished in SWEEP/logs/NAME.json. The sweep finds it
    there, and does not start the trial again. If another process is running the trial, it waits.
    """

    EXAMPLES = (
        "echoless trial SWEEP alpha_min-0.6_seed-0",
        "echoless trial SWEEP alpha_min-0.6_seed-0 --launcher 'torchrun --nproc-per-node 8'",
    )

    sweep: AnyPath
    """Folder of the sweep."""
    name: str
    """The trial: the name of its folder."""
    _: KW_ONLY

    group("machine")
    launcher: str | None = None
    """Program that starts every training and every `sample`, such as "torchrun --nproc-per-node 8"; `-m echoless --`
    and the command are appended."""
    accumulate: int | None = None
    """Gradient accumulation in every training, fine-tuning included: micro-batches per step and process."""
    workers: int | None = None
    """Threads that prepare batches ahead, in every training."""
