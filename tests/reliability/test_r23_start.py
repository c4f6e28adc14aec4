"""R23: a run never loses what it started from, killed before its first checkpoint or started by --resume.

Run alone: pytest tests/reliability/test_r23_start.py
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch

import echoless
from echoless.errors import EcholessError, RunError
from echoless.runs import RunFolder, load_weights
from echoless.runs.open import load_body
from echoless.training import about, loop

DATA = "shapes:48"
TINY = {"batch_size": 16, "max_steps": 3}


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("pretrained") / "run"
    echoless.pretrain(DATA, out=out, recipe="demo", batch_size=16, max_steps=4, seed=7)
    return out


def pretrain(source: Path, out: Path, **options) -> None:
    echoless.pretrain(DATA, out=out, recipe="demo", init=source, **TINY, **options)


def finetune(source: Path, out: Path, **options) -> None:
    echoless.finetune(source, train=DATA, test="shapes:16@test", out=out, **TINY, **options)


VERBS = [pytest.param(pretrain, id="pretrain --init"), pytest.param(finetune, id="finetune")]


class Killed(BaseException):
    """Like SIGKILL as far as the disk is concerned: nothing is saved."""


def killed_before_the_first_checkpoint(start, monkeypatch) -> None:
    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(loop, "take_step", die)
        with pytest.raises(Killed):
            start()


def equal_weights(one: Path, other: Path) -> bool:
    ours, theirs = (load_weights(RunFolder(run).encoder).tensors for run in (one, other))
    return all(torch.equal(ours[name], theirs[name]) for name in ours | theirs)


@pytest.mark.parametrize("verb", VERBS)
def test_killed_before_its_first_checkpoint_and_resumed_it_equals_an_unbroken_run(
    verb, pretrained, tmp_path, monkeypatch
):
    verb(pretrained, tmp_path / "unbroken")
    killed_before_the_first_checkpoint(lambda: verb(pretrained, tmp_path / "broken"), monkeypatch)
    verb(pretrained, tmp_path / "broken", resume=True)
    assert equal_weights(tmp_path / "unbroken", tmp_path / "broken")


@pytest.mark.parametrize("verb", VERBS)
def test_a_first_start_by_resume_equals_one_without(verb, pretrained, tmp_path):
    """As schedulers repeat one command line."""
    verb(pretrained, tmp_path / "plain")
    verb(pretrained, tmp_path / "resumed", resume=True)
    assert equal_weights(tmp_path / "plain", tmp_path / "resumed")


def test_resume_remembers_what_it_started_from(pretrained, tmp_path, monkeypatch):
    pretrain(pretrained, tmp_path / "unbroken")
    killed_before_the_first_checkpoint(lambda: pretrain(pretrained, tmp_path / "broken"), monkeypatch)
    echoless.pretrain(DATA, out=tmp_path / "broken", resume=True)
    assert equal_weights(tmp_path / "unbroken", tmp_path / "broken")


@pytest.mark.parametrize("where", [(about, "SessionRecord"), (RunFolder, "write_config")], ids=["record", "config"])
def test_killed_while_it_is_recorded_it_never_starts_from_random_weights(where, pretrained, tmp_path, monkeypatch):
    """Before the record or before the config is there: repeated in full it equals an unbroken run, and in short it is
    refused or does the same."""
    pretrain(pretrained, tmp_path / "unbroken")

    def die(*_: object) -> None:
        raise Killed

    for name, command in (("whole", partial(pretrain, pretrained)), ("short", echoless.pretrain)):
        with monkeypatch.context() as patch:
            patch.setattr(*where, die)
            with pytest.raises(Killed):
                pretrain(pretrained, tmp_path / name)
        try:
            command(out=tmp_path / name, resume=True)
        except EcholessError as error:
            assert name == "short", error
        else:
            assert equal_weights(tmp_path / "unbroken", tmp_path / name), name


def test_the_record_says_what_a_run_started_from(pretrained, tmp_path):
    pretrain(pretrained, tmp_path / "run")
    start = RunFolder(tmp_path / "run").read_about()["start"]
    assert start == {"path": str(pretrained), "fingerprint": load_body(pretrained).fingerprint}
    echoless.pretrain(DATA, out=tmp_path / "run", resume=True, max_steps=4)
    assert RunFolder(tmp_path / "run").read_about()["start"] == start


@pytest.mark.parametrize("verb", VERBS)
def test_other_weights_in_the_place_of_the_first_are_refused(verb, pretrained, tmp_path, monkeypatch):
    source = tmp_path / "source"
    echoless.pretrain(DATA, out=source, recipe="demo", batch_size=16, max_steps=1, seed=1)
    killed_before_the_first_checkpoint(lambda: verb(source, tmp_path / "run"), monkeypatch)
    echoless.pretrain(DATA, out=source, recipe="demo", batch_size=16, max_steps=1, seed=2, overwrite=True)
    with pytest.raises(RunError, match="holds other weights than those the run started from"):
        verb(source, tmp_path / "run", resume=True)
