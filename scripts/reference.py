"""Where do the reference pages come from? From the programme itself, at every build: they cannot go stale.

mkdocs calls `on_files`; `python scripts/reference.py` prints both pages.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
from typing import Any
from unittest import mock

WIDTH = "100"


def verbs() -> str:
    """The real `--help` of every verb."""
    from echoless.verbs.table import VERBS

    lead = "What `echoless VERB --help` prints. In Python, `echoless.VERB(...)` takes the same arguments."
    parts = ["# Every verb", "", lead, ""]
    for name, verb in VERBS.items():
        parts += [f"## {name}", "", f"{verb.summary}.", "", "```text", help_of(name).strip(), "```", ""]
    return "\n".join(parts)


def help_of(verb: str) -> str:
    from echoless.cli.main import main

    plain = {"COLUMNS": WIDTH, "NO_COLOR": "1", "TERM": "dumb"}
    with mock.patch.dict(os.environ, plain), contextlib.redirect_stdout(io.StringIO()) as printed:
        code = main([verb, "--help"])
    if code != 0:
        raise RuntimeError(f"echoless {verb} --help ended with {code}")
    return printed.getvalue()


def recipes() -> str:
    """The docstring of every recipe, and what every experiment of the papers is."""
    from echoless.recipes.table import RECIPES
    from echoless.sweeps.papers import PAPERS

    parts = ["# Recipes and experiments", "", "## Recipes", "", "`echoless pretrain DATA --recipe NAME --out RUN`", ""]
    for name, recipe in RECIPES.items():
        parts += [f"### {name}", "", "```text", inspect.getdoc(recipe) or "", "```", ""]
    parts += ["## Experiments of the papers", "", "`echoless sweep DATA --paper NAME --out DIR`", ""]
    parts += ["| name | what it shows |", "|---|---|"]
    parts += [f"| {name} | {(inspect.getdoc(build) or '').splitlines()[0]} |" for name, build in PAPERS.items()]
    return "\n".join([*parts, ""])


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs: the generated pages join those that were written."""
    from mkdocs.structure.files import File

    for name, text in (("verbs.md", verbs()), ("recipes.md", recipes())):
        files.append(File.generated(config, name, content=text))
    return files


if __name__ == "__main__":
    print(verbs(), recipes(), sep="\n")
