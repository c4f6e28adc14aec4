"""How do runs become one page? Values, charts and pictures put into a template; nothing is loaded from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import echoless
from echoless.config.metrics import Metric, describe, info_of, interval_text, number, without_fingerprints
from echoless.errors import ConfigError
from echoless.reports.blocks import accuracy_by_block
from echoless.reports.charts import COLOURS, DRAWN
from echoless.reports.collect import Picture, RunData, collect_all
from echoless.reports.compare import (
    FEWEST_FLIPPED,
    ComparedMetric,
    Group,
    compare,
    groups_of,
    readable_settings,
    short_names,
)
from echoless.reports.facts import command, facts, headline, status
from echoless.reports.figures import alpha_figures, training_figures
from echoless.reports.learned import heat_maps, learned_figures
from echoless.reports.payload import PICTURE_BUDGET, data_uri, maps_of, shrink_to_budget
from echoless.reports.summary import summarise
from echoless.reports.verdicts import Verdict, judge
from echoless.storage import clear_leftovers, write_bytes
from echoless.storage.atomic import explained

if TYPE_CHECKING:
    from jinja2 import Environment

_PICTURES = {
    "reconstructions": ("Reconstructions", "Ground truth, masked input and reconstruction."),
    "samples": ("Samples", "Drawn from the model."),
    "grid": ("Layers and noise levels", "Cross-validated accuracy on the training set; the framed cell was chosen."),
    "spectral-trained": (
        "Spectral embedding of the patch features",
        "The top three eigenvectors of the patch similarity graph as RGB, beside the images: similar colours mean "
        "similar features. Below, if the set has masks: clusters matched to the classes, and the true masks.",
    ),
    "spectral-untrained": ("Spectral embedding, untrained", "The same encoder before training, for comparison."),
    "tsne": ("t-SNE map", ""),
    "neighbours-trained": (
        "Nearest neighbours",
        "Left: a query. Right: the images whose features are most similar, the nearest first. Green frame: same class; "
        "red: another; grey: not known, as one of the two has no label.",
    ),
    "neighbours-raw-pixels": ("Nearest neighbours by raw pixels", "The same queries, for comparison."),
    "neighbours-untrained": ("Nearest neighbours, untrained", "The same queries, by the encoder before training."),
}
_NOT_SHOWN = ("data", "tsne-images")
MOST_CARDS = 4  # of runs, at a glance; more are folded away, so that what they show together comes first


class Page(type(Path())):  # type: ignore[misc]
    """The path of a report that was written. A notebook shows the report itself."""

    def _repr_html_(self) -> str:
        shown = escape(self.read_text(encoding="utf-8"), quote=True)
        return f'<iframe srcdoc="{shown}" style="width: 100%; height: 800px; border: 0"></iframe>'


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What runs show together, for the top of their page: sentences, and tables, each a caption and its lines."""

    title: str
    tables: Sequence[tuple[str, Sequence[Sequence[str]]]]
    conclusions: Sequence[str] = ()
    answers: Sequence[str] = ()  # what the first table says, in words
    warnings: Sequence[str] = ()  # why the numbers of the tables are no test
    notes: Sequence[str] = ()


