"""What does the command `echoless VERB ...` do? It parses, runs the verb and prints. `--help` imports no torch."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

from echoless.cli.parsing import parse
from echoless.config.checks import nearest
from echoless.errors import EcholessError
from echoless.verbs.table import VERBS, run

USAGE = "usage: echoless VERB [arguments]        echoless help VERB explains a verb"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 success, 1 some runs of a sweep failed or `doctor` found a problem, 2 bad input, 3 a
    non-finite value, 75 stopped and to be requeued, 130 stopped by a signal (a training run has saved its work).
    """
    _print_any_name()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    if not words or words[0] in ("-h", "--help"):
        print(overview())
        return 0
    if words[0] in ("-V", "--version"):
        from echoless import __version__

        print(f"echoless {__version__}")
        return 0
    if words[0] not in VERBS:
        known = f"{', '.join(VERBS)}{nearest(words[0], VERBS)}"
        print(f"echoless: unknown verb {words[0]!r}; allowed: {known}", file=sys.stderr)
        return 2
    return _run(words[0], words[1:])


def _print_any_name() -> None:
    """A path may hold what the terminal has no letter for, and the work before it must not be lost for that."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run(name: str, words: Sequence[str]) -> int:
    verb = VERBS[name]
    try:
        options = parse(verb.options, words, f"echoless {name}")
        result = run(name, options)
        if text := verb.show(options, result):
            print(text)
        return verb.exit_code(options, result)
    except EcholessError as error:
        print(f"echoless {name}: {error}", file=sys.stderr)
        return error.exit_code
    except SystemExit as end:  # after --help
        return int(end.code or 0)
    except BrokenPipeError:  # `echoless ... | head`
        sys.stderr.close()
        return 0
    except OSError as error:
        if error.filename is None:
            raise
        print(f"echoless {name}: {error.filename}: {error.strerror}", file=sys.stderr)
        return EcholessError.exit_code
    except KeyboardInterrupt:
        print(f"echoless {name}: interrupted", file=sys.stderr)
        return 130


def overview() -> str:
    """Every verb with its summary, by group."""
    lines = [
        "echoless: train vision networks with fading residual shortcuts, and evaluate their frozen features",
        "",
        USAGE,
    ]
    for group in dict.fromkeys(verb.group for verb in VERBS.values()):
        lines += ["", f"{group}:"]
        lines += [f"  {name:12}  {verb.summary}" for name, verb in VERBS.items() if verb.group == group]
    return "\n".join(lines)
