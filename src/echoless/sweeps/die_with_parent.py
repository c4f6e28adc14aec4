"""How do the commands of a killed sweep end? On Linux the kernel ends them with their parent.

`python -m echoless.sweeps.die_with_parent PARENT WORDS...` is `echoless WORDS...`, tied to the process PARENT; 0 is
whichever process started it. `PARENT --launch PROGRAM ARGUMENTS...` is the program, tied to PARENT.
Without this, a killed sweep would leave a run that goes on training, and the same command could not continue it.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with(parent: int, how: signal.Signals | None = None) -> None:
    """A signal when the parent dies. SIGKILL is safe for a run: whatever it has saved is whole at any instant."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError, TypeError):  # no such call, or signal, outside Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(how or signal.SIGKILL))
    if os.getppid() != parent:  # it died before the kernel knew
        os._exit(1)


def main(parent: int, words: list[str]) -> None:
    if words[:1] == ["--launch"]:
        # A launcher ends its own processes, which it can do after SIGTERM only. The tie outlasts the exec.
        end_with(parent, signal.SIGTERM)
        os.execvp(words[1], words[1:])
    end_with(parent or os.getppid())
    sys.argv[:] = ["echoless", *words]
    runpy.run_module("echoless", run_name="__main__")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
