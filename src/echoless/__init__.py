"""echoless: train vision networks with fading residual shortcuts, and evaluate their frozen features.

The public names are listed in `__init__.pyi`, and loaded when they are first used (PEP 562): `import echoless` is
instant.
"""

from __future__ import annotations

import ast
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.2.0"


def _homes() -> dict[str, str]:
    """Name -> module, from the import statements of the stub."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


_HOMES = _homes()
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'echoless' has no attribute {name!r}{_meant(name)}")
    return getattr(import_module(_HOMES[name]), name)


def _meant(name: str) -> str:
    """The public name that has the typed word in it, `list_runs` for `runs`, or the nearest in spelling."""
    named = [public for public in _HOMES if name in public.split("_")] or get_close_matches(name, _HOMES, n=1)
    return f"; did you mean {named[0]!r}?" if named else "; dir(echoless) lists the public names"


def __dir__() -> list[str]:
    return sorted(__all__)
