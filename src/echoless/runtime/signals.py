"""How is a run asked to stop? SIGTERM and Ctrl-C set a flag; the loop reads it after every step.

The handler only acknowledges: saving there could interrupt a save, and talking to other processes could hang.
`interrupting_callers`: in Python, Ctrl-C then ends the script or the notebook too.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

_STOPPING = b"\nstopping after this step and saving; Ctrl-C again stops at once, back to the last checkpoint\n"


class StopRequest:
    """`with StopRequest() as stop: ... if stop.requested: ...`"""

    interrupts = 0  # of this process: how often Ctrl-C asked any of them to stop

    def __init__(self) -> None:
        self.requested = ""  # the name of the signal that came
        self._before: dict[int, object] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt  # the user insists; the last checkpoint stands
        first, self.requested = not self.requested, signal.Signals(number).name
        StopRequest.interrupts += number == signal.SIGINT
        if first:  # a scheduler may repeat itself
            _acknowledge()


@contextmanager
def interrupting_callers() -> Iterator[None]:
    """Raise KeyboardInterrupt at the end where Ctrl-C asked for a stop: once the work is saved, callers stop as well.

    A script would go on with a run that is half trained. The command line has its exit code instead.
    """
    before = StopRequest.interrupts
    try:
        yield
    except Exception as error:
        if StopRequest.interrupts > before:
            raise KeyboardInterrupt from error
        raise
    if StopRequest.interrupts > before:
        raise KeyboardInterrupt


def _acknowledge() -> None:
    """Not by print: a handler may run in the middle of another write to the same stream."""
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return  # redirected into memory, closed, or none at all: nobody reads it there
    os.write(descriptor, _STOPPING)
