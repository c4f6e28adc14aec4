"""Bytes that survive: atomic writes, locks, JSON and tensor files, seals. Imports nothing of ours but errors."""

from echoless.storage.atomic import clear_leftovers, new_folder, write_bytes
from echoless.storage.jsonfile import read_json, read_json_object, write_json

__all__ = [
    "clear_leftovers",
    "new_folder",
    "read_json",
    "read_json_object",
    "write_bytes",
    "write_json",
]
