"""How does `search` go from a table of features to lists and a page?"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from echoless.config.counts import counted, first_few
from echoless.config.options import SearchOptions
from echoless.data.resizing import Fit
from echoless.evaluation.duplicates import Duplicates
from echoless.evaluation.feature_table import FeatureTable
from echoless.evaluation.originals import Corners, Originals
from echoless.evaluation.ranks import LOOKED_AT, collapse_in_words, likeness_in_words
from echoless.evaluation.search import Neighbours, Outliers, Searcher, place_in_words
from echoless.reports.page import Page
from echoless.reports.search_page import SIDE, Section, Tile, TileRow, thumbnail, write_search_page
from echoless.runtime import Progress
from echoless.storage import write_bytes
from echoless.storage.atomic import explained

ON_THE_PAGE = 50  # queries, groups
IN_A_ROW = 60  # images of a group
OUTLIERS = 60
PRINTED = 10  # queries, groups
PRINTED_OUTLIERS = 20
THUMBNAILS = 500  # of all queries and their neighbours: more makes a page slow to write, to open and to read
_QUIETLY = 2.0  # seconds before thumbnails are counted aloud
_SHOWN = Fit("cover", (SIDE, SIDE))


@dataclass(frozen=True)
class SearchResult:
    """neighbours: query, rank, similarity. duplicates: group, agreement. outliers: rank, distance. All: path, label.

    A list that was not asked for is None. notes: how they were made.
    """

    page: Page
    neighbours: pa.Table | None = None
    duplicates: pa.Table | None = None
    outliers: pa.Table | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [*_printed(self.neighbours, "query", "similarity"), *_printed(self.duplicates, "group", "agreement")]
        lines += _printed_outliers(self.outliers)
        return "\n".join([*lines, *self.notes, f"{self.page}: the page of this search"])

    def _repr_html_(self) -> str:
        return str(self.page._repr_html_())


def _printed(table: pa.Table | None, by: str, figure: str) -> Iterator[str]:
    """The first queries or groups, each with its images."""
    if table is None:
        return
    names = list(dict.fromkeys(table[by].to_pylist()))
    lists = [table.filter(pa.compute.equal(table[by], name)).to_pylist() for name in names[:PRINTED]]
    for name, lines in zip(names, _lines(lists, figure)):
        yield f"{by} {name}"
        yield from lines
    if len(names) > PRINTED:
        yield f"... and {len(names) - PRINTED} more; --table FILE.csv writes all of them"


def _printed_outliers(table: pa.Table | None) -> Iterator[str]:
    if table is None:
        return
    yield "outliers, the least similar first"
    (lines,) = _lines([table.slice(0, PRINTED_OUTLIERS).to_pylist()], "distance")
    yield from lines
    if len(table) > PRINTED_OUTLIERS:
        yield f"... and {len(table) - PRINTED_OUTLIERS} more images, in this order; --table FILE.csv writes all of them"


def _lines(lists: Sequence[Sequence[dict[str, Any]]], figure: str) -> list[list[str]]:
    shown = _figures([[row[figure] for row in rows] for rows in lists], figure)
    return [[_line(row, value) for row, value in zip(rows, values)] for rows, values in zip(lists, shown)]


def _figures(lists: Sequence[Sequence[float]], figure: str) -> list[list[str]]:
    """All with the same decimals: as many as the closest of the lists needs.

    Agreements have four: an exact copy is told from one that was saved again.
    """
    digits = 4 if figure == "agreement" else max(map(_decimals, lists), default=2)
    return [[f"{value:.{digits}f}" for value in values] for values in lists]


def _decimals(values: Sequence[float]) -> int:
    """The fewest that tell most of the neighbouring values of a list apart, from two to six."""
    pairs = [(one, other) for one, other in pairwise(values) if one != other]

    def told(digits: int) -> int:
        return sum(f"{one:.{digits}f}" != f"{other:.{digits}f}" for one, other in pairs)

    return next((digits for digits in range(2, 6) if 2 * told(digits) >= len(pairs)), 6)


def _line(row: dict[str, Any], value: str) -> str:
    rank = f"{row['rank']:4d}" if "rank" in row else "    "
    label = f"  {row['label']}" if row.get("label") is not None else ""
    return f"{rank}  {value}  {_named(row)}{label}"


def _named(row: dict[str, Any]) -> str:
    return place_in_words(row["path"], (row["x"], row["y"]) if "x" in row else None)


def run_search(options: SearchOptions) -> SearchResult:
    root = None if options.root is None else str(options.root)
    searcher = Searcher(FeatureTable(options.features), options.engine, root)
    for line in _opened(options, searcher):
        print(line, file=sys.stderr)
    tables: dict[str, pa.Table] = {}
    sections: list[Section] = []
    sample = searcher.table.sample(LOOKED_AT)
    warning = collapse_in_words(sample)
    notes = [warning] if warning else []
    if options.query is not None:
        encoder = None if options.encoder is None else str(options.encoder)
        near = searcher.neighbours(str(options.query), options.k, encoder, options.device)
        tables["neighbours"] = searcher.neighbours_table(near)
        sections.append(_neighbours_section(near, tables["neighbours"], searcher))
        scale = likeness_in_words(sample)
        notes += [scale] if scale else []
        notes += [*_cut(near, searcher), *_left_out(near)]
        notes += [] if near.how == "exact" else [f"search: {near.how}"]
    if options.duplicates:
        copies, how = _duplicates(options, searcher)
        tables["duplicates"] = searcher.duplicates_table(copies)
        sections.append(_duplicates_section(copies, tables["duplicates"], searcher, options.by))
        notes += [_summary(copies, searcher.table.rows), str(copies)]
        notes += [] if how == "exact" else [f"candidates: {how}"]
        notes += [copies.doubt] if copies.doubt else []
    if options.outliers:
        odd = searcher.outliers(options.k)
        tables["outliers"] = searcher.outliers_table(odd)
        sections.append(_outliers_section(odd, tables["outliers"], searcher, options.k))
        notes += [] if odd.how == "exact" else [f"outliers: {odd.how}"]
    if options.table is not None:
        notes.append(_write_table(Path(options.table), next(iter(tables.values()))))
    notes += _absent(sections, searcher.originals)
    page = write_search_page(
        Path(options.page), _title(sections, searcher.table.path), sections, _facts(searcher), notes
    )
    return SearchResult(page, **tables, notes=tuple(notes))


def _absent(sections: Sequence[Section], originals: Originals) -> list[str]:
    """How many images the page cannot show; an address that was not opened has been named before."""
    found = [tile.jpeg for section in sections for row in section.rows for tile in row.images]
    gone = found.count(None)
    if not gone or originals.unopened:
        return []
    place = originals.root or "a place that the table names"
    return [f"{gone} of the {len(found)} images on the page are not shown: not found at {place}; give --root PLACE"]


def _cut(near: Neighbours, searcher: Searcher) -> list[str]:
    """A sentence where a query was cut as the images of the table were."""
    files = {query.file for query in near.queries or ()}
    if near.queries is None or len(files) == len(near.queries):
        return []
    tiles, side = counted(len(near.queries), "tile"), searcher.tile
    return [
        f"query: {counted(len(files), 'file')} cut into {tiles} of {side} x {side}, as the images of the table were"
    ]


def _left_out(near: Neighbours) -> list[str]:
    """The queries that cannot be used: the first by name, and the number of the others."""
    lines = [f"unreadable query, left out: {file}: {reason}" for file, reason in near.left_out.items()]
    shown = first_few(lines, PRINTED)
    return [*shown, *([f"and {len(lines) - PRINTED} more"] if len(shown) < len(lines) else [])]


def _opened(options: SearchOptions, searcher: Searcher) -> Iterator[str]:
    """What is opened because the table says so, before it is."""
    about, name = searcher.table.about, options.features
    if options.query is not None and Path(options.query).exists() and options.encoder is None and "run" in about:
        latent = f", with the autoencoder {about['latent']}" if "latent" in about else ""
        yield f"encoder: {about['run']}{latent}, as {name} says; --encoder names another"
    if searcher.originals.unopened:
        yield f"images: none are shown; {searcher.originals.unopened}"
    elif options.root is None and about.get("root"):
        yield f"images: {about['root']}, as {name} says; --root names another place"


def _duplicates(options: SearchOptions, searcher: Searcher) -> tuple[Duplicates, str]:
    with Progress("thumbnails", searcher.table.rows, "images") as progress:

        def show(done: int, total: int) -> None:
            progress.show(done)

        return searcher.duplicates(options.threshold, options.by, show)


def _summary(copies: Duplicates, rows: int) -> str:
    images = sum(map(len, copies.groups))
    return f"{counted(len(copies.groups), 'group')} of near-duplicates, with {images} of {rows} images"


def _title(sections: Sequence[Section], features: Path) -> str:
    return sections[0].title if len(sections) == 1 else f"Search in {features.name}"


def _facts(searcher: Searcher) -> list[tuple[str, str]]:
    about, table = searcher.table.about, searcher.table
    facts = [("features", str(table.path)), ("vectors", f"{table.rows:,} of {table.width} numbers")]
    named = {"run": "encoder", "layer": "layer", "pooling": "pooling", "root": "images", "noise": "noise level"}
    return [*facts, *((title, about[name]) for name, title in named.items() if name in about)]


def _write_table(file: Path, table: pa.Table) -> str:
    data = io.BytesIO()
    if file.suffix == ".csv":
        pyarrow.csv.write_csv(table, data)
    else:
        pq.write_table(table, data)
    with explained(file):
        file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, data.getvalue())
    return f"{file}: all {counted(len(table), 'row')}"


class _Tiles:
    """Thumbnails of rows of a list."""

    def __init__(self, searcher: Searcher, figure: str) -> None:
        self._originals, self._figure = searcher.originals, figure

    def of(self, lists: Sequence[pa.Table]) -> list[list[Tile]]:
        """For each list its tiles; the images of all of them are looked for together."""
        rows = [row for each in lists for row in each.to_pylist()]
        corners = [(row["x"], row["y"]) for row in rows] if rows and "x" in rows[0] else None
        pictures = _thumbnails(self._originals, [row["path"] for row in rows], corners)
        figures = chain.from_iterable(_figures([each[self._figure].to_pylist() for each in lists], self._figure))
        tiles = (
            Tile(_named(row), value, row.get("label") or "", jpeg) for row, value, jpeg in zip(rows, figures, pictures)
        )
        return [list(islice(tiles, len(each))) for each in lists]


def _thumbnails(originals: Originals, paths: Sequence[str], corners: Corners | None) -> list[bytes | None]:
    """Kept as JPEGs: so memory is that of one file, however many there are."""
    with Progress("thumbnails", len(paths), "images", patience=_QUIETLY) as progress:

        def show(done: int, total: int) -> None:
            progress.show(done)

        return originals.made(thumbnail, paths, corners, _SHOWN, show)


def _query_thumbnails(near: Neighbours, searcher: Searcher) -> list[bytes | None]:
    """Of the queries on the page: files, or rows of the table, which may be tiles."""
    if near.queries is not None:
        files, places = zip(*((str(file.absolute()), corner) for file, corner in near.queries[:ON_THE_PAGE]))
        cut = {} if searcher.tile is None else {"tiles": str(searcher.tile)}
        return _thumbnails(Originals(cut), files, places if cut else None)
    rows_Q = np.asarray(near.own[:ON_THE_PAGE], np.int64)
    corners = None if searcher.corners is None else searcher.corners[rows_Q]
    return _thumbnails(searcher.originals, searcher.paths.at(rows_Q), corners)


def _neighbours_section(near: Neighbours, table: pa.Table, searcher: Searcher) -> Section:
    tiles, each = _Tiles(searcher, "similarity"), near.rows_MK.shape[1]
    shown = list(zip(near.names[:ON_THE_PAGE], _query_thumbnails(near, searcher)))
    first = min(each, THUMBNAILS // len(shown) - 1)
    found = tiles.of([table.slice(place * each, first) for place in range(len(shown))])
    rows = [TileRow(row, "", Tile(name, "query", "", jpeg)) for row, (name, jpeg) in zip(found, shown)]
    of = f"to {Path(near.names[0]).name}" if len(near.names) == 1 else f"to each of {len(near.names)} queries"
    note = "Nearest first, with the cosine similarity of the features to those of the query."
    return Section(
        "neighbours", f"The {counted(each, 'image')} nearest {of}", note, rows, _not_shown(near, len(rows), first)
    )


def _not_shown(near: Neighbours, queries: int, first: int) -> str:
    """Which queries, and which of their neighbours, are not on the page; nothing where all are."""
    hidden, each = len(near.names) - queries, near.rows_MK.shape[1]
    said = [f"{counted(hidden, 'more query is', 'more queries are')} not shown"] if hidden else []
    said += [f"of each query only the nearest {first} of {each} are shown"] if first < each else []
    return f"{'; '.join(said)}; --table FILE.csv writes all of them." if said else ""


def _duplicates_section(copies: Duplicates, table: pa.Table, searcher: Searcher, by: str) -> Section:
    shown = copies.groups[:ON_THE_PAGE]
    firsts = accumulate(map(len, shown), initial=0)
    lists = [table.slice(first, min(len(group), IN_A_ROW)) for first, group in zip(firsts, shown)]
    rows = []
    for number, (group, images) in enumerate(zip(shown, _Tiles(searcher, "agreement").of(lists)), start=1):
        beyond = f", {IN_A_ROW} of them shown" if len(group) > IN_A_ROW else ""
        rows.append(TileRow(images, f"Group {number}: {len(group)} images{beyond}"))
    hidden = len(copies.groups) - len(rows)
    more = f"{counted(hidden, 'more group')} not shown; --table FILE.csv writes all of them." if hidden else ""
    measure = "correlation of their thumbnails" if by == "pixels" else "cosine similarity of their features"
    note = f"Each image with its best partner in the group, by the {measure}."
    return Section("duplicates", f"{counted(len(copies.groups), 'group')} of near-duplicates", note, rows, more)


def _outliers_section(odd: Outliers, table: pa.Table, searcher: Searcher, k: int) -> Section:
    (images,) = _Tiles(searcher, "distance").of([table.slice(0, OUTLIERS)])
    note = f"Least similar first: the mean cosine distance to the {min(k, len(odd.rows_N) - 1)} nearest other images."
    return Section("outliers", f"The {len(images)} images least like the others", note, [TileRow(images)])
