"""Rules for the whole source: imports flow one way, dependencies are used, functions and files are short, class names
are unique, and every test asserts something.

Residual sums: test_residual_sums.py. Draws without a generator: test_randomness.py. Every rule that reads the syntax
tree is tried on planted code first.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "echoless"
FILES = {str(file.relative_to(SOURCE)): file.read_text() for file in sorted(SOURCE.rglob("*.py"))}

LEAVES = {"config", "data", "errors", "measures", "products", "randomness", "runs", "runtime", "storage"}
# What each package may import of ours; `errors` is open to all but `shortcuts`.
MAY_IMPORT = {
    "errors": set(),
    "shortcuts": set(),
    "randomness": set(),
    "storage": set(),
    "runtime": set(),
    "config": set(),
    "products": {"runtime"},
    "measures": {"products", "randomness"},
    "data": {"config", "randomness", "runtime", "storage"},
    "models": {"shortcuts", "config", "products", "randomness"},
    "runs": {"config", "models", "randomness", "shortcuts", "storage"},
    "objectives": {"models", "shortcuts", "config", "randomness"},
    "training": LEAVES | {"objectives", "models", "shortcuts"},
    "evaluation": LEAVES | {"objectives", "models", "shortcuts", "reports", "exchange"},
    "exchange": LEAVES | {"objectives", "models", "shortcuts"},
    "reports": LEAVES | {"models", "shortcuts"},
    "recipes": {"config"},
}
MAY_IMPORT["sweeps"] = set(MAY_IMPORT)
MAY_IMPORT["verbs"] = set(MAY_IMPORT)
MAY_IMPORT["cli"] = {"config", "verbs"}


def imports_of_ours(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] + [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("echoless.")}
    return found


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda file: str(file.relative_to(SOURCE)))
def test_imports_flow_one_way(file):
    package = file.relative_to(SOURCE).parts[0].removesuffix(".py")
    if package.startswith("__"):  # the package itself re-exports lazily
        return
    allowed = MAY_IMPORT[package] | {package} | (set() if package == "shortcuts" else {"errors"})
    assert imports_of_ours(file) & set(MAY_IMPORT) <= allowed


def modules_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_echoless_loads_neither_torch_nor_numpy():
    loaded = modules_after("import echoless, echoless.config")
    assert not loaded & {"torch", "numpy", "pyarrow", "rich", "tyro"}


def test_the_shortcuts_load_nothing_else_of_ours():
    loaded = {name for name in modules_after("import echoless.shortcuts") if name.startswith("echoless")}
    assert all(name == "echoless" or name.startswith("echoless.shortcuts") for name in loaded)


def test_nothing_of_torchvision_or_timm_is_imported_anywhere():
    loaded = modules_after("import echoless.models, echoless.objectives, echoless.exchange, echoless.shortcuts")
    assert not loaded & {"torchvision", "timm", "transformers", "diffusers", "sklearn", "scipy", "matplotlib"}


# --- dependencies ---

MODULE_OF = {
    "pillow": "PIL",
    "scikit-learn": "sklearn",
    "pytorch-optimizer": "pytorch_optimizer",
    "faiss-cpu": "faiss",
    "pillow-heif": "pillow_heif",
}
# Opened if the user has it; its wheel replaces a CPU build of torch, so that no extra may name it.
UNDECLARED = {"torchvision"}


@cache
def modules_imported(source: str) -> frozenset[str]:
    """Top-level packages that a file imports anywhere, also by a call with a literal in a file with `__import__`."""
    found = set()
    tree = ast.parse(source)
    by_name = any(isinstance(node, ast.Name) and node.id == "__import__" for node in ast.walk(tree))
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(str(module), level=0):
                found.add(module)
            case ast.Call(ast.Name(), [ast.Constant(str(name))]) if by_name and name.isidentifier():
                found.add(name)
    tensorboard = {"tensorboard"} if "torch.utils.tensorboard" in found else set()
    return frozenset({name.split(".")[0] for name in found} | tensorboard)


def declared() -> list[tuple[str, str]]:
    """(group, distribution) of the hard dependencies and of every extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"dependencies": project["dependencies"], **project["optional-dependencies"]}
    return [(group, re.split(r"[<>=\[ ]", line)[0]) for group, lines in groups.items() for line in lines]


@pytest.mark.parametrize(("group", "distribution"), declared())
def test_every_dependency_is_imported(group, distribution):
    module = MODULE_OF.get(distribution, distribution)
    assert any(module in modules_imported(text) for text in FILES.values())


def test_every_import_is_declared():
    imported = set().union(*map(modules_imported, FILES.values())) - set(sys.stdlib_module_names) - {"echoless"}
    assert imported - {MODULE_OF.get(name, name) for _, name in declared()} == UNDECLARED


