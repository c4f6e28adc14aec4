"""What does `runs` do? It lists, ranks or removes the runs of a folder. See `reports/listing.py`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from echoless.config.checks import require_one_of
from echoless.config.metrics import METRICS
from echoless.config.options import RunsOptions
from echoless.config.options.fields import AnyPath
from echoless.errors import ConfigError, RunError
from echoless.verbs.signature import signature_of

if TYPE_CHECKING:
    from echoless.reports.listing import Listing

Ask = Callable[[str], str]


@signature_of(RunsOptions)
def runs(options: RunsOptions, ask: Ask = input) -> Listing:
    """Returns a list that prints as a table; for rm, what was removed."""
    require_one_of("action", options.action, ("ls", "best", "rm"))
    if options.action == "best":
        require_one_of("metric", options.metric, tuple(METRICS))
    folders = [Path(folder) for folder in options.folders]
    for folder in folders:
        if not folder.is_dir():
            raise RunError(f"{folder} does not exist or is not a folder; give a run, or a folder of runs")

    from echoless.reports.listing import best_runs, list_folders, listed

    if options.action == "ls":
        return list_folders(folders)
    if options.action == "best":
        return best_runs(folders, options.metric)
    return _remove(listed(folders), options, ask)


def _remove(found: Listing, options: RunsOptions, ask: Ask) -> Listing:
    from echoless.runs.folder import remove_run, require_removable

    for entry in found:
        require_removable(Path(entry.path))
    question = f"{found}\nremove {len(found)} {'run' if len(found) == 1 else 'runs'}? [y/N] "
    if not options.yes and not _agrees(question, ask):
        return found.without_entries()
    for entry in found:
        remove_run(Path(entry.path))
    return found


def _agrees(question: str, ask: Ask) -> bool:
    if ask is input and not sys.stdin.isatty():
        raise ConfigError("rm asks before it removes, and nobody can answer here; give --yes")
    return ask(question).strip().lower() in ("y", "yes")


def list_runs(*folders: AnyPath) -> Listing:
    """The runs below these folders (default: the current one), with state, size and numbers."""
    return runs("ls", folders or (".",))
