"""What share of the mutants was noticed? By package, and the list of those that were not."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from mutants.equivalent import EQUIVALENT
from mutants.mutant import package_of

Record = dict[str, Any]


def read_results(path: Path) -> dict[str, Record]:
    """The newest outcome of each mutant, by its id."""
    if not path.exists():
        return {}
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return {record["id"]: record for record in records}


def table(records: list[Record]) -> str:
    same = [record for record in records if not record["noticed"] and _reason(record)]
    judged = [record for record in records if record not in same]
    unnoticed = [record for record in judged if not record["noticed"]]
    parts = [_figures(judged)]
    if unnoticed:
        parts += ["not noticed:", *map(_shown, unnoticed)]
    if same:
        parts += [
            "equivalent, not counted:",
            *(f"{_shown(record)}\n      because {_reason(record)}" for record in same),
        ]
    return "\n".join(parts)


def _figures(records: list[Record]) -> str:
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        groups["named" if record["rule"] == "named" else package_of(record["file"])].append(record)
    drawn = [record for record in records if record["rule"] != "named"]
    rows = [*sorted(groups.items()), ("drawn, all packages", drawn), ("all", records)]
    lines = [f"{'':20}  noticed   all  share"]
    for name, members in rows:
        count = sum(record["noticed"] for record in members)
        share = f"{100 * count / len(members):5.1f}" if members else "    -"
        lines.append(f"{name:20}  {count:7}  {len(members):4}  {share} %")
    slow = sum(record["how"] == "timeout" for record in records)
    return "\n".join([*lines, f"(noticed by a timeout: {slow})", ""])


def _shown(record: Record) -> str:
    why = "no test executes it" if record["how"] == "not executed" else f"{record['rule']}, {record['tests']} tests"
    promise = f"\n      promise: {record['promise']}" if record["promise"] else ""
    place = f"  src/echoless/{record['file']}:{record['line']} ({why})"
    return f"{place}\n      - {record['before']}\n      + {record['after']}{promise}"


def _reason(record: Record) -> str | None:
    return EQUIVALENT.get((record["file"], record["before"], record["after"]))
