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
    guard: str = field(default="", compare=False)  # the test that is tried first

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


def make_mutant(
    file: str, source: bytes, start: int, end: int, new: str, rule: str, promise: str = "", guard: str = ""
) -> Mutant:
    """Its line is the first one that differs."""
    old, text = source[start:end], new.encode()
    same = next((i for i, (one, other) in enumerate(zip(old, text)) if one != other), min(len(old), len(text)))
    first = source.rfind(b"\n", 0, start + same) + 1
    before = source[first:].split(b"\n", 1)[0]
    after = (source[first:start] + text[max(0, first - start) :] + source[end:]).split(b"\n", 1)[0]
    line = source.count(b"\n", 0, first) + 1
    shown = before.decode().strip(), after.decode().strip()
    return Mutant(file, rule, line, start, end, new, *shown, promise, guard)


def read_sources(root: Path) -> dict[str, bytes]:
    """Every source file of the package, by its path relative to it."""
    package = root / "src" / "echoless"
    return {path.relative_to(package).as_posix(): path.read_bytes() for path in sorted(package.rglob("*.py"))}
