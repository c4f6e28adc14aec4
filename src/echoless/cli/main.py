"""What does the command `echoless VERB ...` do? It parses, runs the verb and prints. `--help` imports no torch."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from echoless.cli.help import help_page
from echoless.cli.output import FLAGS, OutputOptions, print_records, sent, take
from echoless.config.addresses import without_secrets
from echoless.config.checks import nearest
from echoless.errors import INTERRUPTED, EcholessError
from echoless.verbs.table import VERBS, run

USAGE = "usage: echoless VERB [arguments]        echoless VERB --help explains a verb"
CODES = (
    "exit codes: 0 success; 1 a run of a sweep failed, or doctor found a problem; 2 bad input; 3 a loss or a gradient\n"
    "is not finite; 75 stopped, to be started again (sweep, --requeue); 130 stopped by a signal, training is saved;\n"
    "141 whoever read the output has gone, in the middle of the work"
)
CUT_OFF = 141  # what a shell says of a process whose output nobody reads any more


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code; `CODES` lists them."""
    _print_any_name()
    try:
        code = _main(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except BrokenPipeError:  # `echoless ... | head`: whoever reads has seen enough
        _drop_output()
        return 0
    except KeyboardInterrupt:  # while modules are imported, before a verb begins or after it
        print("echoless: interrupted", file=sys.stderr)
        return INTERRUPTED
    return code


def _main(words: list[str]) -> int:
    if words[:1] == ["--"]:  # `torchrun -m echoless -- sample ...`: torchrun reads no option behind it
        words = words[1:]
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


def _drop_output() -> None:
    """What is still in the buffer goes nowhere, so that Python does not complain when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _run(name: str, words: Sequence[str]) -> int:
    verb, prog = VERBS[name], f"echoless {name}"
    output, words = take(words)
    if output.help:
        print(help_page(verb.options, prog, OutputOptions))
        return 0
    from echoless.cli.parsing import parse

    try:
        options = parse(verb.options, words, prog, FLAGS)
        with sent(output, prints_results=verb.prints_results):
            result = run(name, options)
    except EcholessError as error:
        print(f"{prog}: {without_secrets(str(error))}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # in the middle of the work
        _drop_output()
        return CUT_OFF
    except OSError as error:
        if error.filename is None:
            raise
        print(f"{prog}: {error.filename}: {error.strerror}", file=sys.stderr)
        return EcholessError.exit_code
    except KeyboardInterrupt:
        print(f"{prog}: interrupted", file=sys.stderr)
        return INTERRUPTED
    if output.json:
        print_records(verb.records(options, result))
    elif text := verb.show(options, result):
        print(text)
    return verb.exit_code(options, result)


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
    return "\n".join([*lines, "", CODES])
