"""What does `sweep` do? See `sweeps/run.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING

from echoless.config.addresses import has_secrets, without_secrets
from echoless.config.options import SweepOptions
from echoless.errors import ConfigError
from echoless.verbs.early import require_data, require_labels, require_test_of
from echoless.verbs.signature import signature_of

if TYPE_CHECKING:
    from echoless.sweeps.run import SweepResult


def _print(text: str) -> None:
    print(text, flush=True)


OF_A_GRID = ("recipe",)  # what an experiment of a paper sets itself
OF_A_PAPER = ("scale", "extractor", "reference")


@signature_of(SweepOptions)
def sweep(options: SweepOptions, say: Callable[[str], None] = _print) -> SweepResult:
    """Returns what was measured, which runs failed, and whether SIGTERM stopped the sweep; it prints as the table.

    Ctrl-C lets the runs save, and then raises KeyboardInterrupt.
    """
    _refuse_ignored(options)
    _refuse_secrets(options)
    require_test_of(options.test_labels, options.test)
    require_test_of(options.test_masks, options.test, "test_masks")
    if not options.print:  # printed commands may be for another machine
        require_data(options.data, options.train, options.test)
        require_labels(options.labels, options.test_labels)

    from echoless.sweeps.run import run_sweep

    return run_sweep(options, say)


def _refuse_secrets(options: SweepOptions) -> None:
    """A sweep writes its commands down."""
    for name in ("data", "train", "test"):
        value = getattr(options, name)
        if value is not None and has_secrets(value):
            raise ConfigError(
                f"{name} is {without_secrets(str(value))!r} with a password or a token, which the plan of a sweep "
                "would hold; give credentials by the environment or the configuration of fsspec"
            )


def _refuse_ignored(options: SweepOptions) -> None:
    """What would have no effect is refused by name."""
    given = {field.name for field in fields(options) if getattr(options, field.name) != field.default}
    for name in OF_A_GRID:
        if options.paper is not None and name in given:
            value = getattr(options, name)
            raise ConfigError(f"{name} is {value!r}, but the experiment {options.paper} sets its own; leave it out")
    for name in OF_A_PAPER:
        if options.paper is None and name in given:
            raise ConfigError(f"{name} is {getattr(options, name)!r}, but it applies only with --paper; leave it out")
