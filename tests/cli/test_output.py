"""`--json` puts results alone on stdout, one object per line; `--quiet` leaves results and errors."""

from __future__ import annotations

import json
import shlex
import sys
import types
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import pytest

from echoless.verbs.records import plain, records_of
from echoless.verbs.signature import signature_of
from echoless.verbs.table import VERBS, Verb

SMALL = ("--recipe", "demo", "--max-steps", "2", "--batch-size", "8", "--no-compile")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    from echoless.cli.main import main

    out = tmp_path_factory.mktemp("output") / "run"
    assert main(["pretrain", "shapes:40", "--out", str(out), *SMALL]) == 0
    return out


def lines(printed: str) -> list[dict]:
    return [json.loads(line) for line in printed.splitlines()]


def test_a_training_run_is_one_record(tmp_path, typed):
    done = typed("pretrain", "shapes:40", "--out", tmp_path / "run", *SMALL, "--json")
    assert done.code == 0 and lines(done.printed) == [{"run": str(tmp_path / "run"), "complete": True}]
    assert "done: 2 steps" in done.said


def test_a_finished_training_names_the_next_commands_and_they_can_be_typed(tmp_path, typed):
    said = typed("pretrain", "shapes:40", "--out", tmp_path / "a run", *SMALL).said
    follow = said[said.index("next: echoless ") + len("next: ") :].splitlines()
    assert [shlex.split(line, comments=True)[1:3] for line in follow if "echoless " in line] == [
        ["evaluate", str(tmp_path / "a run")],
        ["embed", str(tmp_path / "a run")],
        ["report", str(tmp_path / "a run")],
    ]


def test_every_number_of_an_evaluation_is_a_record_with_its_protocol(run, typed):
    done = typed("evaluate", run, "--train", "shapes:60", "--metrics", "knn", "rank", "--json")
    records = lines(done.printed)
    kept = json.loads((run / "results.json").read_text())
    assert done.code == 0 and len(records) > 3 and all(record in kept for record in records)
    assert {"knn", "rankme"} <= {record["metric"] for record in records}


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("embed", "RUN", "shapes:8", "--out", "OUT/x.npy"), {"file", "vectors"}),
        (("report", "RUN", "--out", "OUT/x.html"), {"file", "bytes"}),
        (("export", "RUN", "--to", "hf", "--out", "OUT/hf"), {"out", "to", "error", "verified", "how"}),
        (("doctor", "--no-self-test"), {"section", "topic", "text", "broken"}),
        (("recipes",), {"about"}),
        (("sweep", "shapes:40", "--out", "OUT/sweep", "--seeds", "1", "--print"), {"command"}),
    ],
)
def test_every_verb_prints_its_results_as_records(words, names, run, tmp_path, typed):
    place = {"RUN": str(run), "OUT": str(tmp_path)}
    done = typed(*(place.get(word, word.replace("OUT", str(tmp_path))) for word in words), "--json")
    assert done.code == 0
    assert lines(done.printed) and all(names <= set(record) for record in lines(done.printed))


@dataclass(frozen=True)
class ShoutOptions:
    """Shout."""

    _: KW_ONLY
    fail: bool = False
    """Raise an error."""


@pytest.fixture
def shout(monkeypatch):
    """A verb that speaks on both streams; `show` prints its result unless it is None."""

    def add(show):
        @signature_of(ShoutOptions)
        def shout(options: ShoutOptions) -> list[float]:
            from echoless.errors import RunError

            print("on stdout")
            print("on stderr", file=sys.stderr)
            if options.fail:
                raise RunError("it failed")
            return [1.5, float("nan")]

        monkeypatch.setitem(sys.modules, "echoless.verbs.shout", types.SimpleNamespace(shout=shout))
        verb = Verb("manners", ShoutOptions) if show is None else Verb("manners", ShoutOptions, show)
        monkeypatch.setitem(VERBS, "shout", verb)

    return add


def test_the_streams_of_a_verb_that_returns_its_result(shout, typed):
    shout(lambda options, result: f"{len(result)} results")
    assert typed("shout") == (0, "on stdout\n2 results\n", "on stderr\n")
    assert typed("shout", "--quiet") == (0, "2 results\n", "")
    assert typed("shout", "--json") == (0, '{"result": 1.5}\n{"result": null}\n', "on stdout\non stderr\n")
    assert typed("shout", "--json", "--quiet") == (0, '{"result": 1.5}\n{"result": null}\n', "")


def test_a_verb_that_prints_its_own_results_keeps_them_in_quiet(shout, typed):
    shout(None)
    assert typed("shout", "--quiet") == (0, "on stdout\n", "")


@pytest.mark.parametrize("how", [[], ["--quiet"], ["--json"], ["--json", "--quiet"]])
def test_an_error_is_always_said(how, shout, typed):
    shout(None)
    done = typed("shout", "--fail", *how)
    assert done.code == 2 and done.said.endswith("echoless shout: it failed\n")


def test_of_several_processes_the_first_prints_the_records(shout, typed, monkeypatch):
    shout(None)
    monkeypatch.setenv("RANK", "1")
    assert typed("shout", "--json").printed == ""


def test_any_data_is_a_record():
    options = ShoutOptions(fail=True)
    assert list(records_of(None, options)) == [{"fail": True}]
    assert list(records_of(None, None)) == []
    assert plain({"a": (Path("x"), float("inf"), {"b": 1})}) == {"a": ["x", None, {"b": 1}]}
