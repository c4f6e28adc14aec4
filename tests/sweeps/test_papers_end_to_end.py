"""An experiment of the papers goes from its command to its table and its page, on drawn and on real images.

Two training steps teach a network nothing. What is proven is the chain: every command of every row ends well, every
row has a number in every column, the numbers are those that the runs recorded for all images that were given, the page
shows the table that the terminal does, and the same command again runs nothing.

    pytest -s tests/sweeps/test_papers_end_to_end.py -m slow        # with the tables; one or two minutes of a core each
"""

from __future__ import annotations

import csv
import html
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]  # a dozen commands each, on a busy machine

DRAWN = ("shapes:200", "--test", "shapes:100@test")
# Columns with a number in every row, and what a row leaves in its folder besides: one experiment of the masked half
# that fine-tunes, one that segments, and one of the generative half.
COLUMNS = {
    "table1": ("fine-tuned %", "linear %", "kNN %"),
    "fig3": ("mIoU %",),
    "sit": ("Frechet", "precision %", "recall %"),
}
METRICS = {"fine-tuned %": "finetune", "linear %": "linear", "kNN %": "knn", "mIoU %": "miou", "Frechet": "frechet"}
FILES = {"table1": ("config.json",), "fig3": ("figures/spectral-trained.png",), "sit": ("samples/grid.png",)}


def swept(name: str, data: tuple[str, ...], out: Path) -> str:
    """What the command prints."""
    words = ["sweep", *data, "--paper", name, "--scale", "tiny", "--max-steps", "2", "--seeds", "1", "--out", str(out)]
    ran = subprocess.run([sys.executable, "-m", "echoless", *words], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return ran.stdout


def printed_table(text: str) -> list[list[str]]:
    """Heading and rows, cell by cell: the lines from the one with the heading `seeds` to the next empty one."""
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if " seeds " in line)
    return [re.split(r"\s{2,}", line.strip()) for line in lines[first : lines.index("", first)]]


def table_on(page: Path) -> list[list[str]]:
    """The first table of the page."""
    first = page.read_text().partition("<table>")[2].partition("</table>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", first, re.S)
    return [[html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)] for row in rows]


def recorded(out: Path, images: int) -> dict[str, set[str]]:
    """By metric, the values in the runs' results.json as the table would print them; each is of all test images."""
    found: dict[str, set[str]] = {}
    for file in out.glob("*/results.json"):
        for record in json.loads(file.read_text()):
            if record["protocol"].get("features") in ("trained", None):
                assert record["metric"] == "frechet" or record["n"] in (images, 512), record
                percent, three = f"{100 * record['value']:.1f}", f"{record['value']:.3g}"
                found.setdefault(record["metric"], set()).update((percent, three))
    return found


def assert_whole(name: str, out: Path, text: str, images: int) -> None:
    table = printed_table(text)
    heading, *rows = table
    assert table_on(out / "report.html") == table
    trials = json.loads((out / "sweep.json").read_text())["trials"]
    assert len(rows) >= len(trials) == 3
    values = recorded(out, images)
    for title in COLUMNS[name]:
        cells = [row[heading.index(title)] for row in rows]
        assert all(re.fullmatch(r"[\d.e+]+( .*)?", cell) for cell in cells), (title, cells)
        if title in METRICS:
            assert {cell.split()[0] for cell in cells} <= values[METRICS[title]], (title, cells)
    for trial in trials:
        assert all((out / trial["name"] / file).is_file() for file in FILES[name])
    with (out / "sweep.csv").open() as file:
        assert {row["trial"] for row in csv.DictReader(file)} == {trial["name"] for trial in trials}
    assert "Changed on request: max_steps 2." in text and "one seed: no interval over seeds" in text


@pytest.mark.parametrize("name", COLUMNS)
def test_an_experiment_ends_in_its_table_and_its_page(name, tmp_path):
    text = swept(name, DRAWN, tmp_path / name)
    print(text)
    assert_whole(name, tmp_path / name, text, images=100)
    ledgers = {file: file.read_bytes() for file in (tmp_path / name / "logs").iterdir()}
    again = swept(name, DRAWN, tmp_path / name)
    assert printed_table(again) == printed_table(text), "it is read from what is there"
    assert {file: file.read_bytes() for file in ledgers} == ledgers, "nothing was run"


def test_photographs_go_the_same_way(shared_data, tmp_path):
    """Every thirtieth photograph of Imagenette, of ten classes, in the file format in which it is distributed."""
    import pyarrow.parquet as pq

    source = shared_data / "imagenette96"
    if not source.is_dir():
        pytest.skip(f"NOT RUN: there is no {source}, so no experiment of the papers was tried on photographs")
    counts = {}
    for name in ("train", "val"):
        table = pq.read_table(source / f"{name}.parquet")
        few = table.take(list(range(0, len(table), 30)))
        pq.write_table(few, tmp_path / f"{name}.parquet")
        counts[name] = len(few)
    data = (str(tmp_path / "train.parquet"), "--test", str(tmp_path / "val.parquet"))
    text = swept("table1", data, tmp_path / "table1")
    print(text)
    assert_whole("table1", tmp_path / "table1", text, images=counts["val"])
