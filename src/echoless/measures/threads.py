"""How do independent pieces of work share the cores? Each piece on one thread, several pieces at a time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch


@contextmanager
def one_thread_each() -> Iterator[ThreadPoolExecutor]:
    """As many threads as torch may use, each computing alone.

    Whole pieces in parallel need no meeting after every operation, and no digit of a piece depends on how many threads
    there are. For one caller at a time: how many threads torch uses is a setting of the process.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the caller too: what its own team leaves behind would spin on a core that others need
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(threads)
