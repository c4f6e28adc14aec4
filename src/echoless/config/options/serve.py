"""Which arguments does `serve` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from echoless.config.options.fields import AnyPath


@dataclass(frozen=True)
class ServeOptions:
    """Show the report live while runs train, and a gallery of all runs in a folder.

    Read-only; listens on 127.0.0.1, so only this machine can connect. Stop it with Ctrl-C.
    """

    EXAMPLES = (
        "echoless serve RUNS",
        "echoless serve RUNS --port 9000",
    )

    folder: AnyPath
    """A folder of runs, up to four levels deep, or one run."""
    _: KW_ONLY
    port: int = 8137
    """Port to listen on; 0 takes any free port."""
