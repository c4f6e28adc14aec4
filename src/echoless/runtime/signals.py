"""How is a run asked to stop? SIGTERM and Ctrl-C set a flag; the loop reads it after every step.

The handler only acknowledges: saving there could interrupt a save, and talking to other processes could hang.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType, TracebackType

_STOPPING = b"\nstopping after this step and saving; Ctrl-C again stops at once, back to the last checkpoint\n"


class StopRequest:
    """`with StopRequest() as stop: ... if stop.requested: ...`"""

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
        if first:  # a scheduler may repeat itself
            _acknowledge()


def _acknowledge() -> None:
    """Not by print: a handler may run in the middle of another write to the same stream."""
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return  # redirected into memory, closed, or none at all: nobody reads it there
    os.write(descriptor, _STOPPING)
