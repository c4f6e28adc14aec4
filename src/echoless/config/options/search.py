"""Which arguments does `search` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from echoless.config.checks import require_number, require_whole
from echoless.config.options.fields import AnyPath, group
from echoless.errors import ConfigError


@dataclass(frozen=True)
class SearchOptions:
    """Find similar images, near-duplicates and outliers among the vectors that `embed` wrote.

    Images are compared by the cosine of their vectors. The result is printed, and shown with thumbnails on one
    self-contained page. The search is exact up to 10^12 comparisons (all pairs of a million images); beyond that it
    needs the extra `search` (faiss), and says how many of the true neighbours were found.
    """

    EXAMPLES = (
        "echoless search features.parquet --query photo.jpg",
        "echoless search features.parquet --duplicates --table duplicates.csv",
        "echoless search features.parquet --outliers --k 10",
    )

    features: AnyPath
    """The .parquet file or folder of `embed`. It names its encoder and its images."""
    _: KW_ONLY
    query: AnyPath | None = None
    """Find the nearest neighbours of this: an image file, a folder of images, or a path in FEATURES."""
    k: int = 20
    """Number of neighbours of each query; also those that decide what is an outlier."""
    duplicates: bool = False
    """Find groups of near-duplicates: re-encoded, resized, slightly cropped or mirrored copies."""
    by: Literal["pixels", "features"] = "pixels"
    """How duplicates are told: pixels (thumbnails of 16 x 16, one of them mirrored where that fits better), or features
    (their cosine, which needs --threshold)."""
    threshold: float | None = None
    """Agreement from which on two images are near-duplicates, -1 to 1 (default: chosen with altered copies of images of
    the set; the result says how)."""
    outliers: bool = False
    """Find the images that are least similar to their nearest neighbours."""
    out: AnyPath | None = None
    """HTML file to write; an earlier page is replaced (default: duplicates.html or outliers.html where that alone is
    asked for, else search.html)."""
    table: AnyPath | None = None
    """Also write the whole list: a .csv or .parquet file."""
    overwrite: bool = False
    """Replace the file of --table, and one of --out that is no page of echoless."""

    group("machine")
    encoder: AnyPath | None = None
    """The encoder that made FEATURES, if it was moved, or if it is a name of timm (default: the recorded path)."""
    root: AnyPath | None = None
    """Where the images of FEATURES are, if they were moved, or if they are at an address (default: the recorded
    path)."""
    engine: Literal["auto", "exact", "faiss"] = "auto"
    """auto (exact while that is feasible), exact, or faiss (approximate)."""
    device: str = "auto"
    """Device that encodes the query: auto, cpu, cuda or cuda:N."""

    def __post_init__(self) -> None:
        require_whole("k", self.k, 1)
        if self.threshold is not None:
            require_number("threshold", self.threshold, -1, 1)
        if self.threshold is not None and not self.duplicates:
            raise ConfigError(f"threshold is {self.threshold:g}, which needs --duplicates")
        if self.duplicates and self.by == "features" and self.threshold is None:
            raise ConfigError("by is 'features', which needs --threshold, a cosine similarity such as 0.98")
        asked = self._asked
        if not asked:
            raise ConfigError("nothing to search for; give --query IMAGE, --duplicates or --outliers")
        if self.table is not None and len(asked) > 1:
            raise ConfigError(f"table is {str(self.table)!r}, which holds one list; give one of {', '.join(asked)}")

    @property
    def _asked(self) -> list[str]:
        return [name for name in ("query", "duplicates", "outliers") if getattr(self, name)]

    @property
    def page(self) -> AnyPath:
        """Each kind of list has a page of its own: the next search does not replace the one before."""
        name = "search" if self._asked[0] == "query" or len(self._asked) > 1 else self._asked[0]
        return f"{name}.html" if self.out is None else self.out
