"""How does a trial run so that a kill loses no work and nothing is done twice? Its ledger records every command.

OUT/NAME/            the run
OUT/logs/NAME.txt    output of its commands
OUT/logs/NAME.json   its ledger
OUT/logs/NAME.lock   held while it runs
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from echoless.errors import INTERRUPTED, REQUEUE, Busy, NonFiniteError
from echoless.runtime import StopRequest
from echoless.storage.lock import FileLock
from echoless.sweeps.commands import Words
from echoless.sweeps.experiment import Trial
from echoless.sweeps.ledger import Ledger, Outcome
from echoless.sweeps.starting import PLAIN, Starting, fills_shared_folder

_POLL_SECONDS = 0.2
_LAST_BYTES = 4096


def run_alone(trial: Trial, out: Path, stop: StopRequest, say: Callable[[str], None], starting: Starting) -> Outcome:
    """`run_trial` by one process at a time: a second one waits, and finds the work done."""
    lock = _lock(out, trial.name, stop, say)
    if lock is None:
        return Outcome("stopped", f"stopped by {stop.requested}")
    try:
        ledger = Ledger(out, trial)
        ledger.plan()
        outcome = run_trial(trial, out, stop, starting)
        Ledger(out, trial).end(outcome)
        return outcome
    finally:
        lock.remove()


def _lock(out: Path, name: str, stop: StopRequest, say: Callable[[str], None]) -> FileLock | None:
    """None if a signal came first."""
    said = False
    while not stop.requested:
        try:
            return FileLock(out / "logs" / f"{name}.lock", busy=f"{name} is being run by another process")
        except Busy as busy:
            if not said:
                say(f"{busy}; waiting for it")
            said = True
            time.sleep(_POLL_SECONDS)
    return None


def run_trial(trial: Trial, out: Path, stop: StopRequest, starting: Starting = PLAIN) -> Outcome:
    """Runs the commands that are not finished, in order."""
    ledger = Ledger(out, trial)
    for words, placed in list(zip(trial.commands, trial.commands_in(out)))[len(ledger.finished) :]:
        ledger.begin(words)
        started = time.monotonic()
        # A folder that trials share is filled by the first that comes to it; the others wait and find it done.
        line = (*placed, "--wait") if fills_shared_folder(words) else placed
        code = run_command(line, ledger.log, stop, starting=starting)
        if stop.requested:
            return Outcome("stopped", f"stopped by {stop.requested}")
        if code == NonFiniteError.exit_code and trial.may_diverge:
            for rest in trial.commands[len(ledger.finished) :]:
                ledger.finish(rest, time.monotonic() - started)
            return Outcome("done", last_line(ledger.log))
        if code < 0 or code in (INTERRUPTED, REQUEUE):
            how = f"killed by {signal.Signals(-code).name}" if code < 0 else "stopped by a signal"
            return Outcome("stopped", f"{how}; full output in {ledger.log}")
        if code != 0:
            return Outcome("failed", f"{last_line(ledger.log)} (exit code {code}; full output in {ledger.log})")
        ledger.finish(words, time.monotonic() - started)
    return Outcome("done")


def run_command(
    words: Words,
    log: Path,
    stop: StopRequest,
    until: Callable[[], bool] | None = None,
    starting: Starting = PLAIN,
    environment: dict[str, str] | None = None,
) -> int:
    """Runs `echoless WORDS` with its output in the log; a stop, by a signal or by `until`, is sent on as SIGTERM."""
    with log.open("ab") as sink:
        sink.write(f"\n$ {shlex.join(['echoless', *starting.complete(words)])}\n".encode(errors="replace"))
        sink.flush()
        child = subprocess.Popen(
            starting.arguments(words),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env={**os.environ, **(environment or {})},
        )
        asked = False
        try:
            while True:
                try:
                    return child.wait(_POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    pass
                if not asked and (stop.requested or (until is not None and until())):
                    child.send_signal(signal.SIGTERM)
                    asked = True
        finally:
            child.kill()  # nothing, where it has ended
            child.wait()


def last_line(log: Path) -> str:
    """Empty where there is no log yet."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LAST_BYTES))
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    except FileNotFoundError:
        return ""
    return next((line for line in reversed(lines) if line), "")
