"""What do readers do with a file that nobody vouches for? Each is tried in a forked child, whose memory is measured."""

from __future__ import annotations

import json
import os
import resource
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

Reader = Callable[[Path], object]
Refusals = Mapping[str, tuple[type[Exception], ...]]  # verdict -> the errors that mean it


class Outcome(NamedTuple):
    """The verdict on each reader ("accepted", a refusal, the name of another error, or "died"), and peak memory."""

    readers: dict[str, str]
    megabytes: float


def in_child(readers: Mapping[str, Reader], path: Path, refusals: Refusals) -> Outcome:
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        before = _peak_megabytes()
        verdicts = {name: _verdict(read, path, refusals) for name, read in readers.items()}
        os.write(writing, json.dumps([verdicts, _peak_megabytes() - before]).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return Outcome(*json.loads(text)) if text else Outcome(dict.fromkeys(readers, "died"), 0.0)


def _verdict(read: Reader, path: Path, refusals: Refusals) -> str:
    try:
        read(path)
    except BaseException as error:
        for verdict, errors in refusals.items():
            if isinstance(error, errors):
                return verdict
        traceback.print_exc()
        return type(error).__name__
    return "accepted"


def _peak_megabytes() -> float:
    """The most memory this process ever held; a fork starts again from what it holds."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
