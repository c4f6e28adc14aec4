"""The commands that a page shows can be typed as they stand: runs by their path, resumed sessions with --resume."""

from __future__ import annotations

from pathlib import Path

from echoless.reports.collect import RunData
from echoless.reports.facts import command
from echoless.reports.summary import summarise


def test_the_next_command_names_the_run_by_its_path():
    run = RunData(path=Path("my runs/first"), name="first")
    assert summarise(run, []).next == "echoless evaluate 'my runs/first'"


def test_a_resumed_run_is_repeated_by_its_first_command_and_each_other_one_with_resume():
    """Without --resume, the second would be refused: its folder holds the run of the first."""
    typed = ["echoless pretrain D --out R --time 2m", "echoless pretrain D --out R --max-steps 9"]
    run = RunData(path=Path("R"), name="R", about={"history": [{"command": each} for each in (*typed, typed[0])]})
    assert command(run) == f"{typed[0]}\n{typed[1]} --resume"
    assert command(RunData(path=Path("R"), name="R", about={"command": typed[0]})) == typed[0]
    assert command(RunData(path=Path("R"), name="R")) == ""
