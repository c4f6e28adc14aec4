"""What does `export` do? See `exchange/export.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echoless.config.options import ExportOptions
from echoless.verbs.early import require_encoder
from echoless.verbs.signature import signature_of

if TYPE_CHECKING:
    from echoless.exchange import ExportReport


@signature_of(ExportOptions)
def export(options: ExportOptions) -> ExportReport:
    """Returns what was written, and how far it is from the original; `print` it."""
    require_encoder(options.run, others="")

    from echoless.exchange import export_encoder

    return export_encoder(options.run, options.to, options.out, tolerance=options.tolerance)
