"""Completion: a real bash completes verbs, options and values; zsh and fish read their scripts where they are there."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from echoless.verbs.table import VERBS

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture(scope="module")
def scripts():
    from echoless.cli.completion import completion

    return {shell: completion(shell) for shell in SHELLS}


def completed(script: str, *words: str) -> set[str]:
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
    done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True)
    return {line.split()[0] for line in done.stdout.splitlines() if line.strip()}


def test_bash_completes_verbs_options_and_values(scripts):
    if shutil.which("bash") is None:
        pytest.skip("NOT RUN: there is no bash on this machine, so its completion was not tried")
    assert completed(scripts["bash"], "") >= set(VERBS)
    assert completed(scripts["bash"], "ev") == {"evaluate"}
    assert completed(scripts["bash"], "pretrain", "--alpha") == {"--alpha-min"}
    assert completed(scripts["bash"], "pretrain", "--schedule", "") == {"linear", "cosine", "constant"}
    assert completed(scripts["bash"], "evaluate", "--jso") == {"--json"}


@pytest.mark.parametrize("shell", SHELLS)
def test_every_script_names_every_verb_and_can_be_read(shell, scripts, tmp_path):
    assert all(verb in scripts[shell] for verb in VERBS)
    if shutil.which(shell) is None:
        pytest.skip(f"NOT RUN: there is no {shell} on this machine, so its script was not read")
    (tmp_path / "script").write_text(scripts[shell])
    done = subprocess.run([shell, "-n", str(tmp_path / "script")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
