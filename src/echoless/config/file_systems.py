"""Can fsspec open this address here? If not, the library that is missing is named, before any work."""

from __future__ import annotations

import re

from echoless.config.addresses import without_secrets
from echoless.config.extras import install_command
from echoless.errors import DataError

# fsspec names some of these itself, in words of its own.
_WAY = {
    "s3": "pip install s3fs",
    "s3a": "pip install s3fs",
    "gs": "pip install gcsfs",
    "gcs": "pip install gcsfs",
    "abfs": "pip install adlfs",
    "az": "pip install adlfs",
    "hf": "pip install huggingface_hub",
}


def protocols_of(address: str) -> list[str]:
    """Outermost first: several where file systems are chained, as in `simplecache::s3://...`."""
    before, _, _ = address.partition("://")
    return [protocol.lower() for protocol in before.split("::") if protocol]


def require_file_system(address: str) -> None:
    """Refuses an address whose library is missing, whose protocol is unknown, or whose secrets could not be hidden."""
    if re.search(r"[\s'\"<>]", address) and re.search(r"[?#@]", address):
        raise DataError("data is an address with a space or a quote beside a user or a query; write %20, %27, ...")
    shown = without_secrets(address)
    try:
        import fsspec
    except ImportError:
        raise DataError(f"data {shown!r} needs fsspec: {install_command('remote')}") from None
    for protocol in protocols_of(address):
        try:
            fsspec.get_filesystem_class(protocol)
        except ValueError:
            near = "s3, gs, abfs, hf, https; fsspec.available_protocols() lists all"
            raise DataError(f"data {shown!r} has the unknown protocol {protocol!r}; allowed: {near}") from None
        except Exception as error:  # ImportError, or what a broken install raises
            way = install_command("remote") if protocol in ("http", "https") else _WAY.get(protocol)
            way = way or re.sub(r"\s+", " ", without_secrets(str(error)))
            raise DataError(f"data {shown!r} needs a library that is not installed: {way}") from None
