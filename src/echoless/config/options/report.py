"""Which arguments does `report` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from echoless.config.options.fields import AnyPath


@dataclass(frozen=True)
class ReportOptions:
    """Write one page that shows one run, or compares several.

    What was run, how training went and what was learned. The page is one file that loads nothing, for a browser or a
    printer. A run may still be training, or half written.
    """

    runs: tuple[AnyPath, ...]
    """Run folders. The first is what the others are compared with."""
    _: KW_ONLY
    out: AnyPath = "report.html"
    """The page to write; an earlier one is replaced."""
