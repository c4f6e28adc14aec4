"""Which tests should notice a change of this line? The map that `observe.py` leaves, and the choice of tests."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mutants.mutant import Mutant, package_of, read_sources

LIKELY, MOST_LIKELY = 4, 8  # points of an unmeasured test that is tried before the measured ones; how many of those


@dataclass
class Lines:
    """The map: seconds of every test, and for every file the tests of each line, as numbers of a shared table."""

    seconds: dict[str, float]
    files: dict[str, dict[str, dict[str, int]]]  # file -> "digest", and "lines" and "functions": place -> set of tests
    sets: list[list[str]]

    def cost(self, test: str) -> float:
        """Seconds; a test that was not measured counts as one of the usual kind."""
        return self.seconds.get(test, 1.0)

    def tests(self, file: str, kind: str, place: str) -> set[str]:
        number = self.files.get(file, {}).get(kind, {}).get(place)
        return set() if number is None else set(self.sets[number])


def write_digests(folder: Path, root: Path) -> None:
    """Before the tests run: which source the lines are lines of."""
    digests = {file: digest(source) for file, source in read_sources(root).items()}
    (folder / "digests.json").write_text(json.dumps(digests))


def collect(folder: Path, root: Path, path: Path) -> None:
    """Turn the records of a measured run into the map; tests of an earlier map that were not run again stay in it."""
    tests, of_fixture, seconds = _records(folder)
    digests = json.loads((folder / "digests.json").read_text())
    sources = read_sources(root)
    executed = _executed(folder, root / "src" / "echoless", tests, of_fixture)
    if path.exists():
        old = load(path)
        rerun = {test.split("::")[0] for test in tests}
        for file, source in sources.items():
            if old.files.get(file, {}).get("digest") == digests.get(file) == digest(source):
                for line, number in old.files[file]["lines"].items():
                    executed[file][int(line)] |= {t for t in old.sets[number] if t.split("::")[0] not in rerun}
        seconds = {t: s for t, s in old.seconds.items() if t.split("::")[0] not in rerun} | seconds
    _save(path, seconds, executed, sources, digests)


def load(path: Path) -> Lines:
    record = json.loads(path.read_text())
    return Lines(record["seconds"], record["files"], record["sets"])


def digest(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()[:16]


def _records(folder: Path) -> tuple[set[str], dict[str, set[str]], dict[str, float]]:
    """The tests that passed, the tests of each shared fixture, and what each test costs with its fixtures."""
    records = [json.loads(line) for file in folder.glob("tests-*.jsonl") for line in file.read_text().splitlines()]
    fixtures = {record["fixture"]: record["seconds"] for record in records if "fixture" in record}
    of_fixture: dict[str, set[str]] = defaultdict(set)
    seconds = {}
    for record in records:
        if record.get("passed"):
            test = record["test"]
            seconds[test] = record["seconds"] + sum(fixtures.get(key, 0.0) for key in record["fixtures"])
            for key in record["fixtures"]:
                of_fixture[key].add(test)
    return set(seconds), of_fixture, seconds


Executed = dict[str, dict[int, set[str]]]  # file -> line -> tests


def _executed(folder: Path, package: Path, tests: set[str], of_fixture: dict[str, set[str]]) -> Executed:
    import coverage.exceptions  # the map alone needs it

    executed: Executed = defaultdict(lambda: defaultdict(set))
    for file in folder.glob("data.*"):
        data = coverage.CoverageData(str(file))
        try:
            data.read()
        except coverage.exceptions.DataError:  # of a process that was ended while it was writing
            continue
        for measured in data.measured_files():
            name = Path(measured).relative_to(package).as_posix()
            for line, contexts in data.contexts_by_lineno(measured).items():
                for context in contexts:
                    executed[name][line] |= {context} & tests or of_fixture.get(context, set())
    return executed


def _save(
    path: Path, seconds: dict[str, float], executed: Executed, sources: dict[str, bytes], digests: dict[str, str]
) -> None:
    numbers: dict[tuple[str, ...], int] = {}

    def number(tests: Iterable[str]) -> int:
        return numbers.setdefault(tuple(sorted(tests)), len(numbers))

    files = {}
    for file, source in sources.items():
        functions: dict[str, set[str]] = defaultdict(set)
        for line, tests in executed[file].items():
            functions[_function_at(source, line)] |= tests
        files[file] = {
            "digest": digests.get(file, ""),
            "lines": {line: number(tests) for line, tests in executed[file].items() if tests},
            "functions": {name: number(tests) for name, tests in functions.items() if tests},
        }
    record = {"seconds": seconds, "files": files, "sets": [list(tests) for tests in numbers]}
    path.write_text(json.dumps(record))


# --- from a mutant to its tests ---


def candidates(mutant: Mutant, lines: Lines, sources: dict[str, bytes], root: Path) -> list[str]:
    """The tests that execute the changed statement, in the order in which they are tried; new ones by name."""
    source = sources[mutant.file]
    function = _function_at(source, mutant.line)
    if not function:
        found = _tests_of_module_level(mutant, lines, sources)
    elif lines.files.get(mutant.file, {}).get("digest") == digest(source):
        first, last = _statement_at(source, mutant.line)
        found = set().union(*(lines.tests(mutant.file, "lines", str(line)) for line in range(first, last + 1)))
    else:  # edited since the map was made
        found = lines.tests(mutant.file, "functions", function)
    rarity = _rarity(mutant, source, function, lines) if function else {}
    new = unmeasured(mutant, [function.split(".")[0]] if function else _names_at(source, mutant.line), lines, root)
    likely = [mutant.guard] if mutant.guard else []
    likely += [test for test, points in new if points >= LIKELY][:MOST_LIKELY]
    return likely + _in_order(found, mutant, lines, rarity) + [test for test, _ in new if test not in likely]


def _rarity(mutant: Mutant, source: bytes, function: str, lines: Lines) -> dict[str, int]:
    """How many digits the number of tests has that take the rarest branch of the function that a test takes."""
    rarest: dict[str, int] = {}
    for line in (line for line, name in _functions(source).items() if name == function):
        tests = lines.tests(mutant.file, "lines", str(line))
        for test in tests:
            rarest[test] = min(rarest.get(test, 10**9), len(tests))
    return {test: count.bit_length() for test, count in rarest.items()}


def unmeasured(mutant: Mutant, names: list[str], lines: Lines, root: Path) -> list[tuple[str, int]]:
    """Tests that are not in the map, with points for what speaks for them, most first: the test has one of the names,
    its file imports the module, is called after it, has one of the names, lies in the folder of the package."""
    module, stem = f"echoless.{mutant.file.removesuffix('.py').replace('/', '.')}", Path(mutant.file).stem
    named = re.compile(r"\b(?:" + "|".join(names) + r")\b" if names else r"(?!)")
    measured = {test.split("[")[0] for test in lines.seconds}
    found: list[tuple[int, str, int, str]] = []
    for path in sorted((root / "tests").rglob("test_*.py")):
        text = path.read_text()
        points = 2 * (module in text) + 2 * (stem in path.stem) + bool(named.search(text))
        points += path.parent.name == mutant.package
        for node in ast.parse(text).body if points else ():
            test = f"{path.relative_to(root)}::{getattr(node, 'name', '')}"
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and test not in measured:
                own = 4 * bool(named.search(ast.unparse(node)))
                found.append((-points - own, path.name, -node.lineno, test))  # the last of a file is the newest
    return [(test, -points) for points, _, _, test in sorted(found)]


def _tests_of_module_level(mutant: Mutant, lines: Lines, sources: dict[str, bytes]) -> set[str]:
    """A constant or a field acts where it is used: the tests of the lines that name it, of its file and its package."""
    names = _names_at(sources[mutant.file], mutant.line)
    pattern = re.compile(r"\b(?:" + "|".join(names) + r")\b") if names else None
    found: set[str] = set()
    for file, source in sources.items():
        if pattern and pattern.search(source.decode()):
            for row, text in enumerate(source.decode().split("\n"), start=1):
                if pattern.search(text) and _function_at(source, row):
                    found |= lines.tests(file, "lines", str(row))
    here = lines.files.get(mutant.file, {}).get("functions", {})
    found |= set().union(*(lines.tests(mutant.file, "functions", name) for name in here if name))
    return found | {test for test in lines.seconds if test.startswith(f"tests/{package_of(mutant.file)}/")}


def _in_order(tests: set[str], mutant: Mutant, lines: Lines, rarity: dict[str, int]) -> list[str]:
    """Tests that take a rare branch first, then fast ones, one case of every parametrised test before the second. The
    package's own tests take turns with the others, because they are the ones that were written for this code."""
    cases: dict[str, int] = defaultdict(int)
    own: list[tuple[int, int, float, str]] = []
    others: list[tuple[int, int, float, str]] = []
    for test in sorted(tests, key=lambda test: (lines.seconds[test], test)):
        function = test.split("[")[0]
        mine = test.startswith(f"tests/{mutant.package}/") or Path(mutant.file).stem in test.split("::")[0]
        (own if mine else others).append((rarity.get(test, 99), cases[function], lines.seconds[test], test))
        cases[function] += 1
    own, others = sorted(own), sorted(others)
    turns = [entry for pair in zip(own, others) for entry in pair]
    shorter = min(len(own), len(others))
    return [entry[-1] for entry in turns + own[shorter:] + others[shorter:]]


