"""How are runs watched while they train? A read-only server on this machine shows the same pages.

It listens on 127.0.0.1, answers only requests whose Host is that address or localhost (which prevents DNS rebinding),
and serves no path but those of the runs that it found.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit

from echoless.config.counts import counted
from echoless.errors import ConfigError, EcholessError, RunError
from echoless.reports.collect import collect
from echoless.reports.gallery import card, find_runs, state_of
from echoless.reports.page import frame_values, render, template

ADDRESS = "127.0.0.1"
_KEPT = 16  # pages held ready
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Answer(NamedTuple):
    status: HTTPStatus
    kind: str
    text: str


class Library:
    """The runs of a folder as pages. A page is made again only when a file behind it has changed."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise RunError(f"{root} is not a folder; give a folder of runs")
        self.root = root
        self._lock = threading.Lock()
        self._made: OrderedDict[tuple[str, ...], tuple[str, Any]] = OrderedDict()

    def answer(self, target: str) -> Answer:
        """What a GET of `target` gets."""
        parts = urlsplit(target)
        asked = parse_qs(parts.query).get("run", [])
        runs = find_runs(self.root)
        if parts.path == "/":
            return _page(self._gallery(runs))
        if parts.path.startswith("/run/"):
            asked = [unquote(parts.path.removeprefix("/run/"))]
        elif parts.path == "/state":
            asked = asked or list(runs)
        elif parts.path != "/compare" or not asked:
            return _refusal("there is no such page")
        asked = list(dict.fromkeys(asked))
        if unknown := [name for name in asked if name not in runs]:
            return _refusal(f"{unknown[0]} is not one of the runs")
        if parts.path == "/state":
            return Answer(HTTPStatus.OK, "text/plain", self._state(runs, asked))
        return _page(self._report(runs, asked))

    def _state(self, runs: dict[str, Path], names: list[str]) -> str:
        return " ".join(f"{quote(name)}={state_of(runs[name])}" for name in names)

    def _report(self, runs: dict[str, Path], names: list[str]) -> str:
        live = "/state?" + "&".join(f"run={quote(name, safe='')}" for name in names)
        state = self._state(runs, names)
        return self._once(("page", *names), state, lambda: render([collect(runs[n], n) for n in names], live=live))

    def _gallery(self, runs: dict[str, Path]) -> str:
        cards = []
        for name, path in runs.items():
            make = _card_maker(name, path)
            cards.append(self._once(("card", name), state_of(path), make) | {"address": f"/run/{quote(name)}"})
        title = f"{counted(len(cards), 'run')} in {self.root.resolve().name}"
        live = "/state"
        return str(template("gallery.html").render(title=title, cards=cards, live=live, **frame_values(live)))

    def _once(self, key: tuple[str, ...], state: str, make: Callable[[], Any]) -> Any:
        with self._lock:
            found = self._made.get(key)
            if found is None or found[0] != state:
                found = (state, make())
                self._made[key] = found
            self._made.move_to_end(key)
            pages = [other for other in self._made if other[0] == "page"]
            if len(pages) > _KEPT:
                del self._made[pages[0]]
            return found[1]


def _card_maker(name: str, path: Path) -> Callable[[], dict[str, Any]]:
    def make() -> dict[str, Any]:
        try:
            return card(name, collect(path, name))
        except EcholessError as error:
            blank: dict[str, Any] = {"headline": "", "share": None, "loss": "", "spark": "", "numbers": []}
            return {"name": name, "status": str(error), **blank}

    return make


def _page(text: str) -> Answer:
    return Answer(HTTPStatus.OK, "text/html", text)


def _refusal(why: str, status: HTTPStatus = HTTPStatus.NOT_FOUND) -> Answer:
    return Answer(status, "text/plain", f"{why}\n")


class Server(ThreadingHTTPServer):
    """Bound to 127.0.0.1; it does not answer before `serve_forever`."""

    daemon_threads = True

    def __init__(self, library: Library, port: int) -> None:
        self.library = library
        super().__init__((ADDRESS, port), Handler)


class Handler(BaseHTTPRequestHandler):
    """GET and HEAD; every other method is refused by the standard library."""

    server: Server
    server_version, sys_version = "echoless", ""
    timeout = 30

    def do_GET(self) -> None:
        self._send(self._answer())

    def do_HEAD(self) -> None:
        self._send(self._answer())

    def _answer(self) -> Answer:
        allowed = [[f"{name}:{self.server.server_port}"] for name in (ADDRESS, "localhost")]
        if self.headers.get_all("Host") not in allowed:  # a second one is refused: RFC 9112, section 3.2
            return _refusal(f"this server answers only requests to {ADDRESS}", HTTPStatus.FORBIDDEN)
        try:
            return self.server.library.answer(self.path)
        except Exception as error:
            # One run that cannot be shown must not end the watching of the others.
            return _refusal(f"this cannot be shown: {error}", HTTPStatus.INTERNAL_SERVER_ERROR)

    def _send(self, answer: Answer) -> None:
        body = answer.text.encode(errors="replace")
        self.send_response(answer.status)
        self.send_header("Content-Type", f"{answer.kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        try:
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
        except ConnectionError:  # the reader went away
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged; the terminal shows the address only."""


def make_server(root: Path, port: int) -> Server:
    """Port 0 takes any free port."""
    if not 0 <= port <= 65535:
        raise ConfigError(f"port is {port}; allowed: 0 (any) to 65535")
    library = Library(root)
    try:
        return Server(library, port)
    except OSError as error:
        raise RunError(f"port {port} cannot be used: {error.strerror or error}; give another --port") from None


def serve(root: Path, port: int, say: Callable[[str], None] = print) -> None:
    """Until Ctrl-C."""
    server = make_server(root, port)
    try:
        count = len(find_runs(root))
        does = f"shows {counted(count, 'run')} of" if count else "waits for the first run in"
        say(f"http://{ADDRESS}:{server.server_port}/ {does} {root}; stop with Ctrl-C")
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        say("stopped")
    finally:
        server.server_close()
