"""What can go wrong because of something the user gave us.

Each message is one sentence that names the field or file, the value, and what is allowed. The command line prints it
without a traceback. `echoless.shortcuts` depends on nothing of ours and raises plain `ValueError`s in the same form.
"""


class EcholessError(Exception):
    """Base of every error whose message is meant for the user."""

    exit_code = 2


class ConfigError(EcholessError, ValueError):
    """A setting is out of range, unknown, or contradicts another."""


class DataError(EcholessError):
    """The data cannot be read, or too much of it is bad."""


class UntrustedFile(EcholessError):
    """A file is not what it claims to be; nothing of it was used."""


class RunError(EcholessError):
    """A run folder or checkpoint cannot be used or written."""


class AlphaMismatch(RunError):
    """Weights trained under one set of shortcuts were about to be used under another."""


class NonFiniteError(EcholessError):
    """Loss, gradient or parameter stopped being finite; no update was applied."""

    exit_code = 3
