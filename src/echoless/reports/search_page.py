"""How are the images that a search found shown? As thumbnails on one page, which loads nothing from elsewhere."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import echoless
from echoless.errors import ConfigError
from echoless.reports.page import Page, asset, template
from echoless.reports.pictures import as_rgb
from echoless.storage import clear_leftovers, write_bytes
from echoless.storage.atomic import explained

SIDE = 160  # pixels of the longer side of a thumbnail: more than the page shows, for dense screens
_QUALITY = 80
_FOLDER = 16  # letters of a folder below a thumbnail: one line
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Tile:
    """One image. `figure`: its similarity or distance, as text. jpeg: its thumbnail; None where the image is gone."""

    path: str
    figure: str = ""
    label: str = ""
    jpeg: bytes | None = None

    @property
    def folder(self) -> str:
        """Of a long one the middle is left out. What tells images apart is the name of the file, which stays whole."""
        folder = self.path[: self.path.rfind("/") + 1]
        return folder if len(folder) <= _FOLDER else f"{folder[: _FOLDER // 2]}…{folder[-_FOLDER // 2 :]}"

    @property
    def file(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def uri(self) -> str:
        return "" if self.jpeg is None else "data:image/jpeg;base64," + base64.b64encode(self.jpeg).decode()


@dataclass(frozen=True)
class TileRow:
    """A query with its neighbours, or a group."""

    images: Sequence[Tile]
    title: str = ""
    query: Tile | None = None


@dataclass(frozen=True)
class Section:
    """`more`: what is not shown."""

    id: str
    title: str
    note: str
    rows: Sequence[TileRow] = field(default_factory=list)
    more: str = ""


def thumbnail(pixels_CHW: np.ndarray) -> bytes:
    """A small JPEG."""
    picture = as_rgb(pixels_CHW)
    picture.thumbnail((SIDE, SIDE))
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=_QUALITY)
    return data.getvalue()


def require_page(out: Path) -> None:
    """Refuse a name that no browser opens as a page."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"out is {str(out)!r}; allowed: a file whose name ends in .html")


def write_search_page(
    out: Path, title: str, sections: Sequence[Section], facts: Sequence[tuple[str, str]], notes: Sequence[str]
) -> Page:
    require_page(out)
    values: dict[str, Any] = {"title": title, "sections": sections, "facts": facts, "notes": notes}
    page = template("search.html").render(
        **values, style=asset("style.css"), policy=_POLICY, version=echoless.__version__
    )
    with explained(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    clear_leftovers(out.parent, out.name)
    write_bytes(out, page.encode(errors="backslashreplace"))
    return Page(out)