def report(runs: Sequence[str | Path], out: str | Path, findings: Findings | None = None) -> Page:
    """Write one page about one run or several; `findings`, if there are any, come first."""
    out = Path(out)
    if not runs:
        raise ConfigError("no run is given; give one run folder or more")
    if out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"out is {str(out)!r}; allowed: a file whose name ends in .html")
    with explained(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    clear_leftovers(out.parent, out.name)
    page = render(collect_all([Path(run) for run in runs]), findings=findings, folder=out.parent)
    write_bytes(out, page.encode(errors="backslashreplace"))
    return Page(out)


def render(
    runs: Sequence[RunData], *, live: str = "", findings: Findings | None = None, folder: Path | None = None
) -> str:
    """The page as HTML. live: the address that tells whether it has changed. folder: where the page will be."""
    values = page_values(runs, folder) | ({} if findings is None else {"title": findings.title})
    return template("report.html").render(**values, findings=findings, live=live, **frame_values(live))


def page_values(runs: Sequence[RunData], folder: Path | None = None) -> dict[str, Any]:
    """Everything the template shows."""
    groups, settings = groups_of(runs), readable_settings(runs) if len(runs) > 1 else []
    headings = short_names([name for name, _ in settings])
    verdicts = [judge(run) for run in runs]
    return {
        "title": runs[0].name if len(runs) == 1 else f"{len(runs)} runs compared",
        "runs": [_run(run, place, verdicts[place], runs) for place, run in enumerate(runs)],
        "groups": groups,
        "by_block": accuracy_by_block(groups),
        "one_by_one": len(runs) > MOST_CARDS,
        "seeds_note": _seeds_note(groups),
        "rows": _comparison(groups) if len(groups) > 1 or groups[0].seeds > 1 else [],
        "differing": [(heading, values) for heading, (_, values) in zip(headings, settings)],
        "alphas": alpha_figures(runs),
        "training": [_with_verdicts(figure, verdicts) for figure in training_figures(runs)],
        "learned": learned_figures(runs),
        "pictures": _pictures(runs),
        "maps": maps_of(runs, folder),
        "drawn_points": DRAWN,
        "fewest_flipped": FEWEST_FLIPPED,
    }


def _seeds_note(groups: Sequence[Group]) -> str:
    """How many seeds a comparison is based on."""
    counts = sorted({group.seeds for group in groups})
    if counts == [1]:
        return "One seed each: a difference between runs may be chance, however narrow the intervals over test images."
    spread = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{spread} seeds per setting."


def frame_values(live: str = "") -> dict[str, Any]:
    """Style, script, and the policy that lets the page load nothing but what it holds."""
    script, style = asset("page.js"), asset("style.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    policy += "; base-uri 'none'; " + ("connect-src 'self'; form-action 'self'" if live else "form-action 'none'")
    return {"script": script, "style": style, "policy": policy, "version": echoless.__version__}


@cache
def asset(name: str) -> str:
    return (files("echoless.reports") / "assets" / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("echoless.reports", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = _breakable
    environment.filters["typed"] = _typed
    return environment


def _breakable(value: object) -> str:
    """As HTML whose lines may end after an underscore: the cells of a table are not cut inside a word."""
    from markupsafe import Markup
    from markupsafe import escape as escaped

    return Markup("_<wbr>").join(escaped(value).split("_"))


def _typed(value: object) -> str:
    """As HTML whose lines end before an option, not after its first dashes."""
    from markupsafe import Markup
    from markupsafe import escape as escaped

    words = (
        f'<span class="option">{escaped(word)}</span>' if word.startswith("--") else escaped(word)
        for word in str(value).split(" ")
    )
    return Markup(" ").join(map(Markup, words))


def template(name: str) -> Any:
    return _environment().get_template(name)


def style_classes(place: int) -> str:
    """The classes that give a run its colour and dashes."""
    return f"s{place % COLOURS} d{place // COLOURS}"


def _run(run: RunData, place: int, verdicts: list[Verdict], beside: Sequence[RunData]) -> dict[str, Any]:
    thumbnails = run.pictures.get("data")
    return {
        "name": run.name,
        "look": style_classes(place),
        "status": status(run),
        "complete": run.complete,
        "headline": headline(run),
        "facts": facts(run),
        "command": command(run),
        "thumbnails": data_uri(thumbnails) if thumbnails else "",
        "verdicts": verdicts,
        "summary": summarise(run, verdicts, beside),
        "metrics": [_metric_row(metric) for metric in run.results if not _is_scan(metric)],
        "scans": [_metric_row(metric) for metric in run.results if _is_scan(metric)],
        "troubles": run.troubles,
        "log": run.log[-12:],
    }


def _metric_row(metric: Metric) -> dict[str, Any]:
    value = number(metric) + interval_text(metric)
    return {"name": metric.info.title, "value": value, "n": metric.n, "how": describe(metric.protocol)}


def _is_scan(metric: Metric) -> bool:
    """Whether it is one value of a scan over layers or steps, which a chart shows better."""
    return bool({"scan", "step"} & set(metric.protocol))


def _with_verdicts(figure: Any, verdicts: list[list[Verdict]]) -> tuple[Any, list[tuple[str, Verdict]]]:
    """A figure with the verdicts on what it shows."""
    found = [
        (style_classes(place), verdict)
        for place, each in enumerate(verdicts)
        for verdict in each
        if figure.quantity and verdict.quantity == figure.quantity and figure.of in (None, place)
    ]
    return figure, found


def _pictures(runs: Sequence[RunData]) -> list[dict[str, Any]]:
    """Grouped by kind, so that the pictures of several runs are side by side."""
    shown = [
        (name, place, run, picture)
        for place, run in enumerate(runs)
        for name, picture in run.pictures.items()
        if name not in _NOT_SHOWN and not _is_drawn_as_chart(name, run)
    ]
    shown.sort(key=lambda item: (_order(item[0]), item[1]))
    small: list[Picture] = shrink_to_budget([picture for *_, picture in shown], PICTURE_BUDGET)
    return [
        {
            "title": _PICTURES.get(name, (name.replace("-", " ").replace("_", " ").capitalize(), ""))[0],
            "caption": _PICTURES.get(name, ("", ""))[1],
            "run": run.name,
            "look": style_classes(place),
            "uri": data_uri(picture),
        }
        for (name, place, run, _), picture in zip(shown, small)
    ]


def _is_drawn_as_chart(name: str, run: RunData) -> bool:
    """Whether the page draws this picture itself, from the numbers behind it."""
    return (name == "tsne" and run.map is not None) or (name == "grid" and bool(heat_maps(run, alone=True)))


def _order(name: str) -> tuple[int, str]:
    known = list(_PICTURES)
    return (known.index(name), "") if name in known else (len(known), name)


def _comparison(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Images are told by their name; also by their fingerprint where two sets have one name, or none."""
    rows = compare(groups)
    sets: dict[str, set[str]] = {}
    for row in rows:
        fingerprints = {key: row.protocol.get(key) for key in ("train_set", "test_set")}
        sets.setdefault(repr(row.sets), set()).add(repr(fingerprints))
    told = [
        without_fingerprints(row.protocol) | row.sets
        if row.sets and len(sets[repr(row.sets)]) == 1
        else row.sets | row.protocol
        for row in rows
    ]
    return [_comparison_row(row, describe(protocol), groups) for row, protocol in zip(rows, told)]


def _comparison_row(row: ComparedMetric, how: str, groups: Sequence[Group]) -> dict[str, Any]:
    """A row of the comparison in words."""
    info = info_of(row.metric)
    factor, unit = (100.0, " %") if info.is_share else (1.0, "")

    def ends(interval: tuple[float, float] | None, sign: str = "") -> str:
        return "" if interval is None else f"[{factor * interval[0]:{sign}.4g}, {factor * interval[1]:{sign}.4g}]"

    cells = []
    for place, (estimate, difference) in enumerate(zip(row.estimates, row.differences)):
        cell: dict[str, Any] = {"value": "–", "interval": "", "best": place == row.best, "difference": "", "pairs": ""}
        if estimate is not None:
            fewer = f"{estimate.seeds} of {groups[place].seeds} seeds" if estimate.seeds < groups[place].seeds else ""
            interval = f"{ends(estimate.interval)} {fewer}".strip()
            cell |= {"value": f"{factor * estimate.value:.4g}{unit}", "interval": interval}
        if difference is not None:
            cell["difference"] = f"{factor * difference.value:+.3g} {ends(difference.interval, '+')}".strip()
            over_images = f"paired over {difference.images:,} test images" if difference.images else ""
            cell["pairs"] = difference.over_seeds or over_images
        cells.append(cell)
    return {"name": info.title, "about": info.about, "how": how, "cells": cells}
