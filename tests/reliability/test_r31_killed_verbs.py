"""R31: a verb that is killed before any of its writes leaves what was there, and the same command then ends as usual.

A child process kills itself before the n-th call that changes the disk, for every n (a few of them in the fast tests).
Training, sampling and sweeps have tests of their own (R1, R3, R10, tests/verbs/test_sample.py, tests/sweeps).
Run alone: pytest -s tests/reliability/test_r31_killed_verbs.py
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny import silence

import echoless
from echoless.runs import RunFolder

CHANGES = ("mkdir", "rename", "replace", "unlink", "rmdir", "fsync", "open")
FEW = 4


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    echoless.pretrain("shapes:64", out=out, recipe="demo", max_steps=2, batch_size=16)
    echoless.evaluate(out, train="shapes:40", metrics="rank", baselines=False)
    return out


def report(run: Path, home: Path) -> None:
    echoless.report([run], out=home / "out.html")


def export(run: Path, home: Path) -> None:
    if not (home / "out").exists():  # a kill after the last rename: it is there, and would be refused
        echoless.export(run, to="hf", out=home / "out")


def embed(run: Path, home: Path) -> None:
    echoless.embed(run, "shapes:70", out=home / "out.npy", overwrite=True)


def evaluate(run: Path, home: Path) -> None:
    if not (home / "run").exists():
        shutil.copytree(run, home / "run")
    echoless.evaluate(home / "run", train="shapes:40", metrics="knn", k=(3,), baselines=False)


VERBS = [report, embed, evaluate, pytest.param(export, marks=pytest.mark.slow)]


def in_child(work: Callable[[], None], before_change: Callable[[str], None] = lambda name: None) -> int:
    """The exit code of a forked process that does the work; `before_change` is called before it changes the disk."""
    child = os.fork()
    if child == 0:
        silence()
        for name in CHANGES:
            setattr(os, name, _watched(getattr(os, name), name, before_change))
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _watched(plain: Callable, name: str, before_change: Callable[[str], None]) -> Callable:
    def call(*arguments, **options):
        if name != "open" or (len(arguments) > 1 and arguments[1] & os.O_CREAT):
            before_change(name)
        return plain(*arguments, **options)

    return call


class Killer:
    """Kills its process before the n-th change."""

    def __init__(self, n: int) -> None:
        self.left = n

    def __call__(self, name: str) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def count_changes(work: Callable[[], None], note: Path) -> int:
    with note.open("wb", buffering=0) as file:
        assert in_child(work, lambda name: file.write(b".")) == 0
    return note.stat().st_size


def visible(home: Path) -> dict[str, bytes]:
    """What a reader finds: everything but temporary files, hidden ones, and caches."""
    files = [path for path in home.rglob("*") if path.is_file()]
    named = {str(path.relative_to(home)): path for path in files}
    ours = {name: path for name, path in named.items() if not is_hidden(name) and "/features/" not in name}
    return {name: path.read_bytes() for name, path in ours.items()}


def is_hidden(name: str) -> bool:
    return any(part.startswith(".") or ".tmp-" in part or ".old-" in part for part in Path(name).parts)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
@pytest.mark.parametrize("most", [FEW, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_verb_killed_before_any_write_leaves_all_or_nothing_and_can_be_repeated(verb, most, run, tmp_path):
    before, whole = tmp_path / "before", tmp_path / "whole"
    for home in (before, whole):
        home.mkdir()
    if verb is evaluate:  # what was measured before must survive
        shutil.copytree(run, before / "run")
    shutil.copytree(before, whole, dirs_exist_ok=True)
    changes = count_changes(lambda: verb(run, whole), tmp_path / "changes")
    expected, old = visible(whole), visible(before)
    points = sorted({1 + round(i * (changes - 1) / (most - 1)) for i in range(most)})
    for point in points:
        home = tmp_path / f"home-{point}"
        shutil.copytree(before, home)
        assert in_child(lambda home=home: verb(run, home), Killer(point)) in (-signal.SIGKILL, 0)  # 0: it needed fewer
        for name, data in visible(home).items():
            assert data in (expected.get(name), old.get(name)), f"{name} is half written, killed before {point}"
        assert in_child(lambda home=home: verb(run, home)) == 0, f"cannot be repeated, killed before {point}"
        assert visible(home) == expected
        left = [path.name for path in home.rglob("*") if ".tmp-" in path.name or ".old-" in path.name]
        assert not left, f"killed before {point}"
    print(f"R31 {verb.__name__}: killed before {len(points)} of {changes} writes, nothing lost, nothing left")


def test_the_numbers_of_a_killed_evaluation_are_the_old_or_the_new(run, tmp_path):
    """One list, replaced as a whole."""
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    old = RunFolder(copy).read_results()
    new = [{**record, "value": 0.5} for record in old]
    for point in range(1, 12):
        killed = in_child(lambda point=point: RunFolder(copy).add_results(new), Killer(point))
        found = RunFolder(copy).read_results()
        assert found in (old, new)
        if killed == 0:
            break
    assert killed == 0 and point > 3 and found == new


def test_an_export_killed_in_the_middle_leaves_nothing_to_the_next(run, tmp_path):
    """One point of the many that the slow test tries."""
    assert in_child(lambda: export(run, tmp_path), Killer(4)) == -signal.SIGKILL
    assert not (tmp_path / "out").exists() and list(tmp_path.iterdir())
    export(run, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
