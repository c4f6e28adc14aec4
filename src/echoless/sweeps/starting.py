"""How is a command of a trial started? By this Python or by a launcher, with settings that do not change its result.

They are not part of the trial, so a sweep continues after another launcher or more micro-batches were given.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from echoless.config.checks import require
from echoless.config.options import SweepOptions, TrialOptions
from echoless.sweeps.commands import BESIDE, Words, command, option_of, with_options

TRAINING = ("pretrain", "finetune")
LAUNCHED = (*TRAINING, "sample")
DIE_WITH_PARENT = "echoless.sweeps.die_with_parent"


@dataclass(frozen=True, kw_only=True)
class Starting:
    """`launcher` starts trainings and `sample`: measurements run in one process.

    Two dashes come before the verb: the options behind them are ours. Without them torchrun takes `--n` for an
    abbreviation of its own.
    """

    launcher: Words = ()
    accumulate: int | None = None
    workers: int | None = None

    @staticmethod
    def of(options: SweepOptions | TrialOptions) -> Starting:
        launcher = _split(options.launcher)
        # Printed commands, and those of a cluster, may be for another machine.
        elsewhere = isinstance(options, SweepOptions) and (options.print or options.on != "local")
        if launcher and not elsewhere:
            found = shutil.which(launcher[0]) is not None
            require(found, "launcher", options.launcher, "a program on this machine and its options, such as torchrun")
        return Starting(launcher=launcher, accumulate=options.accumulate, workers=options.workers)

    def complete(self, words: Words) -> Words:
        """The command with the settings that apply to it."""
        if words[0] not in TRAINING:
            return words
        given = {"accumulate": self.accumulate, "workers": self.workers}
        return with_options(words, **{name: value for name, value in given.items() if value is not None})

    def line(self, words: Words, *, shared: bool = False) -> str:
        """For a shell. A folder that trials share is filled by the first line that comes to it; the others wait."""
        program = [*self.launcher, "-m", "echoless", "--"] if self._launches(words) else ["echoless"]
        return shlex.join([*program, *self.complete(words), *(["--wait"] if shared else [])])

    def trial_words(self, out: Path, name: str) -> Words:
        """What runs one trial, after `echoless`."""
        launcher = shlex.join(self.launcher) or None
        given = {"launcher": launcher, "accumulate": self.accumulate, "workers": self.workers}
        return command("trial", str(out), name, **given)

    def trial_arguments(self, out: Path, name: str) -> Words:
        """The same for an executor: a process that ends with the one that starts it."""
        return (sys.executable, "-m", DIE_WITH_PARENT, "0", *self.trial_words(out.absolute(), name))

    def arguments(self, words: Words) -> list[str]:
        """Of a process that ends with this one, however this one ends."""
        tie = [sys.executable, "-m", DIE_WITH_PARENT, str(os.getpid())]
        if not self._launches(words):
            return [*tie, *self.complete(words)]
        return [*tie, "--launch", *self.launcher, "-m", DIE_WITH_PARENT, "0", "--", *self.complete(words)]

    def _launches(self, words: Words) -> bool:
        return bool(self.launcher) and words[0] in LAUNCHED


PLAIN = Starting()  # by this Python, as the trial says


def fills_shared_folder(words: Words) -> bool:
    """Whether a command, with its placeholders, writes into a folder that all trials share."""
    return any(out.startswith(BESIDE) for out in option_of(words, "out") or ())


def _split(launcher: str | None) -> Words:
    if launcher is None:
        return ()
    try:
        words = tuple(shlex.split(launcher))
    except ValueError:
        words = ()
    require(bool(words), "launcher", launcher, 'a program and its options, such as "torchrun --nproc-per-node 8"')
    return words
