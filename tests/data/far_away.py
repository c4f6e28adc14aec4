"""Images on a web server on 127.0.0.1 that loses every tenth request. Not a test itself."""

from __future__ import annotations

import io
import re
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from PIL import Image

CLASSES = ("cat", "dog", "owl")


def pictures(count: int, size: int = 32, seed: int = 0) -> list[bytes]:
    """PNG files of noise."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        file = io.BytesIO()
        Image.fromarray(random.integers(0, 256, (size, size, 3), np.uint8)).save(file, "PNG")
        found.append(file.getvalue())
    return found


def as_parquet(images: list[bytes], names: list[str] | None = None) -> bytes:
    """In the layout of Hugging Face, with two row groups."""
    rows = [{"bytes": data, "path": names[i] if names else None} for i, data in enumerate(images)]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table({"image": pa.array(rows, kind), "label": [i % len(CLASSES) for i in range(len(images))]})
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink, row_group_size=max(1, len(images) // 2))
    return sink.getvalue().to_pybytes()


def as_tar(images: list[bytes], first: int = 0) -> bytes:
    """In the WebDataset convention."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for number, data in enumerate(images, start=first):
            for suffix, content in (("png", data), ("cls", str(number % len(CLASSES)).encode())):
                member = tarfile.TarInfo(f"{number:06d}.{suffix}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


class Server(ThreadingHTTPServer):
    """`files`: what it serves. `lost`: how many requests it dropped. `every`: it drops one of so many; 0: none."""

    daemon_threads = True
    every, requests, lost, ranges, status, marks = 0, 0, 0, True, 200, True
    credentials = ""  # the last that somebody sent

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files, self.turn = files, threading.Lock()
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is none."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Nobody listens."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        server, name = self.server, self.path.partition("?")[0].lstrip("/")
        with server.turn:
            server.requests += 1
            server.asked.append(f"{self.command} {self.path}")
            server.credentials = self.headers.get("Authorization") or server.credentials
            drop = server.every and server.requests % server.every == 0
            server.lost += bool(drop)
        if drop:
            self.close_connection = True
            self.connection.close()
            return
        if server.status != 200 or name not in server.files:
            self.send_response(server.status if server.status != 200 else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self._send(server.files[name], body)

    def _send(self, data: bytes, body: bool) -> None:
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        part = data[int(span[1]) : int(span[2]) + 1] if span and self.server.ranges else data
        self.send_response(206 if part is not data else 200)
        self.send_header("Content-Length", str(len(part)))
        if self.server.marks:
            self.send_header("ETag", f'"{hash(data)}"')
        self.end_headers()
        if body:
            self.wfile.write(part)


@contextmanager
def served(files: dict[str, bytes], **settings: object) -> Iterator[Server]:
    server = Server(files)
    for name, value in settings.items():
        setattr(server, name, value)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def in_memory(files: dict[str, bytes]) -> Iterator[str]:
    """The address of a folder in fsspec's memory."""
    import fsspec

    system = fsspec.filesystem("memory")
    for name, data in files.items():
        system.pipe_file(f"/far/{name}", data)
    try:
        yield "memory://far"
    finally:
        system.rm("/far", recursive=True)


def on_disk(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder
