"""What does `search` do? Refuse what cannot be searched, then search. The half that needs torch: `searching.py`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from echoless.config.options import SearchOptions
from echoless.errors import ConfigError
from echoless.verbs.early import require_new_file, require_page_place, require_table
from echoless.verbs.signature import signature_of

if TYPE_CHECKING:
    from echoless.verbs.searching import SearchResult


@signature_of(SearchOptions)
def search(options: SearchOptions) -> SearchResult:
    """Returns the lists as Arrow tables, `neighbours`, `duplicates` and `outliers`, and the `page`."""
    require_table(options.features)
    if Path(options.page).suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"out is {str(options.page)!r}; allowed: a file whose name ends in .html")
    if options.table is not None and Path(options.table).suffix not in (".csv", ".parquet"):
        raise ConfigError(f"table is {str(options.table)!r}; allowed: a name that ends in .csv or .parquet")
    if Path(options.page).is_dir():
        raise ConfigError(f"out is {str(options.page)!r}, which is a folder; give a file")
    if not options.overwrite:
        require_page_place(options.page, ", or --overwrite to replace it")
        require_new_file("table", options.table)

    from echoless.verbs.searching import run_search

    return run_search(options)
