"""What is in a page of the documentation? Its blocks of code, and what a test may do with them. Not a test itself.

A block is fenced, with its language, or indented by four spaces. `<!-- not run: REASON -->` above a block says that its
commands are only parsed, and why.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"])
REASONS = (
    "needs a GPU",
    "needs the network",
    "needs a published checkpoint",
    "needs a published data set",
    "installs",
    "a server that does not end",
    "takes minutes",
    "a benchmark",
)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_INDENTED = re.compile(r"(?:^\n|\A)((?:^    \S[^\n]*\n(?:^ *\n(?=    ))?)+)", re.M)
_NOTE = re.compile(r"<!-- not run: ([^>]*?) -->\s*\Z")


@dataclass(frozen=True)
class Block:
    page: str
    language: str  # bash, python, text
    text: str
    not_run: str = ""  # the reason

    @property
    def commands(self) -> list[list[str]]:
        """The words of every line that begins with `echoless`, without comments; a backslash continues a line."""
        return [shlex.split(line, comments=True) for line in self.lines if line.startswith("echoless ")]

    @property
    def lines(self) -> list[str]:
        """Of a block for the shell: what would be typed, without blank lines and comments."""
        lines = self.text.replace("\\\n", " ").splitlines() if self.language == "bash" else []
        return [line for line in lines if line.strip() and not line.startswith("#")]


def blocks_of(page: Path) -> list[Block]:
    text, found = page.read_text(), []
    for match in _FENCE.finditer(text):
        found.append((match.start(), match[1] or "text", match[2]))
    outside = _FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    for match in _INDENTED.finditer(outside):
        if not re.search(r"^(?:[-*]|\d+\.) [^\n]*\n\Z", outside[: match.start()] + "\n", re.M):
            found.append((match.start(1), "", re.sub(r"^    ", "", match[1], flags=re.M)))
    blocks = []
    for start, language, body in sorted(found):
        note = _NOTE.search(text[:start])
        blocks.append(Block(page.name, language or _guess(body), body, note[1] if note else ""))
    return blocks


def _guess(body: str) -> str:
    """Of an indented block: a command, Python, or what was printed."""
    if re.search(r"^(echoless|make|git|pip|torchrun|source|ECHOLESS_\w+=) ?", body, re.M):
        return "bash"
    return "python" if re.search(r"^(import|from) |echoless\.\w+\(", body, re.M) else "text"
