"""How does a trial run so that a kill loses no work and nothing is done twice? Its ledger records every command.

OUT/NAME/            the run
OUT/logs/NAME.txt    output of its commands
OUT/logs/NAME.json   which commands were started and finished, and how long each took
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from echoless.errors import ConfigError, NonFiniteError, UntrustedFile
from echoless.runtime import StopRequest
from echoless.storage import read_json_object, write_json
from echoless.sweeps.commands import Words
from echoless.sweeps.experiment import Trial
from echoless.sweeps.starting import Starting, fills_shared_folder

State = Literal["done", "failed", "stopped"]
_shared_folder = threading.Lock()  # a folder that trials share is filled by one of them; the others find it done
_POLL_SECONDS = 0.2
_LAST_BYTES = 4096


@dataclass(frozen=True)
class Outcome:
    """How a trial ended, and the message that says so."""

    state: State
    text: str = ""


@dataclass(frozen=True)
class Entry:
    """A finished command."""

    words: Words
    seconds: float


class Ledger:
    """Which commands of a trial were started and finished. They are stored without OUT, so that OUT may be moved."""

    def __init__(self, out: Path, trial: Trial) -> None:
        self.path = out / "logs" / f"{trial.name}.json"
        self.log = out / "logs" / f"{trial.name}.txt"
        self.begun, entries = _read(self.path) if self.path.exists() else ([], [])
        # A command counts only while everything before it is the same: a probe of another run is no probe of this one.
        equal = [entry.words == words for entry, words in zip(entries, trial.commands)]
        self.finished = entries[: equal.index(False)] if False in equal else entries[: len(equal)]

    def begin(self, words: Words) -> None:
        if words not in self.begun:
            self.begun.append(words)
            self._write()

    def finish(self, words: Words, seconds: float) -> None:
        self.finished.append(Entry(words, round(seconds, 3)))
        self._write()

    def _write(self) -> None:
        finished = [{"words": list(entry.words), "seconds": entry.seconds} for entry in self.finished]
        write_json(self.path, {"begun": [list(words) for words in self.begun], "finished": finished})


def _read(path: Path) -> tuple[list[Words], list[Entry]]:
    record: dict[str, Any] = read_json_object(path)
    try:
        begun = [tuple(map(str, words)) for words in record["begun"]]
        return begun, [Entry(tuple(entry["words"]), float(entry["seconds"])) for entry in record["finished"]]
    except (KeyError, TypeError, ValueError):
        raise UntrustedFile(
            f"{path} does not record which commands were run; move it away, or give another --out"
        ) from None


def is_done(out: Path, trial: Trial) -> bool:
    """Whether every command is finished, and its results are still there."""
    finished = len(Ledger(out, trial).finished) == len(trial.commands)
    return finished and (trial.may_diverge or all((f / "results.json").is_file() for f in trial.folders_in(out)))


def require_same_training(out: Path, trial: Trial) -> None:
    """Refuses to continue a run that was started with other settings."""
    begun = Ledger(out, trial).begun[:1]
    if begun and begun[0] != trial.commands[0]:
        theirs = " ".join(_only_in(begun[0], trial.commands[0]))
        ours = " ".join(_only_in(trial.commands[0], begun[0]))
        raise ConfigError(
            f"{out / trial.name} was started with {theirs or 'fewer settings'}, but this sweep has "
            f"{ours or 'fewer settings'}; give the same settings, or another --out"
        )


def _only_in(words: Words, others: Words) -> list[str]:
    """The options, each with its values, that the other command lacks."""
    mine, theirs = _options(words), _options(others)
    return [option for option in mine if option not in theirs]


def _options(words: Words) -> list[str]:
    options: list[str] = []
    for word in words:
        if word.startswith("--") or not options:
            options.append(word)
        else:
            options[-1] += f" {word}"
    return options


def run_trial(
    trial: Trial,
    out: Path,
    stop: StopRequest,
    tick: Callable[[str], None],
    threads: int | None = None,
    starting: Starting | None = None,
) -> Outcome:
    """Runs the commands that are not finished, in order. `tick` is given the last line of their output."""
    ledger = Ledger(out, trial)
    for words, placed in list(zip(trial.commands, trial.commands_in(out)))[len(ledger.finished) :]:
        ledger.begin(words)
        started = time.monotonic()
        with _shared_folder if fills_shared_folder(words) else nullcontext():
            code = run_command(placed, ledger.log, stop, tick, threads=threads, starting=starting)
        if stop.requested:
            return Outcome("stopped", f"stopped by {stop.requested}")
        if code == NonFiniteError.exit_code and trial.may_diverge:
            for rest in trial.commands[len(ledger.finished) :]:
                ledger.finish(rest, time.monotonic() - started)
            return Outcome("done", last_line(ledger.log))
        if code != 0:
            return Outcome("failed", _reason(code, ledger.log))
        ledger.finish(words, time.monotonic() - started)
    return Outcome("done")


def run_command(
    words: Words,
    log: Path,
    stop: StopRequest,
    tick: Callable[[str], None],
    until: Callable[[], bool] | None = None,
    threads: int | None = None,
    starting: Starting | None = None,
) -> int:
    """Runs `echoless WORDS` with its output in the log; a stop, by a signal or by `until`, is sent on as SIGTERM."""
    starting = starting or Starting()
    with log.open("ab") as sink:
        sink.write(f"\n$ {shlex.join(['echoless', *starting.complete(words)])}\n".encode(errors="replace"))
        sink.flush()
        child = subprocess.Popen(
            starting.arguments(words),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env=os.environ if threads is None else {**os.environ, "OMP_NUM_THREADS": str(threads)},
        )
        asked = False
        try:
            while True:
                try:
                    return child.wait(_POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    tick(last_line(log))
                if not asked and (stop.requested or (until is not None and until())):
                    child.send_signal(signal.SIGTERM)
                    asked = True
        finally:
            child.kill()  # nothing, where it has ended
            child.wait()


def last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LAST_BYTES))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "")


def _reason(code: int, log: Path) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name}; full output in {log}"
    return f"{last_line(log)} (exit code {code}; full output in {log})"
