"""Which shortcuts were faded, and which additions were not and why, as a table and as a small JSON file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from itertools import accumulate
from operator import mul
from pathlib import Path
from typing import Any

FORMAT = "echoless shortcuts 1"


@dataclass(frozen=True)
class FadedShortcut:
    """One addition `identity + branch`, now `alpha * identity + branch`."""

    where: str  # module
    add: str  # the addition, as its author wrote it
    identity: str  # the operand that is faded
    kind: str  # "attention" or "mlp"
    alpha: float


@dataclass(frozen=True)
class LeftAlone:
    """Additions that are not faded, all for the same reason."""

    where: str  # the first module
    add: str
    reason: str
    count: int = 1


@dataclass(frozen=True)
class FadeReport:
    """Result of `fade`: printed, a table; `save` writes the alphas to a JSON file, to be kept with the weights."""

    model: str
    shortcuts: tuple[FadedShortcut, ...]
    left_alone: tuple[LeftAlone, ...]
    rule: str
    within: tuple[str, ...] | None = None
    include: tuple[str, ...] = ()
    zeroed: tuple[str, ...] = ()
    not_zeroed: tuple[str, ...] = ()
    proposed: bool = False  # of `inspect`: what `fade` would do to a model that is not faded

    @property
    def alphas(self) -> tuple[float, ...]:
        """One per shortcut, in order of execution."""
        return tuple(shortcut.alpha for shortcut in self.shortcuts)

    @property
    def effective_alpha(self) -> float:
        return math.prod(self.alphas)

    def record(self) -> dict[str, Any]:
        """What must be known to fade the same model again, as JSON values."""
        return {
            "format": FORMAT,
            "model": self.model,
            "within": None if self.within is None else list(self.within),
            "include": list(self.include),
            "shortcuts": [asdict(item) for item in self.shortcuts],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the alphas as JSON, atomically: the file appears complete or not at all."""
        target = at_home(path)
        partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
        with partial.open("w", encoding="utf-8") as file:
            file.write(json.dumps(self.record(), indent=1, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)

    def _repr_html_(self) -> str:
        """The same table in a notebook."""
        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        products = accumulate(self.alphas, mul)
        rows = [
            (
                s.where or "(the model)",
                _short(s.add),
                _short(s.identity, 24),
                s.kind,
                f"{s.alpha:.4f}",
                f"{product:.3g}",
            )
            for s, product in zip(self.shortcuts, products)
        ]
        faded = "would be faded" if self.proposed else "faded"
        others = sum(other.count for other in self.left_alone)
        beside = f", {_counted(others, 'addition')} left alone" if others else ""
        head = f"{self.model}: {_counted(len(self.shortcuts), 'shortcut')} {faded}{beside}. {self.rule}"
        parts = [
            head.rstrip(),
            table(("where", "addition", "identity", "branch", "alpha", "product"), rows),
        ]
        if self.left_alone:
            left = [(o.where or "(the model)", _short(o.add), str(o.count), o.reason) for o in self.left_alone]
            parts.append("Left alone:\n" + table(("first in", "addition", "times", "because"), left))
        if self.zeroed:
            parts.append("Zero-initialised: " + ", ".join(self.zeroed))
        if self.not_zeroed:
            parts.append("Not zero-initialised: " + "; ".join(self.not_zeroed))
        return "\n\n".join(parts)


@dataclass(frozen=True)
class Saved:
    """Content of a file written by `FadeReport.save`."""

    model: str
    shortcuts: tuple[FadedShortcut, ...]
    within: tuple[str, ...] | None
    include: tuple[str, ...]


def at_home(path: str | os.PathLike[str]) -> Path:
    """With the user's home for `~` at its beginning, which no shell has seen."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 (the name of a user who does not exist stays)


def parse_record(text: str, name: str) -> Saved:
    """The JSON of a `FadeReport`, checked field by field."""
    try:
        record = json.loads(text)
        if isinstance(record, dict) and "faded_shortcuts" in record:  # the config of a model
            record = record["faded_shortcuts"]
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise ValueError(f"its 'format' is not {FORMAT!r}")
        items = record.get("shortcuts")
        if not isinstance(items, list) or not items:
            raise ValueError("its 'shortcuts' is not a list with entries")
        within = None if record.get("within") is None else _strings(record, "within")
        shortcuts = tuple(_checked(item) for item in items)
        return Saved(str(record.get("model", "")), shortcuts, within, _strings(record, "include"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{name} is not a file written by FadeReport.save: {error}") from error


def _strings(record: dict[str, Any], name: str) -> tuple[str, ...]:
    values = record.get(name)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"its {name!r} is not a list of strings")
    return tuple(values)


def _checked(item: Any) -> FadedShortcut:
    texts = ("where", "add", "identity", "kind")
    if not isinstance(item, dict) or item.keys() != {*texts, "alpha"}:
        raise ValueError(f"a shortcut has the fields {', '.join(texts)} and alpha")
    if not all(isinstance(item[name], str) for name in texts):
        raise ValueError(f"{', '.join(texts)} are strings")
    alpha = item["alpha"]
    if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha is {alpha!r}; allowed: a number in [0, 1]")
    return FadedShortcut(**{**item, "alpha": float(alpha)})


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _short(text: str, width: int = 52) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their longest cell, under a line."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in (header, *rows)]
    return "\n".join([lines[0], "-" * (sum(widths) + 2 * len(widths) - 2), *lines[1:]])
