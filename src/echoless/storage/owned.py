"""Which folders and files are ours? Only what a verb wrote may be removed by it; anything else makes it refuse."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from echoless.errors import RunError
from echoless.storage.atomic import explained, is_leftover


def is_run(names: Iterable[str]) -> bool:
    """Whether a folder that holds these names is a run."""
    found = {"config.json", "about.json", "checkpoints"}.intersection(names)
    return "config.json" in found and len(found) > 1


def require_ours(folder: Path, patterns: Sequence[str]) -> None:
    """Refuse to replace a folder that holds anything but what the patterns name; `*` also spans folders."""
    found = strangers(folder, patterns)
    if found:
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise RunError(
            f"{folder} is not overwritten: it also holds {', '.join(found[:5])}{more}; move that away or give another "
            "--out"
        )


def strangers(folder: Path, patterns: Sequence[str]) -> list[str]:
    """Files below the folder that no pattern names, by their relative path; links count as files."""
    with explained(folder):
        return sorted(path for path in _files(folder, "") if not any(fnmatchcase(path, each) for each in patterns))


def _files(folder: Path, inside: str) -> Iterator[str]:
    for entry in os.scandir(folder):
        path = f"{inside}{entry.name}"
        if is_leftover(Path(entry.name)):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _files(folder / entry.name, f"{path}/")
        else:
            yield path
