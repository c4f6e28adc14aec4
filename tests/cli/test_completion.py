"""Completion: a real bash and fish complete verbs, options, values and paths; zsh reads its script, if it is there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from echoless.cli.completion import MENDED, completion
from echoless.config.metrics import METRICS, YIELDS
from echoless.recipes.table import RECIPES
from echoless.sweeps.papers import PAPERS
from echoless.verbs.table import VERBS

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture(scope="module")
def scripts():
    return {shell: completion(shell) for shell in SHELLS}


def completed(script: str, *words: str, cwd: Path | None = None) -> set[str]:
    """What bash offers for the last word."""
    ask = f"""
    function=$(complete -p echoless | sed 's/.*-F \\([^ ]*\\).*/\\1/')
    COMP_WORDS=(echoless {" ".join(words[:-1])} "{words[-1]}")
    COMP_CWORD={len(words)}
    COMP_LINE="${{COMP_WORDS[*]}}"; COMP_POINT=${{#COMP_LINE}}
    compopt() {{ :; }}
    $function
    printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], cwd=cwd, capture_output=True, text=True, check=True)
    return {line for line in done.stdout.splitlines() if line.strip()}


def test_bash_completes_verbs_options_and_values(scripts):
    if shutil.which("bash") is None:
        pytest.skip("NOT RUN: there is no bash on this machine, so its completion was not tried")
    assert completed(scripts["bash"], "") >= set(VERBS)
    assert completed(scripts["bash"], "ev") == {"evaluate"}
    assert completed(scripts["bash"], "pretrain", "--alpha") == {"--alpha-min"}
    assert completed(scripts["bash"], "pretrain", "--schedule", "") == {"linear", "cosine", "constant"}
    assert completed(scripts["bash"], "evaluate", "--jso") == {"--json"}


def test_names_of_recipes_metrics_and_experiments_are_completed(scripts):
    """The page said so of every fixed list, and it was true of those that the options classes spell out."""
    if shutil.which("bash") is None:
        pytest.skip("NOT RUN: there is no bash on this machine, so its completion was not tried")
    assert completed(scripts["bash"], "pretrain", "--recipe", "mae-p") == {"mae-pico"}
    assert completed(scripts["bash"], "pretrain", "--recipe", "au") == {"auto"}
    assert completed(scripts["bash"], "recipes", "mae-p") == {"mae-pico"}
    assert completed(scripts["bash"], "recipes", "") == {*RECIPES, *PAPERS}
    assert completed(scripts["bash"], "evaluate", "RUN", "--metrics", "k") == {"knn"}
    assert completed(scripts["bash"], "evaluate", "RUN", "--metrics", "knn", "li") == {"linear"}
    assert completed(scripts["bash"], "runs", "best", "--metric", "rankm") == {"rankme"}
    assert completed(scripts["bash"], "sweep", "shapes", "--paper", "") == {*PAPERS}
    assert all(name in script for script in scripts.values() for name in (*RECIPES, *PAPERS, *METRICS, *YIELDS))


def test_no_script_needs_torch():
    """A shell asks for it at its start."""
    code = (
        "import sys; from echoless.cli.completion import completion as c; c('bash'); assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.fixture
def with_files(tmp_path) -> Path:
    for name in ("photos", "my photos", "features.parquet"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_bash_completes_paths_where_a_verb_takes_one(scripts, with_files):
    if shutil.which("bash") is None:
        pytest.skip("NOT RUN: there is no bash on this machine, so its completion was not tried")
    everything = {"photos", "my photos", "features.parquet"}
    assert completed(scripts["bash"], "pretrain", "", cwd=with_files) == everything
    assert completed(scripts["bash"], "pretrain", "ph", cwd=with_files) == {"photos"}
    assert completed(scripts["bash"], "report", "photos", "my", cwd=with_files) == {"my photos"}
    assert completed(scripts["bash"], "evaluate", "photos", "--train", "ph", cwd=with_files) == {"photos"}
    assert completed(scripts["bash"], "runs", "") == {"ls", "best", "rm", "results", "rm-results"}
    assert completed(scripts["bash"], "runs", "best", "fe", cwd=with_files) == {"features.parquet"}
    assert completed(scripts["bash"], "pretrain", "--max-steps", "", cwd=with_files) == set()
    assert completed(scripts["bash"], "ph", cwd=with_files) == set()


def test_fish_completes_the_same(scripts, with_files):
    if shutil.which("fish") is None:
        pytest.skip("NOT RUN: there is no fish on this machine, so its completion was not tried")
    (with_files / "script").write_text(scripts["fish"])

    def offered(line: str) -> set[str]:
        command = f"source script; complete -C '{line}'"
        done = subprocess.run(["fish", "-N", "-c", command], cwd=with_files, capture_output=True, text=True, check=True)
        return {each.partition("\t")[0] for each in done.stdout.splitlines()}

    assert offered("echoless ev") == {"evaluate"}
    assert offered("echoless pretrain --alpha") == {"--alpha-min"}
    assert offered("echoless pretrain --schedule ") == {"linear", "cosine", "constant"}
    assert offered("echoless pretrain ph") == {"photos/"}
    assert offered("echoless runs ") == {"ls", "best", "rm", "results", "rm-results"}


def test_every_place_of_the_scripts_that_must_change_is_found(scripts):
    """tyro may write other scripts some day. zsh is asked by hand: it completes only for somebody who types."""
    for old, new in MENDED.items():
        assert [old in script for script in scripts.values()] == [False] * 3
        assert sum(new in script for script in scripts.values()) == 1
    assert all("current_index > 1 and not value" in script for script in scripts.values())


@pytest.mark.parametrize("shell", SHELLS)
def test_every_script_names_every_verb_and_can_be_read(shell, scripts, tmp_path):
    assert all(verb in scripts[shell] for verb in VERBS)
    if shutil.which(shell) is None:
        pytest.skip(f"NOT RUN: there is no {shell} on this machine, so its script was not read")
    (tmp_path / "script").write_text(scripts[shell])
    done = subprocess.run([shell, "-n", str(tmp_path / "script")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
