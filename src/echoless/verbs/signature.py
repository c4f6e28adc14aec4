"""How does an options class become the signature of a function? `@signature_of(PretrainOptions)`.

The verb is written as a function of one options object. Callers, type checkers and `help()` see a function with every
field of the options as an argument; `verb.run(options)` takes the options. Both refuse an impossible output first.
Ctrl-C ends the caller of the first, after the work is saved; the command line calls the second, and exits with a code.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, cast, get_type_hints

from echoless.config.options.fields import explanations, with_home
from echoless.runtime.signals import interrupting_callers
from echoless.verbs.arguments import options_from
from echoless.verbs.early import require_outputs

P = ParamSpec("P")
Asked = TypeVar("Asked", contravariant=True)
R = TypeVar("R", covariant=True)


class VerbFunction(Protocol[P, R]):
    """What the decorator returns."""

    run: Callable[..., Any]  # the function of one options object, for callers that have one

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...


def signature_of(options: Callable[P, Asked]) -> Callable[[Callable[[Asked], R]], VerbFunction[P, R]]:
    """Turn `def verb(options: Options) -> Result` into `verb(*fields of Options) -> Result`."""

    def decorate(function: Callable[[Asked], R]) -> VerbFunction[P, R]:
        def run(asked: Asked, *more: Any, **named: Any) -> R:
            require_outputs(asked)
            return function(asked, *more, **named)

        def verb(*args: P.args, **kwargs: P.kwargs) -> R:
            with interrupting_callers():
                return run(with_home(options_from(options, function.__name__, args, kwargs)))

        for name in ("__name__", "__qualname__", "__module__"):
            setattr(verb, name, getattr(function, name))
        verb.__signature__ = _signature(options, function)  # type: ignore[attr-defined]
        verb.__doc__ = _document(cast(type[Any], options), function)
        verb.run = run  # type: ignore[attr-defined]
        return cast(VerbFunction[P, R], verb)

    return decorate


def _signature(options: Callable[..., Any], function: Callable[..., Any]) -> inspect.Signature:
    """That of the options, with types in place of their names, and what the function returns."""
    hints, signature = get_type_hints(options), inspect.signature(options)
    parameters = [each.replace(annotation=hints[each.name]) for each in signature.parameters.values()]
    return signature.replace(parameters=parameters, return_annotation=inspect.signature(function).return_annotation)


def _document(options: type[Any], function: Callable[..., Any]) -> str:
    """What the options class says, one line for each argument, and what the function returns."""
    texts = explanations(options)
    arguments = [f"    {field.name}: {texts[field.name]}" for field in dataclasses.fields(options)]
    parts = [inspect.getdoc(options) or "", "\n".join(["Arguments:", *arguments]) if arguments else ""]
    return "\n\n".join([part for part in [*parts, inspect.getdoc(function) or ""] if part])
