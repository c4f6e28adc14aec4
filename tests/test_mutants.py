"""The mutation runner of tools/mutants: what it changes, what it leaves alone, what it draws, and that it tells a test
that notices from one that does not.

Run alone: pytest tests/test_mutants.py
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from mutants import equivalent
from mutants.draw import LEAST, draw
from mutants.lines import Lines, candidates, digest
from mutants.mutant import Mutant, read_sources
from mutants.named import NAMED, named_mutants
from mutants.rules import mutants_of
from mutants.table import table

ROOT = Path(__file__).resolve().parent.parent

CHANGED = {
    "x = a < b": {"x = (a <= b)"},
    "x = a == b": {"x = (a != b)"},
    "x = a is None": {"x = (a is not None)"},
    "x = a - b": {"x = (a + b)"},
    "x = a and b": {"x = (a or b)"},
    "x = not a": {"x = (a)"},
    "x = 3": {"x = 4"},
    "x = 0.5": {"x = 1.0"},
    "x = True": {"x = False"},
    "x = a.min()": {"x = a.max()"},
    "f(a, b)": {"pass", "f(b, a)"},
    "x = f(a, k=b)": {"x = f(a)"},
    "x += a": {"pass", "x -= a"},
    "if a: pass": {"if not a: pass"},
    "raise ValueError(f'{a + 1}')": {"pass"},
}


@pytest.mark.parametrize("line", CHANGED)
def test_every_rule_makes_its_change_and_nothing_else(line):
    source = line.encode()
    mutants = mutants_of("data/x.py", source)
    assert {mutant.applied(source).decode() for mutant in mutants} == CHANGED[line]
    assert all(mutant.before == line and mutant.line == 1 for mutant in mutants)


@pytest.mark.parametrize(
    "text",
    [
        '"""A docstring of 3 lines < 4."""',
        "x: Literal[3]",
        "def f(a: Annotated[int, 3]) -> Array[3]: ...",
        "say(f'{a + 1} of {b}')",
        "assert a < 3",
        "@dataclass(frozen=True)\nclass A: ...",
        "def __repr__(self): return a + 1",
        "from a import b",
        "x = min(a, b)",
        "__all__ = [3]",
    ],
)
def test_what_no_behaviour_hangs_on_is_left_alone(text):
    mutants = mutants_of("data/x.py", text.encode())
    assert {mutant.rule for mutant in mutants} <= {"opposite function"}


def test_mutants_of_real_source_are_python_and_name_the_line_that_differs():
    source = (ROOT / "src" / "echoless" / "measures" / "segmentation.py").read_bytes()
    mutants = mutants_of("measures/segmentation.py", source)
    assert len(mutants) > 50
    for mutant in mutants:
        changed = mutant.applied(source)
        ast.parse(changed)
        pairs = list(zip(source.decode().splitlines(), changed.decode().splitlines()))
        row = next(row for row, (before, after) in enumerate(pairs) if before != after)
        assert (mutant.line, mutant.before, mutant.after) == (row + 1, *(text.strip() for text in pairs[row]))


def test_every_package_has_its_share_and_a_larger_sample_holds_the_smaller():
    sizes = {f"package{number:02d}": 10 * (number + 1) for number in range(12)}
    sources = {f"{name}/x.py": b"x = a < b\n" * size for name, size in sizes.items()} | {"y.py": b"x = 3\n" * 9}
    small, large, other = draw(sources, 100, 0), draw(sources, 300, 0), draw(sources, 100, 1)
    found = [mutant.package for mutant in small]
    assert all(found.count(name) >= LEAST for name in [*sizes, "echoless"])
    assert abs(found.count("package11") / found.count("package05") - 2) < 0.5, "a share is that of the lines"
    assert set(small) < set(large) and len(set(small) & set(other)) < len(small) / 2
    assert draw(sources, 100, 0) == small
    assert len({mutant.package for mutant in small[:40]}) > 10, "the beginning is a sample of all packages too"


SOURCE = b"""\
def rare(a):
    if a > 3:
        return a + 1
    return 0
