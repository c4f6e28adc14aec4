"""The machine as the system itself describes it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from echoless.runtime.machine import cpp_compiler, memory_bytes, usable_cores


def test_memory_is_what_the_system_reports():
    total, free = memory_bytes()
    assert 0 < total <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert free is None or 0 < free <= total


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="NOT RUN: no affinity on this system")
def test_cores_are_those_this_process_may_use():
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    code += "from echoless.runtime.machine import usable_cores; print(usable_cores())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"
    assert usable_cores() == len(os.sched_getaffinity(0))


def test_the_compiler_is_the_one_that_torch_would_call(monkeypatch, tmp_path):
    fake = tmp_path / "my-c++"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    assert cpp_compiler() == str(fake)
    monkeypatch.setenv("CXX", str(tmp_path / "absent"))
    assert cpp_compiler() is None
