"""What has been measured on this run? `results.json`: a list of numbers, each with its protocol."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from echoless.config.best_layer import CELL, OF_THE_CHOICE
from echoless.config.metrics import NAMES_OF_SETS
from echoless.errors import RunError, UntrustedFile
from echoless.storage.jsonfile import json_bytes, read_json, write_json
from echoless.storage.lock import FileLock


def read_results(path: Path) -> list[dict[str, Any]]:
    """Every record; none where the file does not exist yet."""
    if not os.path.lexists(path):
        return []
    records = read_json(path)
    if not isinstance(records, list) or not all(_is_record(record) for record in records):
        raise UntrustedFile(f"{path} is not a list of metric records; allowed: objects with metric, value and protocol")
    return records


def merge_results(path: Path, records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Add records, the newest last; a number measured again under the same protocol replaces the earlier one.

    Two commands may measure one run at the same time: each waits for its turn, and neither loses a record.
    """
    new = [dict(record) for record in records]
    if wrong := [record for record in new if not _is_record(record)]:
        raise RunError(f"{path} cannot take the record {str(wrong[0])[:80]}; it needs metric, value and protocol")
    with FileLock(path.with_name(f".{path.name}.lock")):
        added = {_key(record, path): record for record in new}
        kept = [record for record in read_results(path) if _key(record, path) not in added]
        merged = [*kept, *added.values()]
        write_json(path, merged)
    return merged


def remove_results(path: Path, aside: Path, records: Iterable[Mapping[str, Any]], when: str) -> None:
    """Move records to the end of another file, which says when: a number that was published can still be found."""
    with FileLock(path.with_name(f".{path.name}.lock")):
        gone = {_key(record, path): dict(record) | {"removed": when} for record in records}
        write_json(aside, [*read_results(aside), *gone.values()])  # first, so that nothing is lost in between
        write_json(path, [record for record in read_results(path) if _key(record, path) not in gone])


def _key(record: Mapping[str, Any], path: Path) -> tuple[str, bytes]:
    protocol = record["protocol"]
    found = CELL if protocol.get("scan") in OF_THE_CHOICE else ()
    decisive = {name: value for name, value in protocol.items() if name not in (*NAMES_OF_SETS, *found)}
    return record["metric"], json_bytes(decisive, path)


def _is_record(record: object) -> bool:
    return (
        isinstance(record, dict)
        and isinstance(record.get("metric"), str)
        and isinstance(record.get("protocol"), dict)
        and "value" in record
    )
