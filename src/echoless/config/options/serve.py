"""Which arguments does `serve` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from echoless.config.options.fields import AnyPath


@dataclass(frozen=True)
class ServeOptions:
    """Show the report live while runs train, and a gallery of all runs in a folder.

    Read-only and for this machine alone: it listens on 127.0.0.1. Ctrl-C ends it.
    """

    folder: AnyPath
    """A folder of runs, up to four levels deep, or one run."""
    _: KW_ONLY
    port: int = 8137
    """Where to listen; 0 takes any free port."""
