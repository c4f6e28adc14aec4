"""What does `serve` do? See `reports/server.py`."""

from __future__ import annotations

from pathlib import Path

from echoless.config.options import ServeOptions
from echoless.verbs.early import require_runs
from echoless.verbs.signature import signature_of


@signature_of(ServeOptions)
def serve(options: ServeOptions) -> None:
    """Returns after Ctrl-C."""
    require_runs(options.folder)

    from echoless.reports.server import serve as serve_pages

    serve_pages(Path(options.folder), options.port)
