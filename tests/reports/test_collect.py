"""Whatever state a run folder is in, what can be read of it is shown, and what cannot is said."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from echoless.errors import RunError
from echoless.reports.collect import collect, collect_all
from echoless.reports.facts import facts
from echoless.reports.gallery import find_runs
from echoless.reports.page import render, report
from echoless.reports.server import Library


def test_a_whole_run_is_read_whole(two_runs):
    run = collect(two_runs[1])
    assert run.complete and run.steps_done == 120 and run.troubles == [] and run.seed == 0
    assert run.alphas[0] == 1.0 and run.alphas[-1] == pytest.approx(0.6) and len(run.alphas) == 24
    assert {"data", "reconstructions", "samples", "tsne-images"} <= set(run.pictures) and run.map is not None
    assert len(run.series("loss")) == 120 and len(run.series("feature_norm/block03")) == 13


def test_a_run_that_has_just_begun_is_not_given_the_default_model(tmp_path):
    """Its page named a ViT-B at 224 pixels until config.json was there."""
    (tmp_path / "checkpoints").mkdir()
    assert dict(facts(collect(tmp_path))) == {"status": "no step recorded yet"}


BROKEN = {
    "config.json": (b'{"steps": 12', "config.json is not valid JSON"),
    "metrics.jsonl": (b'{"step": 1, "loss": 0.5}\n{"step": 2, nonsense}\n{"step": 3', "the lines before it are shown"),
    "results.json": (b'{"metric": 1}', "is not a list of metric records"),
    "about.json": (b"[]", "about.json holds a JSON list"),
    "figures/reconstructions.png": (b"GIF89a", "is not a PNG or JPEG"),
    "figures/tsne.json": (b'{"x": [1], "y": []}', "tsne.json cannot be read"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_one_broken_file_is_noted_and_the_rest_is_shown(two_runs, tmp_path, name):
    run = tmp_path / "run"
    shutil.copytree(two_runs[0], run)
    content, words = BROKEN[name]
    (run / name).write_bytes(content)
    data = collect(run)
    assert any(words in trouble for trouble in data.troubles), data.troubles
    page = render([data])
    assert "Not shown" in page and ("kNN accuracy" in page or name == "results.json")


def test_a_run_that_has_only_begun_is_shown(tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "config.json").write_text("{}")
    assert "No step has been recorded yet" in render([collect(tmp_path / "run")])
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 1, "loss": null, "lr": "fast", "odd": {"a": []}}\n')
    assert "not finite" in render([collect(tmp_path / "run")])


def test_every_combination_of_missing_files_renders(two_runs, tmp_path):
    for name in ("config.json", "metrics.jsonl", "results.json", "about.json", "log.txt", "figures", "samples"):
        run = tmp_path / name / "run"
        shutil.copytree(two_runs[0], run)
        doomed = run / name
        shutil.rmtree(doomed) if doomed.is_dir() else doomed.unlink()
        assert render([collect(run), collect(two_runs[1])])


def test_what_is_no_run_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(RunError, match="does not exist or is not a folder"):
        collect(tmp_path / "nowhere")
    with pytest.raises(RunError, match="is not a run: it has none of"):
        collect(tmp_path)


def test_runs_of_the_same_name_are_told_apart(two_runs, tmp_path):
    for parent in ("a", "b"):
        shutil.copytree(two_runs[0], tmp_path / parent / "run")
    assert [run.name for run in collect_all([tmp_path / "a" / "run", tmp_path / "b" / "run"])] == ["a/run", "b/run"]
    with pytest.raises(RunError, match="is given twice"):
        collect_all([two_runs[0], two_runs[0]])


def test_a_hostile_number_is_left_out(two_runs, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(two_runs[0], run)
    records = json.loads((run / "results.json").read_text())
    records.append({"metric": "knn", "value": "<b>", "protocol": {}})
    records.append({"metric": "knn", "value": 0.5, "protocol": {"k": "<b>"}, "interval": "wide"})
    (run / "results.json").write_text(json.dumps(records))
    data = collect(run)
    assert any("without a finite value" in trouble for trouble in data.troubles)
    assert "<b>" not in render([data])


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("figures/tsne.json", {"x": [{}]}),
        ("figures/tsne.json", {"neighbours": [10**400]}),
        ("figures/tsne.json", {"labels": ["<b>"]}),
        ("figures/tsne.json", {"labels": [10**9]}),
        ("figures/tsne.json", {"tile": [0, 8]}),
        ("figures/tsne.json", {"columns": {}}),
        ("figures/tsne.json", {"class_names": 1.5}),
        ("config.json", {"steps": 10**400}),
        ("about.json", {"seconds": 10**400, "sessions": 1}),
        ("about.json", {"seconds": 5.0, "sessions": 2, "ended": "never"}),
    ],
)
def test_a_value_of_the_wrong_kind_or_size_never_ends_the_page(two_runs, tmp_path, file, change):
    """A list in `change` replaces the first value of the list that is there."""
    run = tmp_path / "run"
    shutil.copytree(two_runs[0], run)
    record = json.loads((run / file).read_text()) if (run / file).exists() else {}
    for key, value in change.items():
        whole = isinstance(value, list) and key != "tile"
        record[key] = [*value, *record[key][1:]] if whole else value
    (run / file).write_text(json.dumps(record))
    page = render([collect(run)])
    assert "How training went" in page and (file != "figures/tsne.json" or "tsne.json cannot be read" in page)


def test_a_step_that_no_float_can_hold_is_left_out(two_runs, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(two_runs[0], run)
    steps = collect(run).steps_done
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 10**400, "loss": 1.0}) + "\n" + json.dumps({"step": 1, "loss": 10**400}) + "\n")
    data = collect(run)
    assert data.steps_done == steps and "How training went" in render([data])


def test_a_folder_name_that_is_no_utf_8_is_spelled_out(two_runs, tmp_path):
    run = tmp_path / os.fsdecode(b"bad\xff")
    shutil.copytree(two_runs[0], run)
    (run / "results.json").write_text("{")  # the sentence about it names the folder
    assert list(find_runs(tmp_path)) == ["bad\\xff"]
    assert "bad\\xff" in report([run], tmp_path / "page.html").read_text(encoding="utf-8")
    library = Library(tmp_path)
    assert [library.answer(target).status for target in ("/", "/state", "/run/bad%5Cxff")] == [200] * 3
