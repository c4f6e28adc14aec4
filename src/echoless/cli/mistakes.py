"""Which argument is wrong? The first mistake, in one sentence, found by matching the words with the options.

Called only after the parser has refused the arguments: it writes the message and does not decide what is accepted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from echoless.config.checks import meant, nearest
from echoless.config.counts import joined
from echoless.config.options.fields import (
    allowed,
    choices,
    explanations,
    flag,
    is_required,
    members,
    positional,
    values_of,
    word,
)

PATTERNS = ("data", "train", "test", "probe_data")  # fields that take a pattern of files


def explain(options: type[Any], words: Sequence[str], prog: str, other_flags: Iterable[str] = ()) -> str:
    """The first mistake, with the help command to read."""
    help_page = f"see {prog} --help"
    walk = _Walk(options)
    walk.over(words)
    if walk.unknown is not None:
        if several := _expanded(walk):
            return several
        kind = "option" if _is_flag(walk.unknown) else "word"
        hint = _dashed(walk.unknown) or _elsewhere(options, walk.unknown)
        hint = hint or meant(walk.unknown, [*walk.flags, *other_flags])
        return f"unknown {kind} {walk.unknown!r}; {help_page}{hint}"
    for name, values in walk.given.items():
        if mistake := _mistake(walk.hints[name], walk.shown(name), values):
            return mistake if mistake.endswith("?") else f"{mistake}; {help_page}"
    recorded = {"resume", "config"} & walk.given.keys()  # then a run says which images it was trained on
    required = [
        field.name
        for field in walk.fields
        if is_required(field) or (not field.kw_only and field.default is None and not recorded)
    ]
    if missing := [name for name in required if name not in walk.given]:
        shown = joined([walk.shown(name) for name in missing])
        return f"{shown} {'is' if len(missing) == 1 else 'are'} missing{_meaning(walk, missing[0])}; {help_page}"
    return f"{' '.join(words)!r} cannot be read; {help_page}"


def _meaning(walk: _Walk, name: str) -> str:
    """What the words of a first argument mean, where it is one of a few words."""
    if name not in walk.positional or not choices(walk.hints[name]):
        return ""
    return f": {explanations(walk.options)[name].rstrip('.')}"


def _elsewhere(options: type[Any], typed: str) -> str:
    """How an option of another verb is given to this one."""
    known = {flag(name): how for name, how in getattr(options, "ELSEWHERE", ())}
    return f"; here it is {known[typed]}" if typed in known else ""


def _dashed(typed: str) -> str:
    """How a file name that begins with a dash is given."""
    if typed.startswith("--") or not typed.startswith("-") or not {".", "/"} & set(typed):
        return ""
    return f"; a value that begins with a dash is given as --OPTION={typed}, a path as ./{typed}"


def _expanded(walk: _Walk) -> str:
    """A sentence where a shell made several files of a pattern, and one DATA is expected."""
    name = next((name for name in PATTERNS if walk.before in walk.given.get(name, ())), None)
    before, unknown = Path(walk.before), Path(walk.unknown or "")
    if name is None or before.suffix != unknown.suffix or not (before.is_file() and unknown.is_file()):
        return ""
    pattern = _pattern_of([before, unknown, *map(Path, walk.following)])
    known = f": '{pattern}'" if pattern else ""
    return f"{walk.shown(name)} is several files; quote the pattern that names them, so that it stays one{known}"


def _pattern_of(files: Sequence[Path]) -> Path | None:
    """For files in one folder, or in sub-folders of one; None where they lie elsewhere."""
    suffixes, folders = {file.suffix for file in files}, {file.parent for file in files}
    names = f"*{suffixes.pop()}" if len(suffixes) == 1 else "*"
    if len(folders) == 1:
        return folders.pop() / names
    above = {folder.parent for folder in folders}
    return above.pop() / "*" / names if len(above) == 1 and not above & folders else None


class _Walk:
    """Which words belong to which field."""

    def __init__(self, options: type[Any]) -> None:
        self.options = options
        self.fields, self.hints = dataclasses.fields(options), get_type_hints(options)
        self.positional = positional(options)
        named = [field.name for field in self.fields if field.kw_only]
        self.flags = {flag(name): name for name in named}
        self.switches = {name for name in named if bool in members(self.hints[name])}
        self.flags |= {flag(f"no_{name}"): name for name in self.switches}
        self.given: dict[str, list[str]] = {}
        self.unknown: str | None = None
        self.before = ""  # the word before it
        self.following: list[str] = []  # the words behind it, up to the next option

    def shown(self, name: str) -> str:
        return word(name) if name in self.positional else flag(name)

    def over(self, words: Sequence[str]) -> None:
        rest = list(words)
        while rest and self.unknown is None:
            word = rest.pop(0)
            if _is_flag(word):
                self._take_flag(word, rest)
            else:
                self._take_word(word)
            if self.unknown is None:
                self.before = words[len(words) - len(rest) - 1]
        self.following = list(takewhile(lambda word: not _is_flag(word), rest))

    def _take_flag(self, word: str, rest: list[str]) -> None:
        typed, equals, value = word.partition("=")
        name = self.flags.get(typed.replace("_", "-"))
        if name is None:
            self.unknown = typed
            return
        values = [value] if equals else []
        most = 0 if name in self.switches else _most_values(self.hints[name])
        while rest and not _is_flag(rest[0]) and (most is None or len(values) < most):
            values.append(rest.pop(0))
        self.given[name] = values

    def _take_word(self, word: str) -> None:
        for name in self.positional:
            if name not in self.given or _most_values(self.hints[name]) is None:
                self.given.setdefault(name, []).append(word)
                return
        self.unknown = word


def _is_flag(word: str) -> bool:
    """`-1` is a number, `--steps` and `-x` are not."""
    return word.startswith("-") and len(word) > 1 and not _reads(float, word)


def _most_values(hint: Any) -> int | None:
    several = values_of(hint)
    return several[1] if several else 1


def _mistake(hint: Any, shown: str, values: list[str]) -> str | None:
    several = values_of(hint)
    one, count = several if several else (hint, 1)
    if bool in members(hint):
        return f"{shown} takes no value" if values else None
    if not values:
        return f"{shown} has no value"
    if count is not None and len(values) != count:
        return f"{shown} is {' '.join(values)!r}; allowed: {count} values, each {allowed(one)}"
    wrong = [value for value in values if not _reads(one, value)]
    if wrong:
        return f"{shown} is {wrong[0]!r}; allowed: {allowed(one)}{nearest(wrong[0], choices(one))}"
    return None


def _reads(hint: Any, word: str) -> bool:
    for part in members(hint):
        if get_origin(part) is Literal:
            if word in get_args(part):
                return True
        elif part in (int, float):
            try:
                part(word)
            except ValueError:
                continue
            return True
        elif part in (str, Path):
            return True
    return False
