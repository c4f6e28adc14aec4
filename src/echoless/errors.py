"""Which errors are raised for bad input, data or files, and which exit codes tell of a stop?

Each message is one sentence: the field or file, its value, and what is allowed or what to do. The command line prints
it without a traceback. `echoless.shortcuts` imports nothing else of echoless, so it raises `ValueError` instead.
"""

REQUEUE = 75  # the exit code after which schedulers start the same command again
INTERRUPTED = 130  # the exit code of a run that a signal stopped, so that `pretrain ... && evaluate ...` stops too


class EcholessError(Exception):
    """Base of every error whose message is meant for the user."""

    exit_code = 2


class ConfigError(EcholessError, ValueError):
    """A setting is out of range, unknown, or contradicts another."""


class NoMemory(ConfigError):
    """A batch needs more memory than there is."""


class DataError(EcholessError):
    """The data cannot be read, or too much of it is bad."""


class NoImages(DataError):
    """The data can be read, and holds no image."""


class UntrustedFile(EcholessError):
    """A file is not what it claims to be; nothing of it was used."""


class RunError(EcholessError):
    """A run folder or checkpoint cannot be used or written."""


class Interrupted(RunError):
    """A signal stopped the work; what was done is kept."""

    exit_code = INTERRUPTED


class Busy(RunError):
    """Another process holds the folder."""


class AlphaMismatch(RunError):
    """Weights trained under one set of shortcuts were about to be used under another."""


class NonFiniteError(EcholessError):
    """Loss, gradient or parameter stopped being finite; no update was applied."""

    exit_code = 3
