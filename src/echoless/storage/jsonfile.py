"""How is JSON written so that equal values give equal bytes, and how is untrusted JSON read?

Standard JSON both ways: no NaN, no Infinity. A file is refused before it is read when it is not a plain file or is
larger than a stated limit, so that a hostile one costs neither memory nor time. What we write, we can read.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from echoless.errors import RunError, UntrustedFile
from echoless.storage.atomic import write_bytes
from echoless.storage.portable import open_flags

JSON_LIMIT = 4 * 2**20  # bytes; a manifest with the state of a large optimiser is a tenth of it


def json_bytes(value: Any, path: Path, *, indent: int | None = 2) -> bytes:
    """The canonical JSON of `value`. `path` is for the error message if it has none."""
    try:
        data = json.dumps(value, sort_keys=True, indent=indent, allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise RunError(f"{path} cannot be written as JSON: {error}") from error
    if len(data) > JSON_LIMIT:
        raise RunError(f"{path} would be {len(data)} bytes of JSON; allowed: {JSON_LIMIT}")
    return data


def write_json(path: Path, value: Any) -> None:
    """Replace `path`, atomically."""
    write_bytes(path, json_bytes(value, path))


def read_json(path: Path) -> Any:
    """The value in a JSON file of at most JSON_LIMIT bytes."""
    return parse_json(read_small(path), path)


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; any other value is refused."""
    return require_object(read_json(path), path)


def require_object(value: Any, path: Path) -> dict[str, Any]:
    """`value` itself if it is a JSON object."""
    if not isinstance(value, dict):
        raise UntrustedFile(f"{path} holds a JSON {type(value).__name__}; allowed: an object")
    return value


def parse_json(data: bytes, path: Path) -> Any:
    """Parse untrusted JSON: deep nesting and numbers out of range are refused like any other error."""
    try:
        return json.loads(data.decode(), parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UntrustedFile(f"{path} is not valid JSON: {reason}") from None


def read_small(path: Path) -> bytes:
    """The bytes of a file, whose size is checked first."""
    with open_untrusted(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > JSON_LIMIT:
            raise UntrustedFile(f"{path} is {size} bytes; allowed: {JSON_LIMIT}")
        return file.read(JSON_LIMIT)


@contextmanager
def open_untrusted(path: Path) -> Iterator[BinaryIO]:
    """Open a plain file for reading. Links, folders, pipes and devices are refused, and none of them can block."""
    try:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            raise UntrustedFile(f"{path} is a link; allowed: a plain file")
        descriptor = os.open(path, open_flags("RDONLY", "NOFOLLOW", "NONBLOCK"))
        with os.fdopen(descriptor, "rb", closefd=True) as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UntrustedFile(f"{path} is not a plain file")
            yield file
    except IsADirectoryError:
        raise UntrustedFile(f"{path} is a folder; allowed: a plain file") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is out of range")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")
