"""The rules of the house: imports flow one way, the idea stands alone, the residual is written once."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "echoless"

LEAVES = {"config", "data", "errors", "measures", "randomness", "runs", "runtime", "storage"}
# What each package may import of ours; `errors` is open to all but `shortcuts`.
MAY_IMPORT = {
    "errors": set(),
    "shortcuts": set(),
    "randomness": set(),
    "storage": set(),
    "runtime": set(),
    "config": set(),
    "measures": {"randomness"},
    "data": {"config", "randomness", "runtime", "storage"},
    "models": {"shortcuts", "config", "randomness"},
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


def test_the_fading_of_a_shortcut_is_written_in_one_place():
    """Models and objectives join streams through `Shortcut` or `residual`: no `alpha *` and no `add(..., alpha=)`."""
    for package in ("models", "objectives"):
        for file in (SOURCE / package).glob("*.py"):
            text = file.read_text()
            assert "alpha *" not in text.replace("alpha_l * x + f", "") and "alpha=" not in text.replace(
                "alpha=alpha", ""
            ), file


def test_files_stay_short_enough_to_read():
    long = {str(f.relative_to(SOURCE)): n for f in SOURCE.rglob("*.py") if (n := len(f.read_text().splitlines())) > 400}
    assert not long
