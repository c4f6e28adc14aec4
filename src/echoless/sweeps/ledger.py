"""What is known of a trial? Its ledger: the commands that were planned, started and finished, and how it ended.

OUT/logs/NAME.json. The sweep writes the plan before it starts a trial, or prints its line; from then on the trial
writes alone, wherever it runs. So whoever collects the results finds what was done by hand, too. Commands are stored
without OUT, so that OUT may be moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from echoless.errors import ConfigError, RunError, UntrustedFile
from echoless.storage import read_json_object, write_json
from echoless.sweeps.commands import Words
from echoless.sweeps.experiment import Trial

State = Literal["done", "failed", "stopped"]


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


def ledger_file(out: Path, name: str) -> Path:
    return out / "logs" / f"{name}.json"


class Ledger:
    """`ended`: how the last attempt ended; None while it runs, and of one that was killed."""

    def __init__(self, out: Path, trial: Trial) -> None:
        self.path = ledger_file(out, trial.name)
        self.log = self.path.with_suffix(".txt")
        self._trial = trial
        record = _Record.read(self.path)
        self.begun, self.ended, self._planned = record.begun, record.ended, record.planned
        # A command counts only while everything before it is the same: a probe of another run is no probe of this one.
        equal = [entry.words == words for entry, words in zip(record.finished, trial.commands)]
        self.finished = record.finished[: equal.index(False)] if False in equal else record.finished[: len(equal)]

    def plan(self) -> None:
        """Record what the trial is to do, and that nothing is known of how it will end."""
        planned = _plan_of(self._trial)
        if planned != self._planned or self.ended is not None:
            self._planned, self.ended = planned, None
            self._write()

    def begin(self, words: Words) -> None:
        if words not in self.begun:
            self.begun.append(words)
            self._write()

    def finish(self, words: Words, seconds: float) -> None:
        self.finished.append(Entry(words, round(seconds, 3)))
        self._write()

    def end(self, outcome: Outcome) -> None:
        self.ended = outcome
        self._write()

    def _write(self) -> None:
        finished = [{"words": list(entry.words), "seconds": entry.seconds} for entry in self.finished]
        record: dict[str, Any] = {"begun": [list(words) for words in self.begun], "finished": finished}
        if self._planned is not None:
            record["planned"] = self._planned
        if self.ended is not None:
            record["ended"] = {"state": self.ended.state, "text": self.ended.text}
        write_json(self.path, record)


@dataclass(frozen=True)
class _Record:
    """The content of the file."""

    begun: list[Words]
    finished: list[Entry]
    ended: Outcome | None = None
    planned: dict[str, Any] | None = None

    @staticmethod
    def read(path: Path) -> _Record:
        if not path.exists():
            return _Record([], [])
        record = read_json_object(path)
        try:
            begun = [tuple(map(str, words)) for words in record["begun"]]
            finished = [Entry(tuple(entry["words"]), float(entry["seconds"])) for entry in record["finished"]]
            return _Record(begun, finished, _outcome(record.get("ended")), record.get("planned"))
        except (KeyError, TypeError, ValueError):
            raise UntrustedFile(
                f"{path} does not record which commands were run; move it away, or give another --out"
            ) from None


def _outcome(record: Any) -> Outcome | None:
    if record is None:
        return None
    if record["state"] not in get_args(State):
        raise ValueError(record["state"])
    return Outcome(record["state"], str(record["text"]))


def _plan_of(trial: Trial) -> dict[str, Any]:
    return {"commands": [list(words) for words in trial.commands], "may_diverge": trial.may_diverge}


def planned_trial(out: Path, name: str) -> Trial:
    """The trial of this name, from its ledger."""
    path = ledger_file(out, name)
    if not path.is_file():
        known = sorted(file.stem for file in path.parent.glob("*.json"))
        raise RunError(
            f"{out} has no trial {name!r}; allowed: {', '.join(known[:10])}{', ...' if known[10:] else ''}"
            if known
            else f"{out} holds no sweep; echoless sweep --print prints the trials of one"
        )
    planned = _Record.read(path).planned
    try:
        assert planned is not None
        commands = tuple(tuple(map(str, words)) for words in planned["commands"])
        return Trial(name=name, settings={}, commands=commands, may_diverge=planned["may_diverge"] is True)
    except (AssertionError, KeyError, TypeError):
        raise UntrustedFile(f"{path} does not record what {name} is to do; repeat sweep --print") from None


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
