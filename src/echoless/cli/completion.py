"""How does a shell complete the words after `echoless`? By a script that tyro generates from the options classes.

tyro's script completes verbs, options and their values, names of tables among them. It is changed in three places, so
that words which are no options are completed too: names of files, and `ls`, `best`, ... after `runs`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

from echoless.cli.output import OutputOptions
from echoless.cli.parsing import as_typed
from echoless.config.options import CompletionOptions
from echoless.config.options.fields import choices, explanations, members, positional, values_of
from echoless.verbs.names import names_for
from echoless.verbs.signature import signature_of
from echoless.verbs.table import VERBS

FILES = "__TYRO_COMPLETE_FILES__"  # asks the shell for names of files
_ASKED = "completions = get_completions(words, current_index, COMPLETION_SPEC)"
# Python inside the script, within double quotes in that of fish: hence no double quote.
_ANSWERED = """typed = ''.join(words[current_index : current_index + 1])
    first = {first}.get(words[1], []) if current_index == 2 else []
    completions = [each for each in first if each.startswith(typed) or (each == '{files}' and typed[0] != '-')]
    completions = completions or get_completions(words, current_index, COMPLETION_SPEC)
    value = words[current_index - 1].startswith('-')  # of an option that has none to offer
    completions = completions or (['{files}'] if current_index > 1 and not value else [])"""
# What a script has -> what it must have.
MENDED = {
    'COMPREPLY=($(compgen -f -- "$cur"))': (  # bash; $cur has earlier words in it
        "local IFS=$'\\n'; compopt -o filenames 2>/dev/null\n"
        '    COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))'
    ),
    '"${words[@]}" "$CURRENT"': '"${words[@]}" "$((CURRENT - 1))"',  # zsh, which counts from 1
    # fish, which gives the words before the cursor
    '"$pycode" $words $current': '"$pycode" $words (commandline -ct | string collect --allow-empty) $current',
}


@signature_of(CompletionOptions)
def completion(options: CompletionOptions) -> str:
    """Returns the script."""
    verbs: dict[str, Callable[..., Any]] = {name: _words_of(name, verb.options) for name, verb in VERBS.items()}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        tyro.extras.subcommand_cli_from_dict(
            verbs, prog="echoless", args=["--tyro-print-completion", options.shell], sort_subcommands=False
        )
    script = printed.getvalue().rstrip("\n")
    for old, new in {_ASKED: _ANSWERED.format(first=_first_words(), files=FILES), **MENDED}.items():
        script = script.replace(old, new)
    return script


def _first_words() -> dict[str, list[str]]:
    """What may follow a verb that is no option: the names that are allowed there, else files."""
    found: dict[str, list[str]] = {}
    for name, verb in VERBS.items():
        if words := positional(verb.options):
            found[name] = choices(_hints(name, verb.options)[words[0]]) or [FILES]
    return found


def _hints(verb: str, options: type[Any]) -> dict[str, Any]:
    """The types of the fields; a name of a table is one of a few words, which is what can be completed."""
    found = get_type_hints(options)
    for field, hint in found.items():
        if names := names_for(verb, field):
            one: Any = Literal.__getitem__(names)
            found[field] = one if values_of(hint) is None else tuple.__class_getitem__((one, ...))
    return found


def _words_of(name: str, options: type[Any]) -> type[Any]:
    """A class with the options of a verb, and those that every verb takes, for tyro to describe."""
    words: list[Any] = []
    for each in (options, OutputOptions):
        hints, texts = _hints(name, each), explanations(each)
        for field in dataclasses.fields(each):
            if field.name != "help":  # tyro has its own
                words.append(_described(field, hints[field.name], texts[field.name]))
    return dataclasses.make_dataclass(name, words)


def _described(field: dataclasses.Field[Any], hint: Any, text: str) -> tuple[str, Any, Any]:
    """A field without None, which cannot be typed; its default is never shown, but must be of its type."""
    parts = members(as_typed(hint))
    metavar = "PATH" if Path in members(hint) else None
    described = tyro.conf.arg(help=text, metavar=metavar, help_behavior_hint="")
    markers = (described,) if field.kw_only else (tyro.conf.Positional, described)
    kind: Any = Annotated[Union[parts], *markers]  # noqa: UP007
    return field.name, kind, dataclasses.field(kw_only=True, default=_any_value(parts[0]))


def _any_value(kind: Any) -> Any:
    if get_origin(kind) is Literal:
        return get_args(kind)[0]
    if get_origin(kind) is tuple:
        inner = get_args(kind)
        return () if inner[-1] is Ellipsis else tuple(map(_any_value, inner))
    return kind()
