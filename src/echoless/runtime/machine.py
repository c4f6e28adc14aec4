"""What does this machine have? Cores, memory, a compiler; no torch."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path


def cpp_compiler() -> str | None:
    """The C++ compiler that torch.compile would call on a CPU, by torch's own rule: $CXX, else the system's."""
    return shutil.which(os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++"))


def usable_cores() -> int:
    """Those this process may run on, which in a container or under a scheduler are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> tuple[int | None, int | None]:
    """(in all, free for us), each where the system says so; a container's limit counts."""
    if not hasattr(os, "sysconf"):  # Windows
        return None, None
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _number("/sys/fs/cgroup/memory.max", "")
    available = _number("/proc/meminfo", "MemAvailable:")
    return min(total, limit or total), None if available is None else min(1024 * available, limit or total)


def peak_memory_mb() -> int | None:
    """The largest resident size of this process so far; None where the system does not tell (Windows)."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform != "darwin" else peak // 2**20  # Linux counts in kilobytes, macOS in bytes


def processor() -> str:
    """The processor by its name, where the system tells it."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def processor_vendor() -> str:
    """As the processor names its maker, such as AuthenticAMD; empty where the system does not tell."""
    return _cpuinfo("vendor_id")


def vector_features() -> list[str]:
    """The vector instructions that decide how sums are rounded (avx2, avx512f, ...), where the system tells them."""
    flags = (_cpuinfo("flags") or _cpuinfo("Features")).split()
    return sorted(flag for flag in set(flags) if flag.startswith(("avx", "amx", "fma", "asimd", "sve")))


def _cpuinfo(field: str) -> str:
    """Of the first processor; empty where it is not said."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), "")


def _number(file: str, key: str) -> int | None:
    """The first number after `key` in a small system file; None where there is none."""
    try:
        words = Path(file).read_text().partition(key)[2].split() if key else Path(file).read_text().split()
        return int(words[0])
    except (OSError, ValueError, IndexError):
        return None
