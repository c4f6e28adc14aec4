"""How far is a trial? From its ledger and its run, which are data: its log is sentences for people, `next: ...` too."""

from __future__ import annotations

from pathlib import Path

from echoless.errors import EcholessError
from echoless.runs import RunFolder
from echoless.sweeps.commands import Words, option_of
from echoless.sweeps.experiment import Trial
from echoless.sweeps.ledger import Ledger

_DOES = {"evaluate": "measuring", "sample": "drawing samples", "embed": "storing features"}
_TRAINS = ("pretrain", "finetune")


def progress_of(trial: Trial, out: Path) -> str:
    """`step 12 of 400`, or what it does after its training."""
    done = len(Ledger(out, trial).finished)
    if done == len(trial.commands):
        return "done"
    words = trial.commands_in(out)[done]
    doing = _steps(words) if words[0] in _TRAINS else _DOES.get(words[0], words[0])
    return doing if len(trial.commands) < 3 else f"{doing} ({done + 1} of {len(trial.commands)})"


def _steps(words: Words) -> str:
    (folder,) = option_of(words, "out") or ("",)
    run = RunFolder(Path(folder))
    try:
        return f"step {run.metrics.last_step()} of {run.read_config()['steps']}"
    except (EcholessError, OSError, KeyError):  # it has not begun, or is being made
        return "starting"
