"""What does `runs` do? It lists, ranks or removes the runs of a folder, or the evaluations of a run.

See `reports/listing.py` and `reports/evaluations.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from echoless.config.checks import require_one_of
from echoless.config.counts import counted
from echoless.config.metrics import METRICS
from echoless.config.options import RunsOptions
from echoless.config.options.fields import AnyPath
from echoless.errors import ConfigError, RunError
from echoless.verbs.signature import signature_of

if TYPE_CHECKING:
    from echoless.reports.evaluations import Evaluations
    from echoless.reports.listing import Listing

Ask = Callable[[str], str]


@signature_of(RunsOptions)
def runs(options: RunsOptions, ask: Ask = input) -> Listing | Evaluations:
    """Returns a list that prints as a table; for rm and rm-results, what was removed."""
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
    if options.action == "rm":
        return _remove(listed(folders), options, ask)
    return _results(folders, options, ask)


def _results(folders: list[Path], options: RunsOptions, ask: Ask) -> Evaluations:
    from echoless.reports.evaluations import Evaluations, evaluations_of, remove_evaluations
    from echoless.reports.listing import listed

    if len(folders) != 1:
        raise ConfigError(f"{options.action} takes one run, and {len(folders)} are given")
    (run,) = folders
    listed(folders)  # refuses what is not a run
    found = evaluations_of(run)
    if options.action == "results":
        return found
    allowed = f"1 to {len(found)}, as `echoless runs results` lists them" if found else "none, nothing was measured"
    if not options.which:
        raise ConfigError(f"which evaluations of {run} are removed? give --which: {allowed}")
    for number in options.which:
        if not 1 <= number <= len(found):
            raise ConfigError(f"which is {number}; allowed: {allowed}")
    chosen = Evaluations([each for each in found if each.number in options.which], found.title)
    if not options.yes and not _agrees(f"{chosen}\nremove these numbers from {run}? [y/N] ", ask):
        return Evaluations([], "nothing was removed")
    remove_evaluations(run, chosen)
    return chosen


def _remove(found: Listing, options: RunsOptions, ask: Ask) -> Listing:
    from echoless.runs.folder import remove_run, require_removable

    for entry in found:
        require_removable(Path(entry.path))
    question = f"{found}\nremove {counted(len(found), 'run')}? [y/N] "
    if not options.yes and not _agrees(question, ask):
        return found.without_entries()
    for entry in found:
        remove_run(Path(entry.path))
    return found


def _agrees(question: str, ask: Ask) -> bool:
    if ask is input and not sys.stdin.isatty():
        raise ConfigError("it asks before it removes, and nobody can answer here; give --yes")
    return ask(question).strip().lower() in ("y", "yes")


def list_runs(*folders: AnyPath) -> Listing:
    """The runs below these folders (default: the current one), with state, size and numbers."""
    return cast("Listing", runs("ls", folders or (".",)))
