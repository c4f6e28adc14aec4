"""Which evaluations does a run have? Its numbers, by the images and labels they were measured on.

A wrong one, such as one with wrong labels, can be removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from echoless.config.metrics import FINGERPRINTS, NAMES_OF_IMAGES, Metric, number
from echoless.config.tables import WIDTH, aligned, wrapped
from echoless.errors import ConfigError
from echoless.runs import RunFolder
from echoless.runs.folder import SET_ASIDE

_HEADER = ("number", "measured, newest of the trained features", "images", "labels", "n", "values")
# Of the images of an evaluation.
_NO_TEST = "no test: so many of its images are also in train, of the probe or, by label, of the encoder"


@dataclass(frozen=True, kw_only=True)
class ListedEvaluation:
    """Numbers that share their images and labels, and their place in the list, from 1 for the oldest."""

    number: int
    metrics: dict[str, str]  # the newest value of each
    images: str
    labels: str
    n: tuple[int, ...]
    values: int  # how many numbers

    @property
    def cells(self) -> list[str]:
        sizes = ", ".join(map(str, self.n))
        measured = ", ".join(f"{name} {value}".strip() for name, value in self.metrics.items())
        return [str(self.number), measured, self.images, self.labels, sizes, str(self.values)]


class Evaluations(list[ListedEvaluation]):
    """Prints as a table, in a terminal and in a notebook. `title` is said where there is no row, `notes` below them."""

    def __init__(self, rows: Iterable[ListedEvaluation], title: str, notes: Sequence[str] = ()) -> None:
        super().__init__(rows)
        self.title, self.notes = title, tuple(notes)

    def __str__(self) -> str:
        shown = aligned([_HEADER, *(row.cells for row in self)], WIDTH) if self else self.title
        below = "\n".join(line for note in self.notes for line in wrapped(note))
        return f"{shown}\n\n{below}" if below else shown

    def _repr_html_(self) -> str:
        rows = [_HEADER, *(row.cells for row in self)]
        cells = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>{notes}"


def evaluations_of(run: Path) -> Evaluations:
    """Every evaluation of a run; re-measured numbers are in one only, as results.json has them."""
    groups = _groups(RunFolder(run).read_results())
    rows = [_listed(number, records) for number, records in enumerate(groups, start=1)]
    notes = [_NO_TEST] if any(record["protocol"].get("overlap") for group in groups for record in group) else []
    if aside := sorted(file.name for file in run.glob(SET_ASIDE)):
        notes.append(f"numbers of earlier steps, set aside when the run was continued: {', '.join(aside)} in {run}")
    return Evaluations(rows, f"nothing has been measured in {run}; echoless evaluate {run} does", notes)


def remove_evaluations(run: Path, chosen: Sequence[ListedEvaluation]) -> None:
    """Their numbers are kept in RUN/results-removed.json alone. Refuses where others were measured since."""
    folder, numbers = RunFolder(run), {each.number for each in chosen}
    groups = dict(enumerate(_groups(folder.read_results()), start=1))
    if [_listed(each.number, groups.get(each.number, [])) for each in chosen] != list(chosen):
        raise ConfigError(f"the results of {run} have changed; list them again")
    folder.remove_results([record for number in sorted(numbers) for record in groups[number]])


def _groups(records: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        found.setdefault(repr([record["protocol"].get(name) for name in FINGERPRINTS]), []).append(record)
    return list(found.values())


def _listed(number: int, records: Sequence[Mapping[str, Any]]) -> ListedEvaluation:
    protocol = records[-1]["protocol"] if records else {}
    sets = ", ".join(f"{name} {protocol[name]}" for name in NAMES_OF_IMAGES if protocol.get(name))
    overlap = f" (no test: {protocol['overlap']} seen)" if protocol.get("overlap") else ""
    source = protocol.get("label_file") or protocol.get("labels", "labels")
    labels = f"{source} ({protocol['label_set']})" if protocol.get("label_set") else ""
    sizes = dict.fromkeys(record["n"] for record in records if isinstance(record.get("n"), int))
    return ListedEvaluation(
        number=number,
        metrics=_values(records),
        images=f"{sets}{overlap}",
        labels=labels,
        n=tuple(sizes),
        values=len(records),
    )


def _values(records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """By which people know an evaluation: of the trained features, not of a scan over layers or snapshots."""
    found = {record["metric"]: "" for record in records}
    for record in records:
        plain = record["protocol"].get("features", "trained") == "trained" and not {"scan", "step"} & {
            *record["protocol"]
        }
        if plain and isinstance(record["value"], int | float):
            found[record["metric"]] = number(Metric.from_json({"n": 0, **record}))
    return found
