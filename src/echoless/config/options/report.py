"""Which arguments does `report` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from echoless.config.options.fields import AnyPath


@dataclass(frozen=True)
class ReportOptions:
    """Write an HTML report of one run, or a comparison of several.

    Shows what was run, how training went and what was learned, in one self-contained file. Works for runs that are
    still training or incomplete.
    """

    EXAMPLES = (
        "echoless report RUN",
        "echoless report PLAIN FADED --out report.html",
    )

    runs: tuple[AnyPath, ...]
    """Run folders. The first is the baseline of the comparison."""
    _: KW_ONLY
    out: AnyPath = "report.html"
    """HTML file to write; an existing one is replaced."""
