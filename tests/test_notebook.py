"""The notebook of the tutorial runs from its first cell to its last in a Jupyter kernel, at the size of a test, and its
cells show what they promise: tables, the report, a picture."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).resolve().parent.parent / "docs" / "tutorial.ipynb"
SMALL = 'IMAGES, STEPS = 64, 2\nLABELLED, TEST = "shapes:60", "shapes:60@test"\n'


def _cells() -> list[dict]:
    return [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]


def test_its_cells_are_python_and_hold_no_output():
    for cell in _cells():
        source = "".join(cell["source"]).replace("%pip install", "pip_install = 0  #")
        ast.parse(source)
        assert not cell["outputs"] and cell["execution_count"] is None
    assert sum(cell["metadata"].get("tags") == ["parameters"] for cell in _cells()) == 1


def test_where_echoless_is_missing_the_first_cell_takes_the_wheel_beside_it_or_says_how_to_make_one(
    tmp_path, monkeypatch
):
    cell = "".join(_cells()[0]["source"]).replace('%pip install -q "', 'raise RuntimeError(f"')
    cell = cell.replace('[fast,hf]"', '[fast,hf]")')
    monkeypatch.setitem(sys.modules, "echoless", None)  # an import of it fails
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"pip wheel --no-deps \. makes it"):
        exec(cell, {})
    (tmp_path / "echoless-0.2.0-py3-none-any.whl").touch()
    with pytest.raises(RuntimeError, match=r"^echoless-0.2.0-py3-none-any.whl\[fast,hf\]$"):
        exec(cell, {})


@pytest.mark.slow
def test_it_runs_from_top_to_end(tmp_path, monkeypatch):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    book = nbformat.read(NOTEBOOK, as_version=4)
    for cell in book.cells:
        if cell.metadata.get("tags") == ["parameters"]:
            cell.source = SMALL
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_PATH", str(Path(sys.prefix) / "share" / "jupyter"))
    nbclient.NotebookClient(book, timeout=500, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [set(output.data) for cell in book.cells for output in cell.get("outputs", ()) if "data" in output]
    pages = [data for data in shown if "text/html" in data]
    assert len(pages) >= 5  # three tables of numbers, the report, the table of shortcuts
    assert any("image/png" in data for data in shown)
    assert (tmp_path / "report.html").stat().st_size > 100_000
