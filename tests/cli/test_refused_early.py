"""A wrong path or a run folder in use is refused before torch is loaded: the answer takes a fraction of a second."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import echoless
from echoless.config.options import PretrainOptions
from echoless.errors import ConfigError
from echoless.verbs.early import require_outputs

WITHOUT_TORCH = """
import sys
from echoless.cli.main import main
code = main(sys.argv[1:])
assert not {"torch", "numpy", "pyarrow"} & set(sys.modules), "a heavy library was loaded"
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("pretrain nowhere --out new", "data 'nowhere' does not exist; allowed: a folder of images"),
        (
            "pretrain emty --out new",
            "data 'emty' does not exist; allowed: a folder of images, .parquet, .tar, .npz, or sh",
        ),
        ("pretrain emty --out new", "did you mean 'empty'?"),
        ("pretrain --out new --resume", "new holds no run to resume; give its folder as --out, or DATA to start one"),
        ("search file --query -odd.jpg", "'-odd.jpg'; see echoless search --help; a value that begins with a dash is"),
        ("pretrain shapes --out run", "run is not empty (it holds a run); give --resume"),
        ("pretrain shapes --out file", "file is not a folder; give --out a folder"),
        ("pretrain shapes --out run --resume --overwrite", "run cannot be both resumed and overwritten"),
        ("pretrain shapes --out new --recipe mea-tiny", "recipe is 'mea-tiny'; allowed: "),
        ("pretrain shapes --out new --epochs 1 --max-steps 2", "either epochs or max_steps, not both"),
        ("pretrain shapes --out new --alpha-min 2", "alpha_min is 2.0; allowed: a number in [0, 1]"),
        ("pretrain shapes --out new --max-steps 0", "max_steps is 0; allowed: a whole number from 1"),
        ("finetune run --train shapes --test shapes --out new --max-steps 0", "max_steps is 0; allowed: "),
        (
            "finetune run --train shapes --test shapes --out new --epochs 1 --max-steps 2",
            "either epochs or max_steps, not both",
        ),
        ("finetune run --train nowhere --test shapes --out new", "data 'nowhere' does not exist"),
        ("finetune run --train shapes --test shapes --out run", "run is not empty (it holds a run)"),
        ("pretrain shapes --out new --test-labels a.csv", "test_labels is 'a.csv', but --test is missing"),
        ("sweep shapes --out new --test-labels a.csv", "test_labels is 'a.csv', but --test is missing"),
        ("sweep shapes --out new --paper fig7 --recipe demo", "recipe is 'demo', but the experiment fig7 sets its own"),
        ("sweep shapes --out new --scale cpu", "scale is 'cpu', but it applies only with --paper"),
        ("embed run nowhere --out f.npy", "data 'nowhere' does not exist"),
        ("evaluate run --train shapes --test shapes:400@7", "data is 'shapes:400@7'; allowed: shapes[:COUNT][@SPLIT]"),
        ("evaluate run --metrics knn,rank", "metrics is 'knn,rank'; give them with spaces between: knn rank"),
        ("finetune --out new", "RUN, --train and --test are missing; see echoless finetune --help"),
        ("evaluate run --train empty/.. --labels no.csv", "labels file no.csv does not exist; it must be a CSV file"),
        ("embed run photos --out f.npy --labels no.csv", "labels file no.csv does not exist; it must be a CSV file"),
        ("pretrain photos --out new --labels no.csv", "labels file no.csv does not exist; it must be a CSV file"),
        ("embed run shapes --out f.json", "out is 'f.json'; allowed: a name that ends in .parquet, .npy or .csv"),
        ("embed run shapes --out old.csv", "old.csv exists; give --overwrite to replace it, or another --out"),
        ("sweep nowhere --out new", "data 'nowhere' does not exist"),
        ("pretrain empty --out new", "data 'empty' is an empty folder; it must hold images"),
        ("evaluate nowhere", "nowhere does not exist; give a run"),
        ("finetune nowhere --train shapes --test shapes --out new", "nowhere does not exist; give a run"),
        ("export nowhere --to hf --out new", "nowhere does not exist; give a run"),
        ("import nowhere --out new", "nowhere does not exist; give a checkpoint"),
        ("sample nowhere --out new", "nowhere does not exist; give a run"),
        ("report nowhere --out new.html", "nowhere does not exist or is not a folder"),
        ("serve nowhere", "nowhere does not exist; give a folder of runs"),
        ("serve file", "file is not a folder; give a folder of runs"),
        ("serve photo", "photo does not exist; did you mean 'photos'?"),
        ("pretrain shapes --out new --time soon", "time is 'soon'; allowed: a time such as 90s, 45m, 3h, 1h30m or 2d"),
        ("evaluate run --train nowhere", "data 'nowhere' does not exist"),
        ("evaluate nowhere --train shapes", "nowhere does not exist; give a run"),
        ("embed nowhere shapes --out f.npy", "nowhere does not exist; give a run"),
        ("search nowhere --outliers", "features 'nowhere' does not exist; give the .parquet file or folder"),
        ("search old.csv --outliers", "features is 'old.csv'; allowed: a table that `echoless embed --out FILE.parq"),
        ("search empty --outliers", "features 'empty' holds no .parquet file"),
        ("search file", "nothing to search for; give --query IMAGE, --duplicates or --outliers"),
        ("search file --outliers --out empty.txt", "out is 'empty.txt'; allowed: a file whose name ends in .html"),
        ("search file --outliers --table t.json", "table is 't.json'; allowed: a name that ends in .csv or .parquet"),
        ("search file --outliers --threshold 0.9", "threshold is 0.9, which needs --duplicates"),
        ("search file --duplicates --by features", "by is 'features', which needs --threshold"),
        ("search file --k 0 --outliers", "k is 0; allowed: a whole number, 1 or more"),
        ("demo --out file", "--out is file, which is a file; give a folder"),
        ("conditioning --out file", "--out is file, which is a file; give a folder"),
        ("pretrain shapes --out file/new", "out is 'file/new', but file is not a folder; give a path inside one"),
        ("conditioning nowhere --out new", "data 'nowhere' does not exist"),
        ("pretrain photos --out photos/new", "out is 'photos/new', inside the images of data 'photos'; allowed: "),
        ("pretrain . --out new", "out is 'new', inside the images of data '.'; allowed: a path outside, such as "),
        ("embed run photos --out ./photos/f.parquet", "inside the images of data 'photos'; allowed: a path outside"),
        (
            "search old.parquet --outliers --root photos --table photos/t.csv",
            "table is 'photos/t.csv', inside the images of root 'photos'; allowed: a path outside",
        ),
        (
            "finetune run --train photos --test shapes --out photos/new",
            "out is 'photos/new', inside the images of train 'photos'",
        ),
    ],
)
def test_it_is_one_sentence_and_no_heavy_library_is_loaded(words, sentence, tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "old.csv").write_text("path")
    (tmp_path / "empty").mkdir()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_text("an image")
    command = [sys.executable, "-c", WITHOUT_TORCH, *words.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1 and sentence in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_run_inside_its_images_can_be_continued(tmp_path: Path):
    """An earlier version made it there; its files are passed over when the images are read."""
    run = tmp_path / "photos" / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.json").write_text("{}")
    require_outputs(PretrainOptions(tmp_path / "photos", out=run, resume=True))
    with pytest.raises(ConfigError, match=r"inside the images of data"):
        require_outputs(PretrainOptions(tmp_path / "photos", out=run.with_name("other")))


@pytest.mark.parametrize("words", ["evaluate {}", "pretrain {} --out new", "report {}", "export {} --to hf --out new"])
def test_what_the_system_says_of_a_path_is_one_sentence(words, tmp_path: Path):
    """A name of 300 letters stands for every path that cannot even be looked at: locked, or on a faulty disk."""
    command = [sys.executable, "-c", WITHOUT_TORCH, *words.format("a" * 300).split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "a" * 300 in done.stderr and "File name too long" in done.stderr


@pytest.mark.parametrize("words", ["pretrain shapes --out", "embed run shapes --out", "sample run --out"])
def test_an_output_whose_name_is_no_text_is_refused_before_any_work(words, tmp_path: Path):
    """safetensors could not open the run again, hours later."""
    command = [sys.executable, "-c", WITHOUT_TORCH, *words.split(), b"caf\xe9.parquet"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "out is 'caf\\udce9.parquet', which is not UTF-8" in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        "finetune run --train shapes --test shapes --out",
        "sweep shapes --out",
        "embed run shapes --out",
        "sample run --out",
        "export run --to hf --out",
        "import run --out",
        "report run --out",
        "search run --outliers --out",
        "search run --outliers --table",
        "demo --out",
        "conditioning --out",
    ],
)
def test_every_verb_refuses_an_output_below_a_file(words, typed, tmp_path: Path, monkeypatch):
    """They said "File exists", "permission denied", or nothing before the end of the work."""
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    field = words.rpartition("--")[2]
    sentence = f"{field} is 'file/deep/new.csv', but file is not a folder; give a path inside one"
    assert typed(*words.split(), "file/deep/new.csv") == (2, "", f"echoless {words.split()[0]}: {sentence}\n")


def test_in_python_too_an_output_below_a_file_or_a_broken_link_is_refused(tmp_path: Path):
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(ConfigError, match=r"out is '.*/link/f\.npy', but .*/link is not a folder; give a path inside"):
        echoless.embed(tmp_path, "shapes:8", out=tmp_path / "link" / "f.npy")


def test_a_world_size_that_is_no_number_is_one_sentence(tmp_path: Path, monkeypatch):
    """Whoever refuses it, it is not the early checks, which must not fall over it."""
    monkeypatch.setenv("WORLD_SIZE", "x")
    allowed = "WORLD_SIZE is 'x' in the environment; allowed: a whole number"
    with pytest.raises(ConfigError, match=allowed):
        echoless.pretrain("shapes:8", out=tmp_path / "new", recipe="demo")
    with pytest.raises(ConfigError, match=allowed):
        echoless.embed("nowhere", "nowhere", out=tmp_path / "f.npy")
    assert not list(tmp_path.iterdir())
