"""What is a mutant? One span of one file, and the text that replaces it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """`start` and `end` count bytes; lines count from 1."""

    file: str  # relative to src/echoless
    rule: str
    line: int
    start: int
    end: int
    new: str
    before: str  # the first changed line, stripped
    after: str
    promise: str = field(default="", compare=False)

    @property
    def id(self) -> str:
        text = f"{self.file}\0{self.rule}\0{self.start}\0{self.end}\0{self.new}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def package(self) -> str:
        return package_of(self.file)

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]


def package_of(file: str) -> str:
    """The sub-package; the modules beside the sub-packages count as one."""
    return file.split("/")[0] if "/" in file else "echoless"


def make_mutant(file: str, source: bytes, start: int, end: int, new: str, rule: str, promise: str = "") -> Mutant:
    changed = source[:start] + new.encode() + source[end:]
    row = _first_difference(source, changed)
    before, after = (_line(text, row) for text in (source, changed))
    return Mutant(file, rule, row + 1, start, end, new, before, after, promise)


def read_sources(root: Path) -> dict[str, bytes]:
    """Every source file of the package, by its path relative to it."""
    package = root / "src" / "echoless"
    return {path.relative_to(package).as_posix(): path.read_bytes() for path in sorted(package.rglob("*.py"))}


def _first_difference(one: bytes, other: bytes) -> int:
    pairs = zip(one.split(b"\n"), other.split(b"\n"))
    return next((row for row, (mine, yours) in enumerate(pairs) if mine != yours), 0)


def _line(text: bytes, row: int) -> str:
    lines = text.split(b"\n")
    return lines[row].decode().strip() if row < len(lines) else ""
