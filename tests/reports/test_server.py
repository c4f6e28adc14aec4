"""`serve` shows the runs of one folder to this machine alone: other hosts, paths and methods are refused."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import threading

import pytest

import echoless
from echoless.errors import ConfigError, RunError
from echoless.reports.gallery import find_runs
from echoless.reports.server import Server, make_server, serve


@pytest.fixture(scope="module")
def folder(two_runs, tmp_path_factory):
    root = tmp_path_factory.mktemp("served")
    inside = root / "inside"
    shutil.copytree(two_runs[0], inside / "plain")
    shutil.copytree(two_runs[1], inside / "deep" / "<script> & 'é'")
    shutil.copytree(two_runs[1], root / "outside")
    (inside / "link").symlink_to(root / "outside", target_is_directory=True)
    (inside / ".hidden").mkdir()
    return inside


@pytest.fixture(scope="module")
def server(folder):
    server = make_server(folder, 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def ask(server, target: str, method: str = "GET", host: str | None = None, also: str = "") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.putrequest(method, target, skip_host=True)
    if host != "":
        connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
    if also:
        connection.putheader("Host", also)
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_runs_are_found_below_the_folder_and_links_are_not_followed(folder):
    assert list(find_runs(folder)) == ["deep/<script> & 'é'", "plain"]
    assert list(find_runs(folder / "plain")) == ["plain"]


def test_the_gallery_links_to_every_run_and_each_is_shown(server):
    status, gallery = ask(server, "/")
    addresses = re.findall(r'href="(/run/[^"]+)"', gallery)
    assert status == 200 and len(addresses) == 2 and "<script> &" not in gallery
    for address in addresses:
        status, page = ask(server, address)
        assert status == 200 and "How training went" in page and 'data-live="/state?run=' in page
    status, page = ask(server, "/compare?run=plain&run=deep/%3Cscript%3E%20%26%20%27%C3%A9%27")
    assert status == 200 and "2 runs compared" in page
    assert ask(server, "/run/plain", "HEAD") == (200, "")


REFUSED = (
    "/run/../outside",
    "/run/..%2foutside",
    "/run/%2e%2e/outside",
    "/run/link",
    "/run//etc",
    "/etc/passwd",
    "/run/plain/config.json",
    "/run/",
    "/compare",
    "/compare?run=../outside",
    "/state?run=/etc",
    "//etc/passwd",
    "/%00",
)


def test_nothing_outside_the_folder_is_shown(server):
    answers = {target: ask(server, target)[0] for target in REFUSED}
    print(f"serve: {len(REFUSED)} paths that are not runs, answers {sorted(set(answers.values()))}")
    assert set(answers.values()) == {404}, answers


def test_requests_of_other_hosts_are_refused(server):
    port = server.server_port
    hosts = ["evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", f"127.0.0.1.evil:{port}", ""]
    answers = {host: ask(server, "/", host=host)[0] for host in hosts}
    assert set(answers.values()) == {403}, answers
    assert ask(server, "/", host=f"localhost:{port}")[0] == 200
    for second in ("evil.example", f"localhost:{port}"):  # two are refused, whichever of them a proxy believes
        assert ask(server, "/", also=second)[0] == 403
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT"])
def test_it_only_reads(server, method):
    assert ask(server, "/", method)[0] == 501


def test_the_state_changes_when_a_run_does_and_only_then(server, folder):
    before = ask(server, "/state?run=plain")
    assert ask(server, "/state?run=plain") == before
    with (folder / "plain" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 121, "loss": 0.123456}\n')
    after = ask(server, "/state?run=plain")
    assert before[0] == after[0] == 200 and before[1] != after[1]
    assert "121" in ask(server, "/run/plain")[1]


def test_a_run_that_cannot_be_shown_does_not_end_the_others(server, folder, monkeypatch):
    monkeypatch.setattr("echoless.reports.server.render", lambda *_, **__: 1 / 0)
    pair = "/compare?run=plain&run=deep/%3Cscript%3E%20%26%20%27%C3%A9%27&again"
    with (folder / "plain" / "log.txt").open("a") as file:
        file.write("another line\n")
    assert ask(server, pair)[0] == 500
    monkeypatch.undo()
    assert ask(server, pair)[0] == 200


def test_bad_input_is_one_sentence(server, folder, tmp_path):
    with pytest.raises(RunError, match="is not a folder"):
        make_server(tmp_path / "nowhere", 0)
    with pytest.raises(ConfigError, match=r"port is 70000; allowed: 0 \(any\) to 65535"):
        make_server(folder, 70000)
    with pytest.raises(RunError, match=r"port \d+ cannot be used: .*; give another --port"):
        make_server(folder, server.server_port)


def test_ctrl_c_ends_it_cleanly(folder):
    words = [sys.executable, "-m", "echoless", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        # A shell without job control gives its background jobs a deaf ear for Ctrl-C, and they hand it on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    said = process.stdout.readline()
    assert re.match(r"http://127\.0\.0\.1:\d+/ shows 2 runs", said)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=300)
    assert (process.returncode, out, errors) == (0, "stopped\n", "")


def test_a_folder_without_runs_is_waited_for(tmp_path, monkeypatch):
    """`shows 0 runs` looked like an answer."""
    monkeypatch.setattr(Server, "serve_forever", lambda *_, **__: None)
    said: list[str] = []
    serve(tmp_path, 0, said.append)
    assert re.fullmatch(rf"http://127\.0\.0\.1:\d+/ waits for the first run in {tmp_path}; stop with Ctrl-C", said[0])


def test_a_folder_that_does_not_exist_is_refused_with_the_one_that_has_runs(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    with pytest.raises(RunError, match=r"^nope does not exist; did you mean 'inside'\?$"):
        echoless.serve("nope")
    with pytest.raises(RunError, match=r"^outsid does not exist; did you mean 'outside'\?$"):
        echoless.serve("outsid")


def test_every_answer_forbids_guessing_framing_keeping_and_telling(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    for target in ("/", "/run/plain", "/nowhere"):
        connection.request("GET", target)
        answer = connection.getresponse()
        answer.read()
        assert answer.getheader("X-Content-Type-Options") == "nosniff"
        assert answer.getheader("X-Frame-Options") == "DENY"
        assert answer.getheader("Cache-Control") == "no-store"
        assert answer.getheader("Referrer-Policy") == "no-referrer"
        assert answer.getheader("Cross-Origin-Resource-Policy") == "same-origin"
    connection.close()
