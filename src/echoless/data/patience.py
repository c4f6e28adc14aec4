"""How often is a server asked again before a lost connection counts? For about 20 seconds; then it is one sentence."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from echoless.config.addresses import without_secrets
from echoless.data.cache_place import CachePlace
from echoless.errors import DataError

PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # seconds between attempts
_TOLD_AFTER = 1.0  # seconds without an answer
_BEAT = 0.2  # seconds between two looks at whether somebody wants to stop
# What libraries raise where no credentials are configured: the next attempt would find none, either.
_NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError", "ProfileNotFound")
Answer = TypeVar("Answer")


class Watch:
    """Who hears of slow work on remote files, and who may end it."""

    def __init__(self, place: CachePlace) -> None:
        self._progress, self._say = place.progress, place.say
        self.ended = False  # somebody else stopped; threads that still fetch give up

    def beat(self) -> None:
        """Called often while something is fetched. It raises, to stop."""
        if self.ended:
            raise DataError("reading was stopped")
        if self._progress is not None:
            self._progress(0, 0)

    def say(self, text: str) -> None:
        if self._say is not None:
            self._say(text)

    def pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.beat()
            time.sleep(min(left, _BEAT))


def patiently(address: str, ask: Callable[[], Answer], watch: Watch) -> Answer:
    """The answer, at the first attempt that succeeds; one sentence if none does. `address`: without secrets."""
    started, told = time.monotonic(), False
    for number, pause in enumerate((*PAUSES, None), start=1):
        watch.beat()
        try:
            return ask()
        except DataError:
            raise
        except Exception as error:  # every file system has its own
            waited = time.monotonic() - started
            if is_final(error):
                raise DataError(f"{address} cannot be read: {_said(error)}") from None
            if pause is None:
                raise DataError(
                    f"{address} cannot be read: {_said(error)} ({number} attempts in {waited:.0f} s); what was fetched "
                    "is kept, the same command continues (training with --resume)"
                ) from None
            if waited > _TOLD_AFTER and not told:
                told = True
                watch.say(f"{address} does not answer ({_said(error)}); trying again for {sum(PAUSES):.0f} s")
            watch.pause(pause)
    raise AssertionError


def is_final(error: BaseException) -> bool:
    """Whether the answer would be the same again: no such file, no permission. A lost connection is none."""
    cause = error.__cause__
    if type(error).__name__ in _NO_CREDENTIALS:
        return True
    status = getattr(error, "status", getattr(cause, "status", None))
    if isinstance(status, int):
        return 400 <= status < 500 and status not in (408, 425, 429)
    if isinstance(error, FileNotFoundError) and cause is not None:  # fsspec's word for anything wrong with a web page
        return isinstance(cause, FileNotFoundError) or "aiohttp" not in type(cause).__module__
    return isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError | NotImplementedError)


def _said(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        cause = error.__cause__
        if cause is None or is_final(error):
            return "there is no such file or folder"
        error = cause
    said = without_secrets(" ".join(str(error).split()))
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
