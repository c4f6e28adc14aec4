"""What does `report` do? See `reports/page.py`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from echoless.config.options import ReportOptions
from echoless.errors import RunError
from echoless.verbs.early import require_page_place
from echoless.verbs.signature import signature_of

if TYPE_CHECKING:
    from echoless.reports.page import Page


@signature_of(ReportOptions)
def report(options: ReportOptions) -> Page:
    """Returns the page that was written."""
    runs = options.runs if isinstance(options.runs, tuple | list) else (options.runs,)
    for run in runs:
        if not Path(run).is_dir():
            raise RunError(f"{run} does not exist or is not a folder; give a run folder")
    require_page_place(options.out)

    from echoless.reports.page import report as write_page

    return write_page(runs, options.out)
