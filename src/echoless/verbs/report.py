"""What does `report` do? See `reports/page.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echoless.config.options import ReportOptions
from echoless.verbs.signature import signature_of

if TYPE_CHECKING:
    from echoless.reports.page import Page


@signature_of(ReportOptions)
def report(options: ReportOptions) -> Page:
    """Returns the page that was written."""
    from echoless.reports.page import report as write_page

    runs = options.runs if isinstance(options.runs, tuple | list) else (options.runs,)
    return write_page(runs, options.out)
