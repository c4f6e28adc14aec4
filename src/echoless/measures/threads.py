"""How do independent tasks share the cores? One thread per task, several tasks at a time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch


@contextmanager
def one_thread_each() -> Iterator[ThreadPoolExecutor]:
    """As many threads as torch may use, each computing alone.

    Parallel tasks need no synchronisation after every operation, and the result of a task does not depend on the number
    of threads. For one caller at a time, because the thread count of torch is a setting of the process.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the caller too: what its own team leaves behind would spin on a core that others need
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield pool
    finally:
        torch.set_num_threads(threads)
