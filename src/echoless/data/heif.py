"""How are HEIC photographs of phones read? (The `heic` extra: pillow-heif, by way of Pillow.)"""

from __future__ import annotations

import io
from typing import Any

from echoless.config.extras import install_command

_BRANDS = frozenset((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx"))
_LONGEST_BOX = 256  # bytes of the first box, which lists the brands


def is_heif(data: bytes) -> bool:
    """Whether the file says that it holds images coded by HEVC. AVIF has the same container, and Pillow reads it."""
    if data[4:8] != b"ftyp":
        return False
    end = min(int.from_bytes(data[:4], "big"), _LONGEST_BOX)
    return any(data[place : place + 4] in _BRANDS for place in (8, *range(16, end, 4)))


def open_heif(data: bytes) -> Any:
    """Upright, and not decoded yet."""
    from echoless.data.decode import Undecodable

    try:
        from pillow_heif import HeifImageFile
    # A broken installation raises other things than ImportError.
    except Exception:
        raise Undecodable(f"HEIC images need pillow-heif: {install_command('heic')}") from None
    return HeifImageFile(io.BytesIO(data), "")
