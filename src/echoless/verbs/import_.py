"""What does `import` do? See `exchange/importing.py`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from echoless.config.options import ImportOptions
from echoless.errors import UntrustedFile
from echoless.verbs.signature import signature_of

if TYPE_CHECKING:
    from echoless.exchange import ImportReport


@signature_of(ImportOptions)
def import_(options: ImportOptions) -> ImportReport:
    """Returns what was found, written, dropped and assumed; `print` it."""
    if not Path(options.file).exists():
        raise UntrustedFile(
            f"{options.file} does not exist; give a checkpoint, or a folder of transformers or diffusers"
        )

    from echoless.exchange.importing import import_with

    return import_with(options)
