"""Where do the reference pages come from? From the programme itself, at every build: they cannot go stale.

mkdocs calls `on_files`; `python scripts/reference.py metrics` prints a page, without a name all of them. Those of them
that other pages link to also lie in `docs`, as a few lines which say how to see the page without the site.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import os
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from textwrap import fill
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
WIDTH = "100"
# Packages of the public names, in the order of the page on Python, with what they are for.
PARTS = {
    "evaluation": "Frozen encoders",
    "shortcuts": "Shortcuts: fade, fold, schedules",
    "verbs": "Verbs: the commands as functions",
    "models": "Models",
    "objectives": "Losses",
    "exchange": "Models of other libraries",
    "config": "Settings",
    "randomness": "Randomness",
}


def verbs() -> str:
    """The real `--help` of every verb."""
    from echoless.verbs.table import VERBS

    lead = "What `echoless VERB --help` prints. In Python, `echoless.VERB(...)` takes the same arguments, except for"
    parts = ["# Every verb", "", lead, "`runs`, `recipes` and `completion`; `import` is `import_` there.", ""]
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


def metrics() -> str:
    """Every metric, and which measurement yields it."""
    from echoless.config.metrics import METRICS, YIELDS

    of = {metric: name for name, yielded in YIELDS.items() for metric in yielded}
    better = {1: "higher", -1: "lower", 0: "neither"}
    lead = "The names in `results.json`. How they are measured and compared: [what a number means](protocols.md)."
    parts = ["# Metrics", "", lead, "", "| name | what it is | better | `--metrics` |", "|---|---|---|---|"]
    for name, info in METRICS.items():
        measured = f"`{of[name]}`" if name in of else "by training" if info.kind == "training" else "by its verb"
        parts.append(f"| `{name}` | {info.title}. {info.about} | {better[info.better]} | {measured} |")
    drawn = ", ".join(f"`{name}`" for name, yielded in YIELDS.items() if not yielded)
    return "\n".join([*parts, "", f"Measurements that draw and give no number: {drawn}.", ""])


def api() -> str:
    """Every public name, from the stub that lists them."""
    found: dict[str, list[str]] = {part: [] for part in PARTS}
    for module, name in public_names():
        file = ROOT / "src" / f"{module}.{name}".replace(".", "/")
        # Where a function has the name of its module, the page would show the module.
        path = f"{module}.{name}.{name}" if file.with_suffix(".py").exists() else f"{module}.{name}"
        found[module.split(".")[1]].append(path)
    lead = "`import echoless` is instant: every name is loaded when it is first used."
    parts = ["# Python", "", lead, ""]
    for part, title in PARTS.items():
        parts += [f"## {title}", ""]
        parts += [line for name in found[part] for line in (_verb(name) if part == "verbs" else [f"::: {name}", ""])]
    return "\n".join(parts)


def public_names() -> list[tuple[str, str]]:
    stub = ast.parse((ROOT / "src" / "echoless" / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return [(str(node.module), alias.name) for node in imports for alias in node.names]


def _verb(path: str) -> list[str]:
    """A verb gets its signature from its options when it is imported; the page of the verbs explains them."""
    from echoless.verbs.table import VERBS, function_name

    module, _, name = path.rpartition(".")
    function = getattr(import_module(module), name)
    verb = next((verb for verb in VERBS if function_name(verb) == name), None)
    if verb is None:
        return [f"::: {path}", ""]
    parameters = inspect.signature(function).parameters.values()
    positional = [_shown(each) for each in parameters if each.kind != each.KEYWORD_ONLY]
    named = [_shown(each) for each in parameters if each.kind == each.KEYWORD_ONLY]
    words = ", ".join([*positional, *(["*"] if named else []), *named])
    signature = fill(f"echoless.{name}({words})", int(WIDTH), subsequent_indent="    ", break_on_hyphens=False)
    returns = inspect.getdoc(function.run) or ""
    return [f"### {name}", "", "```python", signature, "```", "", f"[Arguments](verbs.md#{verb}). {returns}", ""]


def _shown(parameter: inspect.Parameter) -> str:
    return str(parameter.replace(annotation=parameter.empty))


def contributing() -> str:
    return (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def changelog() -> str:
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


PAGES: dict[str, Callable[[], str]] = {
    "verbs.md": verbs,
    "recipes.md": recipes,
    "metrics.md": metrics,
    "api.md": api,
    "contributing.md": contributing,
    "changelog.md": changelog,
}


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs: the generated pages join those that were written, and replace those that only point to them."""
    from mkdocs.structure.files import File

    for name, page in PAGES.items():
        if pointer := files.get_file_from_path(name):
            files.remove(pointer)
        files.append(File.generated(config, name, content=_for_the_site(page())))
    return files


def _for_the_site(text: str) -> str:
    """Links of pages that stand at the top of the repository, as seen from the folder of the documentation."""
    return re.sub(r"\]\(docs/", "](", text)


if __name__ == "__main__":
    wanted = [f"{name}.md" for name in sys.argv[1:]] or list(PAGES)
    print(*(PAGES[name]() for name in wanted), sep="\n")