def test_imports_are_recognised():
    assert modules_imported("def f():\n from webdataset.x import y\nimport a.b as c") == {"webdataset", "a"}
    assert modules_imported("g = lambda name: __import__(name)\ng('tifffile')") == {"tifffile"}
    assert not modules_imported("EXTRAS = ('webdataset',)\nprint('datasets')\nfrom . import sibling")


def test_the_choices_of_the_config_are_those_of_the_shortcuts():
    """They are written twice because config may not load torch."""
    from echoless.config import model
    from echoless.shortcuts.residual import Variant
    from echoless.shortcuts.schedule import Fade, Per, Schedule

    for ours, theirs in ((Variant, model.Variant), (Schedule, model.Schedule), (Per, model.Per), (Fade, model.Fade)):
        assert get_args(ours) == get_args(theirs) != ()


# --- modules that Windows does not have ---

POSIX_ONLY = {"fcntl", "grp", "pwd", "resource", "termios"}


def imported_at_the_top(tree: ast.AST) -> Iterator[str]:
    """Modules that are loaded with the file: imports outside functions, also under `if` and `try`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from imported_at_the_top(node)


def test_nothing_imports_posix_modules_at_the_top_of_a_file():
    assert "fcntl" in imported_at_the_top(ast.parse("try:\n import fcntl\nexcept ImportError:\n pass"))
    assert "resource" not in imported_at_the_top(ast.parse("def f():\n import resource"))
    assert not {name for name, text in FILES.items() if POSIX_ONLY & set(imported_at_the_top(ast.parse(text)))}


# --- lengths and names ---

LONGEST_FUNCTION, LONGEST_FILE = 50, 400  # lines; those of a function without its docstring


def function_lengths(source: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            docstring = 0 if ast.get_docstring(node) is None else first.end_lineno - first.lineno + 1
            yield node.name, node.end_lineno - node.lineno + 1 - docstring


def test_functions_are_short_enough_to_see_whole():
    planted = "\n".join(["def f():", '  """A', '  docstring."""', *["  pass"] * 50])
    assert dict(function_lengths(planted)) == {"f": 51}
    lengths = [(lines, name, function) for name, text in FILES.items() for function, lines in function_lengths(text)]
    assert not [entry for entry in lengths if entry[0] > LONGEST_FUNCTION]


def test_files_are_short_enough_to_read():
    assert not {name: lines for name, text in FILES.items() if (lines := len(text.splitlines())) > LONGEST_FILE}


# Class names that stand for two things: rename one and delete it here. The list may only shrink.
SHARED_CLASS_NAMES: set[str] = set()


def shared_class_names(files: dict[str, str]) -> dict[str, list[str]]:
    """Class name -> the files that define it, where there are several definitions."""
    homes = defaultdict(list)
    for name, text in files.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(name)
    return {name: places for name, places in homes.items() if len(places) > 1}


def test_a_class_name_stands_for_one_thing():
    planted = {"a.py": "class Size: pass\nclass One: pass", "b.py": "def f():\n class Size: pass"}
    assert shared_class_names(planted) == {"Size": ["a.py", "b.py"]}
    shared = shared_class_names(FILES)
    assert not {name: homes for name, homes in shared.items() if name not in SHARED_CLASS_NAMES}
    assert not SHARED_CLASS_NAMES - set(shared), "these are unique now: delete them from SHARED_CLASS_NAMES"


# --- tests ---

# Tests that can fail by an exception only.
WITHOUT_ASSERTION = {"test_mutilated_files_raise_nothing_else"}


def assertion_free_tests(source: str) -> set[str]:
    """Tests that neither assert, nor expect an exception, nor call a function of the file that does."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    asserting = {"check_against_reference"}  # shortcuts/by_hand.py
    while more := {function.name for function in functions if _asserts(function, asserting)} - asserting:
        asserting |= more
    return {function.name for function in functions if function.name.startswith("test_")} - asserting


def _asserts(function: ast.FunctionDef, helpers: set[str]) -> bool:
    calls = [ast.unparse(node.func).split(".")[-1] for node in ast.walk(function) if isinstance(node, ast.Call)]
    direct = any(isinstance(node, ast.Assert) for node in ast.walk(function))
    return direct or any(name in helpers | {"raises", "warns", "fail"} or "assert" in name for name in calls)


def test_every_test_asserts_something():
    planted = "def test_a():\n print(1)\ndef test_b():\n check()\ndef check():\n assert f()\ndef test_c():\n raises(E)"
    assert assertion_free_tests(planted) == {"test_a"}
    files = (ROOT / "tests").rglob("test_*.py")
    assert set().union(*(assertion_free_tests(file.read_text()) for file in files)) == WITHOUT_ASSERTION
