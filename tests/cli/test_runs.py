"""`runs`: lists what a folder holds, ranks only what can be compared, and removes nothing but runs."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "reports"))
from made_runs import make_run

import echoless
from echoless.errors import ConfigError, RunError
from echoless.reports.collect import collect
from echoless.reports.evaluations import evaluations_of, remove_evaluations
from echoless.reports.gallery import card
from echoless.runs import RunFolder
from echoless.runs.folder import open_run
from echoless.verbs.runs import runs


@pytest.fixture
def folder(tmp_path) -> Path:
    make_run(tmp_path / "runs" / "plain", alpha_min=1.0, level=0.3)
    make_run(tmp_path / "runs" / "deep" / "faded", alpha_min=0.6, level=0.45)
    for run in ("plain", "deep/faded"):
        shutil.rmtree(tmp_path / "runs" / run / "samples")  # drawn for the page only: no verb writes it there
    return tmp_path / "runs"


def test_every_run_is_listed_with_its_state_and_numbers(folder, typed):
    done = typed("runs", "ls", folder)
    header, *rows = done.printed.splitlines()
    assert done.code == 0 and len(rows) == 2
    assert header.split()[:4] == ["run", "recipe", "shortcuts", "seed"] and "kNN" in header
    assert rows[0].startswith("deep/faded") and "alpha_min 0.6" in rows[0] and " MB " in rows[0]
    listed = echoless.list_runs(folder)
    assert [run.name for run in listed] == ["deep/faded", "plain"]
    assert listed[1].bytes == sum(file.stat().st_size for file in (folder / "plain").rglob("*") if file.is_file())


def test_models_beside_runs_are_not_listed_and_not_removed(folder):
    """An export, an import and a model of transformers have a config.json, as a run has."""
    model = folder / "exported"
    model.mkdir()
    (model / "config.json").write_text('{"architectures": ["ViTModel"]}')
    assert [run.name for run in echoless.list_runs(folder)] == ["deep/faded", "plain"]
    with pytest.raises(RunError, match="exported is not a run"):
        runs("rm", (model,), yes=True)


def test_without_an_action_each_is_said_with_what_it_does(typed):
    """It said that ACTION is missing."""
    done = typed("runs")
    assert done.code == 2 and done.printed == ""
    assert done.said == (
        "echoless runs: ACTION is missing: ls lists runs, best ranks them by a metric, rm removes some; results lists "
        "the evaluations of one run, rm-results removes some; see echoless runs --help\n"
    )


def test_an_empty_folder_says_what_makes_a_run(tmp_path, typed):
    assert typed("runs", "ls", tmp_path) == (
        0,
        f"no run in {tmp_path}; echoless pretrain DATA --out RUN makes one\n",
        "",
    )
    assert typed("runs", "best", tmp_path).printed == typed("runs", "ls", tmp_path).printed


def test_the_best_run_comes_first_and_as_a_record(folder, typed):
    done = typed("runs", "best", folder, "--metric", "knn", "--json")
    records = [json.loads(line) for line in done.printed.splitlines()]
    values = [record["metrics"]["knn"]["value"] for record in records]
    assert [record["rank"] for record in records] == [1, 2] and values == sorted(values, reverse=True)
    assert records[0]["name"] == "deep/faded"


def with_protocol(run: Path, **changes) -> None:
    path = run / "results.json"
    records = json.loads(path.read_text())
    for record in records:
        record["protocol"] |= changes
    path.write_text(json.dumps(records))


def test_numbers_of_other_images_are_ranked_apart_and_other_layers_together(folder):
    with_protocol(folder / "plain", test_set="another", test="x")
    assert [run.rank for run in runs("best", (folder,), metric="knn")] == [1, 1]
    with_protocol(folder / "plain", test_set="same", layer="block11/+mlp")
    with_protocol(folder / "deep" / "faded", test_set="same", layer="block05/+mlp", test="x")
    found = runs("best", (folder,), metric="knn")
    assert [run.rank for run in found] == [1, 2] and "block11/+mlp" in str(found) and "<td>rank" in found._repr_html_()


def test_fingerprints_are_said_only_where_two_rankings_would_read_alike(folder):
    """Nobody reads twelve hex digits; but two sets of one name must not look like one."""
    for run, fingerprint in (("plain", "a8f9cbb640b0"), ("deep/faded", "540a24bb0c3a")):
        with_protocol(folder / run, train_set=fingerprint, train="photos")
    both = str(runs("best", (folder,), metric="knn"))
    assert "train_set a8f9cbb640b0" in both and "train_set 540a24bb0c3a" in both
    alone = str(runs("best", (folder / "plain",), metric="knn"))
    assert "train photos" in alone and "a8f9cbb640b0" not in alone


def test_lists_and_rankings_fit_a_terminal(folder, typed):
    """Of 100 columns; a list has no room for intervals, a ranking none for the day."""
    listed, ranked = typed("runs", "ls", folder).printed, typed("runs", "best", folder).printed
    assert max(map(len, (listed + ranked).splitlines())) <= 100
    assert "[" not in listed and "[" in ranked and "2026-01-02" in listed and "2026" not in ranked


def knn(value: float, train: str, **protocol) -> dict:
    protocol = {"train": train, "train_set": train, "label_set": train, **protocol}
    return {"metric": "knn", "value": value, "n": 9, "interval": None, "protocol": protocol}


def test_a_list_shows_numbers_of_shared_sets_and_marks_those_of_others(folder, typed):
    """One column had the kNN of 600 images of one run and of 80 of the other, without a hint."""
    for run in ("plain", "deep/faded"):
        (folder / run / "results.json").write_text("[]")
    RunFolder(folder / "plain").add_results([knn(0.5, "many"), knn(0.3, "few", labels="a file", label_file="few.csv")])
    RunFolder(folder / "deep" / "faded").add_results([knn(0.6, "many")])
    shared = typed("runs", "ls", folder).printed
    assert "50.00 %" in shared and "60.00 %" in shared and "30.00 %" not in shared and "(1)" not in shared
    (folder / "plain" / "results.json").write_text("[]")
    RunFolder(folder / "plain").add_results([knn(0.3, "few", labels="a file", label_file="few.csv")])
    marked = typed("runs", "ls", folder).printed
    assert "60.00 % (1)" in marked and "30.00 % (2)" in marked
    assert marked.splitlines()[-2:] == ["(1) train many", "(2) train few, labels few.csv"]
    assert max(map(len, marked.splitlines())) <= 100 and "(2) train few" in echoless.list_runs(folder)._repr_html_()


def test_a_run_measured_only_on_images_that_it_learned_from_is_marked_and_said(folder, typed):
    """Its cell was blank, as of a run that nobody measured, and a ranking left it out without a word."""
    for run in ("plain", "deep/faded"):
        (folder / run / "results.json").write_text("[]")
    seen = knn(0.9, "a", test="b", test_set="b", overlap=4)
    RunFolder(folder / "plain").add_results([seen, knn(0.2, "a", features="untrained"), knn(0.3, "a", scan="layers")])
    said = "measured only on images that are also in train, of the probe or, by label, of the encoder"
    alone = typed("runs", "best", folder, "--metric", "knn").printed
    assert f"has a measured knn that is a test; left out, {said}: plain" in alone and "measured there" not in alone
    RunFolder(folder / "deep" / "faded").add_results([knn(0.6, "a")])
    listed = typed("runs", "ls", folder).printed
    faded, plain = (next(line for line in listed.splitlines() if line.startswith(name)) for name in ("deep", "plain"))
    assert "60.00 %" in faded and "no test" not in faded and "no test" in plain and "90.00 %" not in listed
    assert f"no test: {said}; echoless runs results RUN" in " ".join(listed.split()) and said in one_line(listed)
    ranked = typed("runs", "best", folder, "--metric", "knn").printed
    assert "60.00 %" in ranked and f"left out, {said}: plain" in one_line(ranked)
    results = typed("runs", "results", folder / "plain").printed
    assert "knn 90.00 %" in results and "(no test: 4 seen)" in one_line(results) and "no test: so many" in results
    assert "no test" not in typed("runs", "results", folder / "deep" / "faded").printed
    seen_too = [seen | {"metric": name} for name in ("linear", "rankme")]
    RunFolder(folder / "plain").add_results([*seen_too, knn(0.7, "a") | {"metric": "finetune"}])
    assert "70.00 %" in typed("runs", "ls", folder).printed, "what is no test must not hide what is one"
    RunFolder(folder / "plain").add_results([knn(0.5, "a")])
    assert "no test" not in typed("runs", "ls", folder).printed, "it has a test now"
    assert "left out" not in typed("runs", "best", folder, "--metric", "knn").printed


def test_the_gallery_says_it_too(folder):
    (folder / "plain" / "results.json").write_text("[]")
    RunFolder(folder / "plain").add_results([knn(0.9, "a", overlap=4)])
    shown = card("plain", collect(folder / "plain"))
    assert shown["numbers"] == [] and shown["measured"].startswith("measured only on images that are also in train")


def test_numbers_that_a_resume_set_aside_are_named(folder, typed):
    """The list of a run that was continued was empty, as if nobody had measured it."""
    run = folder / "plain"
    (run / "results.json").rename(run / "results-step-00000089.json")
    printed = one_line(typed("runs", "results", run).printed)
    assert (
        printed.startswith("nothing has been measured")
        and "set aside when the run was continued: results-step-0" in printed
    )


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_rankings_begin_with_the_one_that_was_measured_last(folder):
    """They stood in the order of the names of the runs."""
    for run in ("plain", "deep/faded"):
        (folder / run / "results.json").write_text("[]")
    old, new = RunFolder(folder / "deep" / "faded"), RunFolder(folder / "plain")
    old.add_results([knn(0.6, "a"), knn(0.5, "b")])
    new.add_results([knn(0.4, "b"), knn(0.2, "c")])
    os.utime(old.path / "results.json", (1, 1))
    ranked = [run.metrics["knn"].protocol["train"] for run in runs("best", (folder,), metric="knn")]
    assert ranked == ["c", "b", "b", "a"]


def test_a_metric_that_nobody_measured(folder, typed):
    printed = typed("runs", "best", folder, "--metric", "tokencut-iou").printed
    assert "has a measured tokencut-iou; measured there: knn" in printed
    assert "did you mean 'knn'?" in typed("runs", "best", folder, "--metric", "knm").said


def test_runs_are_removed_after_a_yes_only(folder, typed):
    run = folder / "plain"
    assert not runs.run(options("rm", run), ask=lambda question: "n") and run.exists()
    asked = []
    assert runs.run(options("rm", run), ask=lambda question: asked.append(question) or "y") and not run.exists()
    assert "remove 1 run? [y/N] " in asked[0] and str(run) in asked[0]
    done = typed("runs", "rm", folder / "deep" / "faded", "--yes")
    assert done.code == 0 and done.printed.startswith(f"removed {folder / 'deep' / 'faded'} (")
    assert not (folder / "deep" / "faded").exists() and (folder / "deep").exists()


def options(*words, **more):
    from echoless.config.options import RunsOptions

    action, *folders = words
    return RunsOptions(action, tuple(folders), **more)


def test_without_a_terminal_rm_needs_yes(folder, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(ConfigError, match="nobody can answer here; give --yes"):
        runs("rm", (folder / "plain",))
    assert (folder / "plain").exists()


def test_what_is_not_ours_is_never_removed(folder, tmp_path):
    (folder / "plain" / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match=r"is not removed: it also holds thesis.tex; move that away first"):
        runs("rm", (folder / "deep" / "faded", folder / "plain"), yes=True)
    assert (folder / "deep" / "faded").exists(), "all are checked before the first is removed"
    with pytest.raises(RunError, match="is not a run; give the runs themselves"):
        runs("rm", (folder,), yes=True)
    (tmp_path / "link").symlink_to(folder / "deep" / "faded")
    with pytest.raises(RunError, match="it is a link"):
        runs("rm", (tmp_path / "link",), yes=True)
    with pytest.raises(RunError, match="does not exist"):
        runs("rm", (tmp_path / "nothing",), yes=True)


def test_a_run_that_is_being_trained_is_never_removed(folder):
    with (
        open_run(folder / "plain", resume=True),
        pytest.raises(RunError, match="is not removed: it is being trained by another process"),
    ):
        runs("rm", (folder / "plain",), yes=True)
    assert (folder / "plain" / "config.json").exists()


def test_a_wrong_evaluation_is_listed_removed_and_kept_aside(folder, typed):
    """Measured with wrong labels, it stayed in the run, in its pages and in its rankings."""
    run = folder / "plain"
    results = run / "results.json"
    before = json.loads(results.read_text())
    protocol = {"train": "photos", "train_set": "aa", "label_set": "wrong", "labels": "a labels file"}
    wrong = {"metric": "knn", "value": 0.99, "n": 80, "interval": None, "protocol": protocol}
    RunFolder(run).add_results([wrong])
    listed = typed("runs", "results", run)
    row = " ".join(listed.printed.splitlines()[-1].split())
    assert listed.code == 0 and row == "2 knn 99.00 % train photos a labels file (wrong) 80 1"
    assert "99.00 %" in typed("runs", "best", run, "--metric", "knn").printed
    done = typed("runs", "rm-results", run, "--which", "2", "--yes")
    assert (
        done.code == 0 and f"removed evaluation 2 of {run}" in done.printed and "results-removed.json" in done.printed
    )
    assert "knn 99.00 %" in done.printed, "what was removed is shown: the numbers of the others change"
    assert json.loads(results.read_text()) == before
    assert "99.00 %" not in typed("runs", "best", run, "--metric", "knn").printed
    (kept,) = json.loads((run / "results-removed.json").read_text())
    assert kept["protocol"] == protocol and kept["value"] == 0.99 and kept["removed"]
    RunFolder(run).add_results([wrong])
    typed("runs", "rm-results", run, "--which", "2", "--yes")
    assert len(json.loads((run / "results-removed.json").read_text())) == 2, "appended, never rewritten"
    assert runs("rm", (run,), yes=True) and not run.exists(), "it is ours"


def test_nothing_is_removed_without_a_number_a_yes_or_a_single_run(folder, typed, monkeypatch):
    run = folder / "plain"
    content = (run / "results.json").read_bytes()
    assert "give --which: 1 to 1, as `echoless runs results`" in typed("runs", "rm-results", run).said
    assert "which is 7; allowed: 1 to 1" in typed("runs", "rm-results", run, "--which", "7", "--yes").said
    assert (
        "rm-results takes one run" in typed("runs", "rm-results", run, folder / "deep" / "faded", "--which", "1").said
    )
    assert "is not a run" in typed("runs", "results", folder).said
    assert not runs.run(options("rm-results", run, which=(1,)), ask=lambda question: "n")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(ConfigError, match="nobody can answer here; give --yes"):
        runs("rm-results", (run,), which=(1,))
    assert (run / "results.json").read_bytes() == content


def test_evaluations_fit_a_terminal_and_nothing_of_them_is_lost(folder, typed):
    """The table was 140 columns wide."""
    run, sets = folder / "plain", {"train": "photographs of 2026", "test": "photographs of 2025", "train_set": "aa"}
    protocol = sets | {"label_set": "32d5368e7932", "labels": "a labels file"}
    for name, value in (("knn", 0.25), ("linear", 0.5), ("rank_paper", 3.0), ("rank_centered", 2.5), ("rankme", 17.0)):
        RunFolder(run).add_results(
            [{"metric": name, "value": value, "n": 2000, "interval": None, "protocol": protocol}]
        )
    lines = typed("runs", "results", run).printed.splitlines()
    assert max(map(len, lines)) <= 100
    whole = " ".join(" ".join(line.split()) for line in lines)
    assert "knn 25.00 %," in whole and "linear 50.00 %," in whole, "a value stays with its name"
    for text in ("rank_paper 3", "rank_centered 2.5", "rankme 17", "(32d5368e7932)", "2000"):
        assert text in whole
    (_, record) = map(json.loads, typed("runs", "results", run, "--json").printed.splitlines())
    assert record["metrics"]["rankme"] == "17" and record["images"].endswith("test photographs of 2025")


def test_evaluations_that_changed_since_they_were_listed_are_not_removed(folder):
    listed = evaluations_of(folder / "plain")
    RunFolder(folder / "plain").add_results([{"metric": "new", "value": 1.0, "n": 3, "protocol": {}}])
    with pytest.raises(ConfigError, match="have changed; list them again"):
        remove_evaluations(folder / "plain", listed)
