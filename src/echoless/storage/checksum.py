"""Have these bytes changed by accident? Their CRC-32, by ISA-L where it is installed (extra `fast`), else by zlib.

The values are equal. ISA-L is three to five times as fast, which matters where every byte of a large file is checked.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except Exception:  # not installed, or not for this machine
    from zlib import crc32

__all__ = ["crc32"]
