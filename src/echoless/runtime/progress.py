"""What does a person see while a run goes on? One living line on a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_PLAIN_SECONDS = 15.0


class Progress:
    """`with Progress("training", total) as progress: progress.show(done, "loss 0.71")`"""

    def __init__(
        self,
        title: str,
        total: int,
        unit: str = "steps",
        stream: IO[str] | None = None,
        every: float = _PLAIN_SECONDS,  # seconds between plain lines
        patience: float = 0.0,  # seconds before anything is shown: of work that is mostly short
    ) -> None:
        self.title, self.total, self.unit, self.every, self.patience = title, total, unit, every, patience
        self.stream = stream or sys.stderr
        self._start, self._first, self._last_line = time.monotonic(), 0, 0.0
        self._shown = False
        self._last_count = -1
        self._count, self._end = -1, 0.0  # the count of the latest estimate, and when all would be done by it
        self._bar = _rich_bar(title, total, self.stream) if self.stream.isatty() else None

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            if not self._shown:  # there was nothing to do: no empty bar stays behind
                self._bar.update(self._bar.task_ids[0], visible=False)
            self._bar.stop()

    def begin(self, done: int) -> None:
        """Start the clock at this count, so that work of an earlier process is not credited to this one."""
        self._start, self._first, self._count = time.monotonic(), done, -1
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done)

    def show(self, done: int, text: str = "") -> None:
        """Nothing as long as the total is 0: it is not known yet."""
        if not self.total or time.monotonic() - self._start < self.patience:
            return
        self._shown = True
        left = self.seconds_left(done)
        text = f"{text}  {duration(left)} left" if left else text
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, total=self.total, text=text)
            return
        now = time.monotonic()
        if (done >= self.total and done != self._last_count) or now - self._last_line >= self.every:
            self._last_line, self._last_count = now, done
            print(f"{self.title} {done}/{self.total} {self.unit}  {text}".rstrip(), file=self.stream, flush=True)

    def say(self, text: str) -> None:
        """A line that stays."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=self.stream, flush=True)

    def seconds_left(self, done: int) -> float | None:
        """Estimated when the count last changed, and counting down since: of slow units it must not grow meanwhile."""
        if done <= self._first:
            return None
        now = time.monotonic()
        if done != self._count:
            self._count, self._end = done, now + (now - self._start) / (done - self._first) * (self.total - done)
        return max(0.0, self._end - now)


def _rich_bar(title: str, total: int, stream: IO[str]) -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[text]}"))
    bar = Bar(*columns, console=Console(file=stream))
    bar.add_task(title, total=total, text="")
    return bar


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    minutes, hours, days = seconds / 60, seconds / 3600, seconds / 86400
    if minutes < 2:
        return f"{seconds:.0f} s"
    if hours < 1:
        return f"{minutes:.0f} min"
    if days < 1:
        return f"{int(hours)} h {int(minutes % 60)} min"
    return f"{int(days)} d {int(hours % 24)} h"
