"""Makes torchvision importable beside a CPU-only torch, for these tests alone.

torchvision's wheel registers the shape functions of two operators that exist only where its native library loads; it
does not beside a CPU build of torch. Defining the two schemas first is enough for everything but detection. Where
torchvision imports by itself, or is not installed, nothing is done.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys

import pytest
import torch

_kept: list[torch.library.Library] = []  # a library's definitions last as long as the object


def pytest_configure(config: pytest.Config) -> None:
    if importlib.util.find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
    except Exception:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept.append(library)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "tv" and importlib.util.find_spec("torchvision") is None:
            item.add_marker(pytest.mark.skip(reason="TORCHVISION IS NOT INSTALLED HERE: run `make test-tv`"))
