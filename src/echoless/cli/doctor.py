"""`echoless doctor`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from echoless.cli.parsing import parse


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """What this machine can do, and what is missing.

    Ends with a self-test of at most about ten seconds: a tiny model trains for a few steps (fewer where the machine is
    busy), is saved, and is resumed. The exit code is 0 unless something that pretraining needs is broken.
    """

    self_test: bool = True
    """Train a few steps; --no-self-test only looks."""


def run(arguments: Sequence[str]) -> int:
    command = parse(Doctor, arguments, "echoless doctor")
    from echoless.verbs.doctor import examine

    section = ""
    broken: list[str] = []
    for finding in examine(self_test=command.self_test):
        if finding.section != section:
            print(f"\n{finding.section}" if section else finding.section)
            section = finding.section
        print(f"  {finding.topic:18} {finding.text}", flush=True)
        if finding.broken:
            broken.append(finding.topic)
    print(f"\nbroken: {', '.join(broken)}" if broken else "\nEverything that pretraining needs works here.")
    return 1 if broken else 0
