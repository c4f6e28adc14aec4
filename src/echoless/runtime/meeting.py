"""How do processes wait for each other for hours, and how do they notice that one is gone?

They wait at a store, not inside a collective, which would time out while one of them still decodes images. Every
process leaves a sign of life in the store every `BEAT` seconds and looks for those of the others. One that gives none
for `SILENCE` seconds is dead or frozen: the others end too, and the last checkpoint stands.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

from echoless.errors import RunError

if TYPE_CHECKING:
    from torch.distributed import Store

BEAT = 5.0  # seconds
SILENCE = 120.0  # seconds
JOINING = 1800.0  # seconds until all processes must have started
GONE = 1  # exit code of a process that another one has left alone
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.5  # seconds between two looks into the store
_TOLD_EVERY = 60.0  # seconds between two lines about a long wait
_STORE = -1  # in the place of a rank: the store itself
_REFUSED, _READY = "refused", "ready:"


class Meeting:
    """The processes of a run, which meet again and again, in the same order on all of them."""

    def __init__(self, store: Store, rank: int, world: int) -> None:
        self._store, self._rank, self._world, self._number = store, rank, world, 0
        self._life = SignsOfLife(store.clone(), rank, world)  # type: ignore[attr-defined]
        self._life.start()

    def exchange(self, word: str = "", *, refuses: bool = False) -> list[str] | None:
        """What every process says, in the order of their ranks; None if any of them refuses to go on.

        Waits for the last one, without a limit, for as long as all are alive.
        """
        place, self._number = f"meeting{self._number}", self._number + 1
        if refuses:
            self._store.set(f"{place}/off", "")
        self._store.set(f"{place}/{self._rank}", _REFUSED if refuses else _READY + word)
        said = [self._answer(f"{place}/{other}", other) for other in range(self._world)]
        return None if _REFUSED in said else [each.removeprefix(_READY) for each in said]

    @property
    def called_off(self) -> bool:
        """Whether a process has already refused at the next meeting: work for it is in vain."""
        return self._store.check([f"meeting{self._number}/off"])

    def leave(self) -> None:
        """No signs of life are given or expected any more."""
        self._life.stop()

    def _answer(self, key: str, other: int) -> str:
        pause, told = _FIRST_PAUSE, time.monotonic()
        while not self._store.check([key]):
            if self._has_left(other) and not self._store.check([key]):
                raise RunError(f"process {other} has ended; its message says why")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            if self._rank == 0 and time.monotonic() - told > _TOLD_EVERY:
                told = time.monotonic()
                print(f"waiting for process {other} of {self._world}", file=sys.stderr, flush=True)
        return self._store.get(key).decode()

    def _has_left(self, other: int) -> bool:
        life = f"life/{other}"
        return self._store.check([life]) and self._store.get(life) == b"left"


def new_name(store: Store, rank: int, world: int) -> str:
    """A name for this start of the run, the same in all processes, under which the store holds nothing yet.

    The store of a launcher may outlive its processes, and a process that was started again would take the addresses of
    those before for those of the others. So nobody trusts what is there: every process says hello under a name of its
    own, and process 0 answers to that.
    """
    own, deadline = uuid4().hex, time.monotonic() + JOINING
    if rank == 0:
        missing = set(range(1, world))
        while missing:
            for other in missing:
                if store.check([f"hello/{other}"]):
                    store.set(f"welcome/{store.get(f'hello/{other}').decode()}", own)
            missing = {other for other in missing if not store.check([f"joined/{own}/{other}"])}
            _wait_until(deadline, f"process {min(missing, default=0)} of {world} has not started")
        return own
    store.set(f"hello/{rank}", own)
    while not store.check([f"welcome/{own}"]):
        _wait_until(deadline, f"process 0 of {world} has not started")
    name = store.get(f"welcome/{own}").decode()
    store.set(f"joined/{name}/{rank}", "")
    return name


def _wait_until(deadline: float, otherwise: str) -> None:
    if time.monotonic() > deadline:
        raise RunError(f"{otherwise} within {JOINING / 60:g} minutes")
    time.sleep(_FIRST_PAUSE)


class SignsOfLife(threading.Thread):
    """Gives signs of life, and ends this process where those of another stop.

    A thread, because the process may be waiting inside a collective for exactly the one that is gone.
    """

    def __init__(self, store: Store, rank: int, world: int, end: Callable[[str], None] | None = None) -> None:
        super().__init__(daemon=True, name="signs of life")
        self._store, self._rank, self._others = store, rank, [other for other in range(world) if other != rank]
        self._end = end or _end_process
        self._over = threading.Event()
        self._given = 0
        self._seen: dict[int, tuple[bytes, float]] = {}  # the last sign of each other process, and since when

    def run(self) -> None:
        looked = time.monotonic()
        while not self._over.wait(BEAT):
            now = time.monotonic()
            if now - looked > SILENCE / 2:  # this process was itself stopped for a while, and perhaps all were
                self._seen.clear()
            looked = now
            try:
                silent = self._look(now)
                self._seen.pop(_STORE, None)
            except RuntimeError:  # the store is gone, and with it the process or the launcher that held it
                silent = None if self._over.is_set() else self._without_store(now)
            if silent is not None:
                self._end(
                    f"{silent} has given no sign of life for {SILENCE:g} s; this process ends too, and the last "
                    "checkpoint stands"
                )
                return

    def stop(self) -> None:
        self._over.set()
        self.join(timeout=BEAT)
        with suppress(RuntimeError):  # whoever held the store may have left before
            self._store.set(f"life/{self._rank}", "left")

    def _look(self, now: float) -> str | None:
        """Give a sign, and look for those of the others; returns who has been silent for too long."""
        self._given += 1
        self._store.set(f"life/{self._rank}", str(self._given))
        for other in self._others:
            key = f"life/{other}"
            sign = self._store.get(key) if self._store.check([key]) else b""
            last, since = self._seen.get(other, (b"", now))
            if sign != last or other not in self._seen:
                self._seen[other] = sign, now
            elif sign != b"left" and now - since > SILENCE:
                return f"process {other}"
        return None

    def _without_store(self, now: float) -> str | None:
        _, since = self._seen.setdefault(_STORE, (b"", now))
        return "the process that others meet at" if now - since > SILENCE else None


def _end_process(reason: str) -> None:
    print(reason, file=sys.__stderr__, flush=True)  # what a verb does with sys.stderr must not hide it
    os._exit(GONE)
