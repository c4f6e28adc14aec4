"""Every test runs on one thread, without the network, and says loudly what it had to skip."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

# Decoded images go where nobody else looks, and go away.
if "ECHOLESS_CACHE" not in os.environ:
    os.environ["ECHOLESS_CACHE"] = tempfile.mkdtemp(prefix="echoless-tests-")
    atexit.register(shutil.rmtree, os.environ["ECHOLESS_CACHE"], ignore_errors=True)

import pytest
import torch

with contextlib.suppress(ImportError):  # the environment of tests/tv does without it
    import hypothesis

    # No test asserts a time: a busy machine is not a fault.
    hypothesis.settings.register_profile("echoless", deadline=None)
    hypothesis.settings.load_profile("echoless")

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real images beside the repository."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("NOT RUN: there is no ../shared/data beside the repository, so real images were not tried")
    return folder


@pytest.fixture(scope="session")
def compiler() -> None:
    """torch.compile needs a C++ compiler at run time."""
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("NOT RUN: no C++ compiler on this machine, so torch.compile was not tried")
