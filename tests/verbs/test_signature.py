"""A verb is called with the fields of its options: help() explains every one, and a path may be text or a Path."""

from __future__ import annotations

import dataclasses
import inspect
import pydoc
from importlib import import_module
from pathlib import Path

import pytest

from echoless.config.options import EmbedOptions, ReportOptions
from echoless.config.options.fields import AnyPath, explanations, positional
from echoless.verbs.signature import signature_of
from echoless.verbs.table import VERBS, function_name


def function(verb: str):
    name = function_name(verb)
    module, _, attribute = (VERBS[verb].function or f"echoless.verbs.{name}:{name}").partition(":")
    return getattr(import_module(module), attribute)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_its_own_module_and_the_signature_of_its_options(verb):
    options = VERBS[verb].options
    signature = inspect.signature(function(verb))
    assert list(signature.parameters) == [field.name for field in dataclasses.fields(options)]
    by_position = [name for name, each in signature.parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
    assert by_position == positional(options)
    assert "return" not in signature.parameters and signature.return_annotation is not signature.empty


@pytest.mark.parametrize("verb", VERBS)
def test_help_lists_every_argument_with_its_explanation(verb):
    options = VERBS[verb].options
    page = pydoc.plain(pydoc.render_doc(function(verb)))
    texts = explanations(options)
    for field in dataclasses.fields(options):
        assert texts[field.name].endswith((".", "...")), "a whole sentence"
        assert f"{field.name}: {texts[field.name]}" in page
    assert VERBS[verb].summary in page and "AnyPath" not in page


@signature_of(ReportOptions)
def echo(options: ReportOptions) -> ReportOptions:
    """Returns what it was given."""
    return options


def test_paths_become_text_and_lists_become_tuples():
    assert echo([Path("a"), "b"], out=Path("c") / "d.html") == ReportOptions(("a", "b"), out="c/d.html")
    assert echo.run(ReportOptions(("a",))) == echo(("a",))


def test_a_misspelt_or_missing_argument_is_a_type_error_that_names_it():
    with pytest.raises(TypeError, match="'outt'"):
        echo(("a",), outt="b")
    with pytest.raises(TypeError, match="'runs'"):
        echo()


def test_no_flag_is_there_that_does_nothing():
    assert not {"batch_size", "seed"} & {field.name for field in dataclasses.fields(EmbedOptions)}
    assert "batch_size" not in {field.name for field in dataclasses.fields(VERBS["evaluate"].options)}
    for verb in VERBS.values():
        assert "ccepted for" not in " ".join(explanations(verb.options).values())


def test_a_path_is_text_or_a_path():
    assert AnyPath == str | Path
