"""Freed memory is used again without page faults inside `reuse_freed_memory`, and returned after it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from echoless.runtime import memory
from echoless.runtime.memory import reuse_freed_memory

# As a training step does: take many blocks of a few megabytes, write to them, free them all.
STEPS = """
import ctypes, re, resource, runpy, sys
reuse_freed_memory = runpy.run_path(sys.argv[1])["reuse_freed_memory"]  # without torch

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]

def step():
    blocks = [libc.malloc(4 * 2**20) for _ in range(30)]
    for block in blocks:
        ctypes.memset(block, 1, 4 * 2**20)
    for block in blocks:
        libc.free(block)

def faults_of_a_step():
    step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident_mb():
    return int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024

plain = faults_of_a_step()
with reuse_freed_memory() as active:
    inside, held = faults_of_a_step(), resident_mb()
print(int(active), plain, inside, held, resident_mb())
"""


@pytest.mark.skipif(memory._glibc() is None, reason="NOT RUN: this system has no glibc")
def test_freed_memory_is_kept_inside_and_returned_at_the_end():
    """120 MB are 30,720 pages: all are faulted in again without it, next to none inside."""
    done = subprocess.run([sys.executable, "-c", STEPS, memory.__file__], capture_output=True, text=True, check=True)
    active, plain, inside, held, after = map(int, done.stdout.split())
    print(f"page faults of a step: {plain} and {inside}; resident {held} MB inside, {after} MB after")
    assert active and inside < 100 < plain
    assert after < held - 100


def test_without_glibc_nothing_happens(monkeypatch):
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    with reuse_freed_memory() as active:
        assert not active
