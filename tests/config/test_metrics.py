"""One table says what a number is: every metric that the code writes is in it, and nothing else keeps such a list.

Run alone: pytest tests/config/test_metrics.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from echoless.config import options
from echoless.config.evaluated import Metrics
from echoless.config.metrics import METRICS, WIDTH, YIELDS, Metric, info_of, table
from echoless.config.options import EvaluateOptions, SweepOptions
from echoless.errors import ConfigError

SOURCE = Path(__file__).resolve().parents[2] / "src" / "echoless"
TABLE, REGISTRY = SOURCE / "config" / "metrics.py", SOURCE / "evaluation" / "registry.py"
TREES = {path: ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}
# Functions that make a record and take its name first.
MAKERS = {"_accuracy", "_score", "_reading", "metric"}
# Titles, units and directions by name, as they were once kept beside the table.
FORBIDDEN = {"_SHARES", "_HIGHER", "_LOWER", "TITLES", "COLUMNS", "is_share_name"}


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def written_names() -> set[str]:
    """Names given as `metric="..."` to any call, or first to a function that makes a record."""
    found = set()
    for tree in TREES.values():
        for call in calls(tree):
            named = [keyword.value for keyword in call.keywords if keyword.arg == "metric"]
            function = call.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            named += call.args[:1] if name in MAKERS else []
            found |= {node.value for node in named if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return found


def test_every_metric_that_the_code_writes_is_in_the_table_and_the_other_way_round():
    yielded = {name for names in YIELDS.values() for name in names}
    assert written_names() | yielded == set(METRICS)
    for info in METRICS.values():
        assert info.title and info.short and info.about.endswith(".") and info.unit in ("share", "number")


def test_a_record_is_made_under_a_name_or_by_a_function_that_this_test_knows():
    """So that no name escapes the test above: `metric=` is a constant, or a parameter of one of MAKERS."""
    for path, tree in TREES.items():
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        for function in functions:
            for call in calls(function):
                if getattr(call.func, "id", "") == "Metric":
                    (name,) = [keyword.value for keyword in call.keywords if keyword.arg == "metric"]
                    known = isinstance(name, ast.Constant) or function.name in MAKERS | {"ranks", "measure_precision"}
                    assert known or function.name in ("from_json", "_results"), (path, function.name)


def test_no_other_table_of_metrics_exists():
    """No constant of a module maps names of metrics to anything but how they are measured."""
    for path, tree in TREES.items():
        constants = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
        dictionaries = [node for constant in constants for node in ast.walk(constant) if isinstance(node, ast.Dict)]
        for node in dictionaries if path not in (TABLE, REGISTRY) else []:
            keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
            assert len(keys & set(METRICS)) < 2, (path, node.lineno)
        names = {getattr(node, "id", getattr(node, "name", None)) for node in ast.walk(tree)}
        assert not names & FORBIDDEN, (path, names & FORBIDDEN)


@pytest.mark.parametrize(
    ("name", "better", "share"),
    [
        ("knn", 1, True),
        ("tokencut-corloc", 1, True),
        ("segprobe-miou", 1, True),
        ("frechet", -1, False),
        ("rank_paper", 0, False),
        ("inception-score", 1, False),
        ("final_loss", -1, False),
    ],
)
def test_units_and_directions(name, better, share):
    assert (METRICS[name].better, METRICS[name].is_share) == (better, share)


def test_a_metric_of_somebody_else_is_shown_as_a_plain_number_with_no_direction():
    info = info_of("their_score")
    assert (info.title, info.better, info.is_share) == ("Their score", 0, False)
    assert "their_score  0.5 [0.4, 0.6]" in table([Metric(metric="their_score", value=0.5, n=3, interval=(0.4, 0.6))])


def test_the_help_of_metrics_names_every_measurement():
    text = (Path(options.__file__).parent / "evaluate.py").read_text()
    help_text = text.split("metrics: tuple[str, ...]")[1].split('"""')[1]
    assert all(name in help_text for name in YIELDS)


def test_a_name_that_cannot_be_measured_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"metrics is 'lineer'; allowed: knn, .*; did you mean 'linear'\?"):
        EvaluateOptions("RUN", metrics=("knn", "lineer"))
    with pytest.raises(ConfigError, match="metrics is 'frechet'; allowed: knn, linear, rank, spectral, tokencut"):
        SweepOptions("DATA", out="OUT", metrics=("frechet",))


def measured() -> Metrics:
    common = {"seed": 0, "train_n": 50_000}
    rows = Metrics()
    for features, layer in (("trained", "block11/+mlp"), ("raw pixels", "output"), ("untrained", "block11/+mlp")):
        where = {"features": features, "layer": layer, "pooling": "mean", **common}
        for k in (5, 20):
            protocol = {**where, "temperature": 0.07, "k": k}
            rows.append(Metric(metric="knn", value=0.5, n=10_000, interval=(0.49, 0.51), protocol=protocol))
        protocol = {**where, "probe": "imagenet100"}
        rows.append(Metric(metric="linear", value=0.7, n=10_000, interval=(0.69, 0.71), protocol=protocol))
    return rows


def test_the_table_fits_a_terminal_and_says_once_what_rows_share():
    text = str(measured())
    above, below = text.split("\n\n")
    assert max(map(len, text.splitlines())) <= WIDTH
    assert above.splitlines() == [
        "all: pooling mean, seed 0, train_n 50000",
        "knn: temperature 0.07",
        "linear: probe imagenet100",
    ]
    assert below.splitlines()[0] == (
        "knn     50.00 % [49.00, 51.00]  n=10000  features trained, layer block11/+mlp, k 5"
    )
    assert len(below.splitlines()) == 9 and "pooling" not in below


def test_a_long_protocol_goes_on_below_and_nothing_of_it_is_lost():
    words = {f"setting{index}": "a" * 20 + str(index) for index in range(12)}
    rows = [Metric(metric="knn", value=0.1, n=1, protocol=words), Metric(metric="knn", value=0.2, n=1)]
    text = table(rows)
    assert max(map(len, text.splitlines())) <= WIDTH and all(value in text for value in words.values())


def test_one_number_and_none():
    assert table([]) == str(Metrics()) == "nothing was measured"
    text = table([Metric(metric="rankme", value=12.5, n=9, protocol={"features": "trained", "layer": "x"})])
    assert text == "all: layer x\n\nrankme  12.5  n=9  features trained"


class Cells(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)

    def handle_data(self, data):
        self.texts.append(data)


def test_a_notebook_shows_a_table_with_a_column_for_what_differs():
    rows = measured()
    rows.append(Metric(metric="<b>", value=1.0, n=1, protocol={"layer": "<script>"}))
    html = Cells(rows._repr_html_())
    assert html.tags.count("tr") == 1 + 10 and html.texts.count("kNN accuracy") == 6
    assert "script" not in html.tags and "b" not in html.tags and "<b>" in html.texts
    assert {"k", "features"} <= set(html.texts)


def test_titles_stand_alone_and_headings_stand_in_a_column():
    for name, info in METRICS.items():
        assert info.title[0].isupper() or info.title.startswith("kNN"), name
        assert len(info.heading) <= max(len(info.title), 25), name
    assert (info_of("recall").title, info_of("recall").heading) == ("Recall of samples", "recall %")
