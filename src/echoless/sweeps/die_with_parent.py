"""How do the commands of a killed sweep end? On Linux the kernel kills them with their parent.

`python -m echoless.sweeps.die_with_parent PARENT WORDS...` is `echoless WORDS...`, tied to the process PARENT.
Without this, a killed sweep would leave a run that goes on training, and the same command could not continue it.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """SIGKILL when the parent dies: whatever a run has saved is whole at any instant."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):  # no such call outside Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:  # it died before the kernel knew
        os._exit(1)


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    sys.argv[:2] = ["echoless"]
    runpy.run_module("echoless", run_name="__main__")
