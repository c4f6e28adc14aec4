"""A Python without what Windows does not have. `python windowless.py WORDS...` is `echoless WORDS...` in it.

Modules and attributes are taken away after torch is loaded: it is there on every system, by other means.
"""

from __future__ import annotations

import os
import signal
import sys

import matplotlib.pyplot  # noqa: F401
import pyarrow.parquet  # noqa: F401
import torch
import torch.distributed

MODULES = ("fcntl", "resource", "grp", "pwd", "termios")
OF_OS = (
    *("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "sysconf", "sched_getaffinity", "register_at_fork"),
    *("posix_fallocate", "getuid", "geteuid", "fork", "mkfifo"),
)


def take_away() -> None:
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for name in OF_OS:
        delattr(os, name)
    for name in ("SIGKILL", "SIGHUP", "SIGALRM", "setitimer"):
        delattr(signal, name)


if __name__ == "__main__":
    torch.set_num_threads(1)
    take_away()
    from echoless.cli.main import main

    sys.exit(main(sys.argv[1:]))
