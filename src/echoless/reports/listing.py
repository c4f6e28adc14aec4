"""Which runs are in a folder, how far is each, and which is best? One row per run, for a terminal and for programs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from echoless.config.counts import first_of
from echoless.config.headline import (
    ONLY_SEEN,
    RULE,
    comparable,
    evaluations,
    only_seen,
    sets_of,
    side_by_side,
    strength,
    told_apart,
)
from echoless.config.metrics import METRICS, NAMES_OF_SETS, Metric, interval_text, number
from echoless.config.tables import aligned, wrapped
from echoless.errors import RunError
from echoless.reports.collect import RunData, collect, looks_like_a_run
from echoless.reports.facts import headline, status
from echoless.reports.gallery import find_runs

_NAMED = 5  # runs that are left out of a ranking
_NO_TEST = "no test"  # in the place of a number
SHOWN = 2  # numbers of a run, the most important that were measured
# What a run has of its own: numbers that differ in these alone are ranked together.
_OF_THE_RUN = ("features", "checkpoint", "layer", "layers", "pooling", "seed", "steps_done", "recipe", "epochs")


@dataclass(frozen=True, kw_only=True)
class ListedRun:
    """A run as a row of a table."""

    name: str
    path: str
    status: str
    recipe: str
    shortcuts: str
    seed: int | None
    bytes: int
    started: str  # as about.json has it, or nothing
    metrics: dict[str, Metric]
    no_test: tuple[str, ...] = ()  # metrics that were measured only on images that training has seen
    evaluations: int = 1  # in which one metric was measured: the numbers are of one of them
    rank: int | None = None  # 1 is the best; None where runs are only listed
    how: str = ""  # the protocol that the runs of a ranking share


class Listing(list[ListedRun]):
    """Prints as a table, in a terminal and in a notebook. `title` is said where there is no row, `note` below them."""

    def __init__(
        self, rows: Iterable[ListedRun], title: str = "no run found", numbers: Sequence[str] = (), note: str = ""
    ) -> None:
        super().__init__(rows)
        self.title, self.numbers, self.note = title, tuple(numbers), note

    def without_entries(self) -> Listing:
        return Listing([], "nothing was removed")

    def __str__(self) -> str:
        if not self:
            return self.title
        parts, marks = [], self._marks()
        for how in dict.fromkeys(row.how for row in self):
            lines = [self._header(), *(self._cells(row, marks) for row in self if row.how == how)]
            parts.append("\n".join([*wrapped(how), aligned(lines)]))
        legend = "\n".join(line for each in self._legend() for line in wrapped(each))
        return "\n\n".join([*parts, *([legend] if legend else [])])

    def _repr_html_(self) -> str:
        marks = self._marks()
        rows = [self._header(), *(self._cells(row, marks) for row in self)]
        cells = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
        legend = "".join(f"<p>{escape(line)}</p>" for line in self._legend())
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>{legend}"

    def _evaluations(self) -> list[list[Metric]]:
        """The shown numbers by images and labels; nothing in a ranking, which is of one set and names it."""
        shown = [metric for row in self for name in self.numbers if (metric := row.metrics.get(name)) is not None]
        return [] if self._ranks else evaluations(shown)

    def _marks(self) -> dict[int, str]:
        """What stands behind the numbers where they are of several sets: nobody compares those unknowingly."""
        found = self._evaluations()
        return {id(m): f" ({place})" for place, each in enumerate(found, 1) for m in each} if len(found) > 1 else {}

    def _legend(self) -> list[str]:
        marked = any(name in row.no_test for row in self for name in self.numbers)
        seen = [f"{_NO_TEST}: {ONLY_SEEN}; echoless runs results RUN has the numbers"] if marked else []
        return [*self._of_which_sets(), *seen, *([self.note] if self.note else [])]

    def _of_which_sets(self) -> list[str]:
        firsts = [each[0] for each in self._evaluations()]
        names = told_apart(firsts, [sets_of(metric) for metric in firsts])
        said = [f"({place}) {name or 'sets that were not recorded'}" for place, name in enumerate(names, 1)]
        if not any(row.evaluations > 1 for row in self) or not firsts:
            return said if len(firsts) > 1 else []
        if len(firsts) == 1:
            said = [f"measured with {names[0] or 'sets that were not recorded'}, n {firsts[0].n}"]
        shared = "the one that most of these runs share, then " if len(self) > 1 else ""
        return [*said, f"a run with several evaluations shows {shared}{RULE}; echoless runs results RUN lists all"]

    def _header(self) -> list[str]:
        titles = [METRICS[name].short if name in METRICS else name for name in self.numbers]
        if self._ranks:
            return ["rank", "run", "shortcuts", "seed", *titles, "layer", "status"]
        return ["run", "recipe", "shortcuts", "seed", *titles, "size", "started", "status"]

    def _cells(self, row: ListedRun, marks: Mapping[int, str]) -> list[str]:
        """A ranking has intervals, and the layer that was measured; a list, the space that a run takes."""
        seed = "" if row.seed is None else str(row.seed)
        found = [row.metrics.get(name) for name in self.numbers]
        absent = [_NO_TEST if name in row.no_test else "" for name in self.numbers]
        numbers = [mark if m is None else number(m) + marks.get(id(m), "") for m, mark in zip(found, absent)]
        if self._ranks and (metric := found[0]) is not None:
            numbers = [number(metric) + interval_text(metric), str(metric.protocol.get("layer", ""))]
            return [str(row.rank), row.name, row.shortcuts, seed, *numbers, row.status]
        size, day = f"{row.bytes / 1e6:.1f} MB", row.started[:10]
        return [row.name, row.recipe, row.shortcuts, seed, *numbers, size, day, row.status]

    @property
    def _ranks(self) -> bool:
        return any(row.rank is not None for row in self)


def list_folders(folders: Sequence[Path]) -> Listing:
    """Every run below the folders, by name."""
    found = _find(folders)
    rows = _rows(found)
    tested = [name for name in METRICS if any(name in row.metrics for row in rows)]
    seen = [name for name in METRICS if name not in tested and any(name in row.no_test for row in rows)]
    places = ", ".join(map(str, folders))
    shown = (*tested, *seen)[:SHOWN]  # a number that counts is never hidden behind one that does not
    return Listing(rows, _no_run_in(places), [name for name in METRICS if name in shown])


def _no_run_in(places: str) -> str:
    return f"no run in {places}; echoless pretrain DATA --out RUN makes one"


def listed(paths: Sequence[Path]) -> Listing:
    """The runs at exactly these paths; a folder that only contains runs is refused."""
    for path in paths:
        if not looks_like_a_run(path):
            raise RunError(f"{path} is not a run; give the runs themselves")
    runs = {str(path): collect(path) for path in paths}
    return Listing(_rows(runs))


def best_runs(folders: Sequence[Path], metric: str) -> Listing:
    """Runs by a metric, the best first; numbers of other images or protocols are ranked apart."""
    found: dict[str, list[tuple[str, RunData, Metric]]] = {}
    runs = _find(folders)
    for name, run in runs.items():
        for each in run.results:
            if each.metric == metric and comparable(each):
                found.setdefault(_shared(each), []).append((name, run, each))
    rankings = sorted(found.values(), key=_weight, reverse=True)
    firsts = [ranking[0][2] for ranking in rankings]
    titles = told_apart(firsts, [_protocol(first) for first in firsts])
    rows = [row for title, ranking in zip(titles, rankings) for row in _ranked(f"{metric}: {title}", ranking)]
    seen = [name for name, run in runs.items() if metric in only_seen(run.results)]
    note = f"left out, {ONLY_SEEN}: {first_of(seen, _NAMED)}" if seen else ""
    places = ", ".join(map(str, folders))
    nothing = _nothing_ranked(places, metric, runs.values(), note) if runs else _no_run_in(places)
    return Listing(rows, nothing, [metric], note)


def _nothing_ranked(places: str, metric: str, runs: Iterable[RunData], note: str) -> str:
    measured = {each.metric for run in runs for each in run.results if comparable(each)}
    others = [name for name in METRICS if name in measured]
    there = [note] if note else [f"measured there: {', '.join(others)}"] if others else []
    return "; ".join([f"no run below {places} has a measured {metric}{' that is a test' if note else ''}", *there])


def _protocol(metric: Metric) -> dict[str, Any]:
    """What the runs of its ranking share."""
    return {name: value for name, value in metric.protocol.items() if name not in _OF_THE_RUN}


def _weight(ranking: list[tuple[str, RunData, Metric]]) -> tuple[bool, int, float, int]:
    """Its strongest number, then its newest: a record has no time, but its file has; in a file the newest is last."""
    newest = max((_changed(run.path / "results.json"), run.results.index(metric)) for _, run, metric in ranking)
    _, tested, images = max(strength(metric) for *_, metric in ranking)
    return tested, images, *newest


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:  # it is being replaced
        return 0.0


def _ranked(how: str, ranking: list[tuple[str, RunData, Metric]]) -> list[ListedRun]:
    sign = ranking[0][2].info.better or 1
    ranking.sort(key=lambda item: -sign * item[2].value)
    return [
        _row(name, run, {found.metric: found}, rank=place + 1, how=how)
        for place, (name, run, found) in enumerate(ranking)
    ]


def _shared(metric: Metric) -> str:
    """The protocol as text, without what differs between runs; sets are told by their fingerprints."""
    left_out = (*_OF_THE_RUN, *NAMES_OF_SETS)
    return repr(sorted((name, repr(value)) for name, value in metric.protocol.items() if name not in left_out))


def _find(folders: Sequence[Path]) -> dict[str, RunData]:
    found: dict[str, RunData] = {}
    for folder in folders:
        for name, path in find_runs(folder).items():
            found[name if len(folders) == 1 else str(path)] = collect(path, name)
    return found


def _rows(runs: Mapping[str, RunData]) -> list[ListedRun]:
    numbers = side_by_side([run.results for run in runs.values()])
    return [
        _row(name, run, shown, evaluations=_count_evaluations(run)) for (name, run), shown in zip(runs.items(), numbers)
    ]


def _count_evaluations(run: RunData) -> int:
    """The most in which any one metric was measured; one may be of other images than another by its nature."""
    found: dict[str, list[Metric]] = {}
    for metric in filter(comparable, run.results):
        found.setdefault(metric.metric, []).append(metric)
    return max((len(evaluations(same)) for same in found.values()), default=0)


def _row(name: str, run: RunData, metrics: dict[str, Metric], **more: Any) -> ListedRun:
    started = run.about.get("started")
    return ListedRun(
        name=name,
        path=str(run.path),
        status=status(run),
        recipe=str(run.config.get("recipe", "")),
        shortcuts=headline(run),
        seed=run.seed if isinstance(run.seed, int) else None,
        bytes=_size(run.path),
        started=started if isinstance(started, str) else "",
        metrics=metrics,
        no_test=only_seen(run.results),
        **more,
    )


def _size(folder: Path) -> int:
    """Bytes on the disk, links not followed."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118
            except OSError:  # it is being replaced
                continue
    return total
