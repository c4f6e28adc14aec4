"""No verb repeats a password or a token of an address: not on the terminal, not in a file of the run, not in an error.

pytest tests/verbs/test_secrets.py
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from far_away import as_tar, pictures, served

from echoless.cli.main import main
from echoless.data import patience

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("aiohttp") is None, reason="NOT RUN: aiohttp is not installed, so no web server was read"
)
SECRETS = ("alice9", "hunter2", "tok3n")


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ECHOLESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(patience, "PAUSES", (0.01,))
    return tmp_path


def secret_address(server):
    return server.address.replace("http://", "http://alice9:hunter2@") + "/a.tar?token=tok3n"


def training(data, run, steps):
    small = ["--recipe", "demo", "--patch-size", "8", "--batch-size", "8", "--log-every", "1"]
    return ["pretrain", data, "--out", str(run), *small, "--max-steps", str(steps)]


def require_silence(home: Path, printed) -> None:
    files = [file for file in home.rglob("*") if file.is_file()]
    texts = {str(file): file.read_bytes().decode(errors="replace") for file in files}
    texts |= {"stdout": printed.out, "stderr": printed.err, "names": "\n".join(map(str, files))}
    assert not [(name, secret) for name, text in texts.items() for secret in SECRETS if secret in text]


def test_a_run_and_its_errors_repeat_no_secret(home, capfd):
    """The server sees the password and the token; nobody else does."""
    with served({"a.tar": as_tar(pictures(24))}) as server:
        data = secret_address(server)
        assert main(training(data, home / "run", 2)) == 0
        assert server.credentials.startswith("Basic ") and any("token=tok3n" in line for line in server.asked)
        assert main(["sweep", data, "--out", str(home / "sweep")]) == 2
        server.every = 1  # every request is lost
        assert main(training(data.replace("a.tar", "b.tar"), home / "other", 2)) == 2
    assert main(["pretrain", data, "--labels", data, "--out", str(home / "third")]) == 2
    assert main(["pretrain", str(Path(data)), "--out", str(home / "third")]) == 2  # one slash
    printed = capfd.readouterr()
    assert "cannot be read" in printed.err and "127.0.0.1" in (home / "run" / "config.json").read_text()
    require_silence(home, printed)


@pytest.mark.slow
def test_no_other_verb_repeats_a_secret(home, capfd):
    run = str(home / "run")
    with served({"a.tar": as_tar(pictures(24))}) as server:
        data = secret_address(server)
        assert main(training(data, run, 2)) == 0
        assert main([*training(data, run, 3), "--resume"]) == 0
        assert main(["evaluate", run, "--train", data, "--metrics", "knn", "--no-baselines"]) == 0
        assert main(["embed", run, data, "--out", str(home / "vectors.parquet")]) == 0
        assert main(["report", run, "--out", str(home / "report.html")]) == 0
        tune = ["finetune", run, "--train", data, "--test", data, "--max-steps", "1", "--batch-size", "8"]
        assert main([*tune, "--out", str(home / "tuned")]) == 0
    require_silence(home, capfd.readouterr())