"""


def test_new_tests_of_the_function_come_first_then_those_that_take_a_rare_branch(tmp_path):
    (tmp_path / "tests").mkdir()
    for name in ("x", "new"):
        text = f"from echoless.data.x import rare\ndef test_{name}():\n    assert rare(1) == 0\n"
        (tmp_path / "tests" / f"test_{name}.py").write_text(text)
    common = [f"tests/test_x.py::test_common[{i}]" for i in range(20)]
    seconds = {"tests/test_x.py::test_slow_and_rare": 9.0} | dict.fromkeys(common, 0.1)
    sets = [sorted(seconds), ["tests/test_x.py::test_slow_and_rare"]]
    known = {"digest": digest(SOURCE), "lines": {"2": 0, "3": 1, "4": 0}, "functions": {"rare": 0}}
    mutant = next(m for m in mutants_of("data/x.py", SOURCE) if m.rule == "comparison")
    found = candidates(mutant, Lines(seconds, {"data/x.py": known}, sets), {"data/x.py": SOURCE}, tmp_path)
    new = ["tests/test_x.py::test_x", "tests/test_new.py::test_new"]
    assert found[:3] == [*new, "tests/test_x.py::test_slow_and_rare"]
    assert set(found[3:]) == set(common)


def test_the_table_counts_by_package_and_leaves_equivalent_mutants_out(monkeypatch):
    base = {"rule": "constant", "line": 1, "before": "x = 1", "after": "x = 2", "promise": "", "tests": 3}
    records = [
        {**base, "file": "data/a.py", "noticed": True, "how": "tests/test_a.py::test_a"},
        {**base, "file": "data/b.py", "noticed": False, "how": "survived"},
        {**base, "file": "runs/c.py", "noticed": False, "how": "not executed"},
        {**base, "file": "runs/d.py", "noticed": False, "how": "survived"},
    ]
    monkeypatch.setitem(equivalent.EQUIVALENT, ("runs/d.py", "x = 1", "x = 2"), "nobody reads x")
    lines = table(records).splitlines()
    figures = {line.split()[0]: line.split()[1:] for line in lines if line.endswith("%")}
    assert figures["data"] == ["1", "2", "50.0", "%"] and figures["all"] == ["1", "3", "33.3", "%"]
    assert any("runs/c.py:1 (no test executes it)" in line for line in lines)
    assert lines[-1].strip() == "because nobody reads x"


SCRIPT = """
import json, sys
from pathlib import Path
from mutants.mutant import read_sources
from mutants.rules import mutants_of
from mutants.work import Tree
root = Path(sys.argv[1])
source = read_sources(root)["x.py"]
tree = Tree(root, root / ".mutants" / "tree-0")
outcomes = {m.after: tree.try_out(m, ["tests/test_x.py"], 1.0) for m in mutants_of("x.py", source)}
print(json.dumps({after: [outcome.noticed, outcome.how] for after, outcome in outcomes.items()}))
"""


def test_a_change_is_made_in_a_copy_noticed_by_the_test_that_fails_and_taken_back(tmp_path):
    (tmp_path / "src" / "echoless").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (tmp_path / "src" / "echoless" / "__init__.py").touch()
    (tmp_path / "src" / "echoless" / "x.py").write_text("def f(a):\n    return a < 3\n")
    (tmp_path / "tests" / "test_x.py").write_text(
        "from echoless.x import f\ndef test_low():\n    assert f(0)\ndef test_three():\n    assert not f(3)\n"
    )
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        capture_output=True, text=True, env={"PYTHONPATH": str(ROOT / "tools"), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert json.loads(done.stdout) == {
        "return (a <= 3)": [True, "tests/test_x.py::test_three"],
        "return a < 4": [True, "tests/test_x.py::test_three"],
    }, done.stderr
    assert (tmp_path / "src" / "echoless" / "x.py").read_text() == "def f(a):\n    return a < 3\n"
    copy = tmp_path / ".mutants" / "tree-0" / "src" / "echoless" / "x.py"
    assert copy.read_text() == (tmp_path / "src" / "echoless" / "x.py").read_text()


def test_every_named_mistake_still_fits_the_source_and_its_guard_exists():
    assert len(named_mutants(read_sources(ROOT), ROOT)) == len(NAMED) > 90


def test_a_mutant_is_named_by_its_place_and_its_text():
    one = Mutant("a.py", "constant", 1, 4, 5, "2", "x = 1", "x = 2")
    assert one.id == Mutant("a.py", "constant", 1, 4, 5, "2", "x = 1", "x = 2", "a promise").id
    assert one.id != Mutant("a.py", "constant", 1, 4, 5, "3", "x = 1", "x = 3").id
