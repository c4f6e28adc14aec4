"""The door to trained weights."""

from __future__ import annotations

from pathlib import Path

from echoless.runs.folder import RunFolder


def converted_channels(source: str) -> int | None:
    """What a run had its images converted to, so that others reach it in the same way; None where it did not ask."""
    try:
        channels = RunFolder(Path(source)).read_config()["data"].get("channels")
    except Exception:  # not one of our runs, or from before: its images came as they are
        return None
    return channels if isinstance(channels, int) else None