# --- places in a file ---


def _function_at(source: bytes, line: int) -> str:
    """Qualified name of the innermost function whose body holds the line; "" outside of functions."""
    return _functions(source).get(line, "")


_known_functions: dict[bytes, dict[int, str]] = {}


def _functions(source: bytes) -> dict[int, str]:
    if source not in _known_functions:
        found: dict[int, str] = {}

        def visit(node: ast.AST, prefix: str) -> None:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    name = f"{prefix}{child.name}"
                    if not isinstance(child, ast.ClassDef):
                        found.update(dict.fromkeys(range(child.body[0].lineno, (child.end_lineno or 0) + 1), name))
                    visit(child, f"{name}.")
                else:
                    visit(child, prefix)

        visit(ast.parse(source), "")
        _known_functions[source] = found
    return _known_functions[source]


def _statement_at(source: bytes, line: int) -> tuple[int, int]:
    """First and last line of the innermost statement; of a compound one, those of its head."""
    best = (line, line)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            body = getattr(node, "body", None)
            last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
            if node.lineno <= line <= last and node.lineno >= best[0] - 200:
                best = (node.lineno, last)
    return best


def _names_at(source: bytes, line: int) -> list[str]:
    """The names that a statement outside of functions assigns; for a field, its name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.lineno <= line <= (node.end_lineno or 0):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        if isinstance(node, ast.FunctionDef) and node.lineno <= line < node.body[0].lineno:
            return [node.name]  # a default of an argument
    return []
