"""A verb is called with the fields of its options: help() explains every one, and a path may be text or a Path."""

from __future__ import annotations

import dataclasses
import inspect
import pydoc
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import echoless
from echoless.cli.main import main
from echoless.cli.parsing import parse
from echoless.config.options import EmbedOptions, EvaluateOptions, PretrainOptions, ReportOptions
from echoless.config.options.fields import AnyPath, explanations, positional, with_home
from echoless.errors import ConfigError
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


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_a_tilde_is_the_home_in_every_path_as_if_a_shell_had_seen_it(home):
    """Of the command line, a shell sees only a tilde at the beginning of a word: not that of --out=~/page.html."""
    expected = ReportOptions((f"{home}/a", "b~", "~nobody-of-this-name/c"), out=f"{home}/page.html")
    assert echo(["~/a", "b~", "~nobody-of-this-name/c"], out=Path("~/page.html")) == expected
    assert parse(ReportOptions, ["~/a", "b~", "~nobody-of-this-name/c", "--out=~/page.html"], "report") == expected
    given = EvaluateOptions("~/run", train="~/a", test=Path("~/b"), metrics=("segprobe",), patches=("~/p", "q"))
    made = with_home(given)
    paths = [made.run, made.train, made.test, *made.patches]
    assert paths == [f"{home}/run", f"{home}/a", f"{home}/b", f"{home}/p", "q"]
    assert given.metrics == made.metrics and made.test_labels is None


def test_nothing_is_written_into_a_folder_named_tilde(home, tmp_path):
    data, how = "shapes:16", {"recipe": "demo", "max_steps": 1, "batch_size": 4, "workers": 0}
    assert echoless.pretrain(data, out="~/run", **how)
    assert main(["embed", "~/run", data, "--out=~/f.parquet"]) == 0
    encoder = echoless.load("~/run")
    assert [each.name for each in tmp_path.iterdir()] == ["home"]
    assert (home / "run").is_dir() and (home / "f.parquet").is_file()
    Image.new("RGB", (32, 32)).save(home / "a.png")
    (home / "labels.csv").write_text("path,label\na.png,x\n")
    (home / "photos").mkdir()
    (home / "a.png").rename(home / "photos" / "a.png")
    assert encoder.embed("~/photos", labels="~/labels.csv")["label"].to_pylist() == ["x"]
    assert echoless.inspect_model("~/run").alphas
    report = echoless.fade(nn.Sequential(Block(8, 8), Block(8, 8)), alpha_min=0.6, example=torch.ones(1, 8))
    report.save("~/alphas.json")
    again = echoless.fade_saved(nn.Sequential(Block(8, 8), Block(8, 8)), "~/alphas.json", example=torch.ones(1, 8))
    assert again.alphas == report.alphas and (home / "alphas.json").is_file()


class Block(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + super().forward(x)


@signature_of(PretrainOptions)
def pretrain(options: PretrainOptions) -> PretrainOptions:
    """Returns what it was given."""
    return options


@signature_of(EvaluateOptions)
def evaluate(options: EvaluateOptions) -> EvaluateOptions:
    """Returns what it was given."""
    return options


def test_one_value_is_given_where_several_may_be_and_numbers_of_numpy_are_numbers():
    assert pretrain("PHOTOS", out="RUN", image_size=64) == pretrain("PHOTOS", out="RUN", image_size=[64])
    assert evaluate("RUN", k=5, metrics="rank", against=Path("OTHER")) == EvaluateOptions(
        "RUN", k=(5,), metrics=("rank",), against=("OTHER",)
    )
    mean = np.array([0.25, 0.5])
    asked = pretrain(
        "PHOTOS", out="RUN", max_steps=np.int64(3), epochs=np.float64(0.5), mean=mean, image_size=mean.ndim
    )
    assert (asked.max_steps, asked.epochs, asked.mean) == (3, 0.5, (0.25, 0.5))
    assert type(asked.max_steps) is int and type(asked.epochs) is float
    assert pretrain("PHOTOS", out="RUN", alpha_min=1, epochs=2, resume=np.True_).resume is True


@pytest.mark.parametrize(("given", "message"), [
    ({"time": 5}, "time is 5; it must be a text: time to train for, such as 45m, 3h or 1h30m"),
    ({"data": np.zeros((4, 8, 8))}, "data is of the type ndarray; it must be a text or a path: a folder of images"),
    ({"crop_scale": 0.5}, "crop_scale is 0.5; it must be a list of 2 values, each a number: smallest and largest area"),
    ({"max_steps": 2.5}, "max_steps is 2.5; it must be a whole number: number of training steps, instead of --epochs"),
    ({"max_steps": True}, "max_steps is True; it must be a whole number"),
    ({"image_size": [64, "x"]}, r"image_size is (64, 'x'); it must be a whole number, or a list of such: input size"),
    ({"alpha_min": None, "epochs": "three"}, "epochs is 'three'; it must be a number: number of epochs"),
    ({"out": None}, "out is None; it must be a text or a path: run folder to create"),
])  # fmt: skip
def test_a_value_of_another_type_is_refused_in_one_sentence_that_says_what_the_option_is(given, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}") as refused:
        pretrain(**{"data": "PHOTOS", "out": "RUN"} | given)
    assert "\n" not in str(refused.value)


def test_a_misspelt_or_missing_argument_is_a_type_error_that_names_it():
    with pytest.raises(TypeError, match=r"^unknown option 'outt' of echo; did you mean 'out'"):
        echo(("a",), outt="b")
    with pytest.raises(TypeError, match=r"^unknown option 'lr' of pretrain; did you mean 'base_lr'"):
        pretrain("PHOTOS", out="RUN", lr=3)
    with pytest.raises(TypeError, match=r"^echo cannot be called so: missing a required argument: 'runs'"):
        echo()


def test_no_flag_is_there_that_does_nothing():
    assert not {"batch_size", "seed"} & {field.name for field in dataclasses.fields(EmbedOptions)}
    assert "batch_size" not in {field.name for field in dataclasses.fields(VERBS["evaluate"].options)}
    for verb in VERBS.values():
        assert "ccepted for" not in " ".join(explanations(verb.options).values())


def test_a_path_is_text_or_a_path():
    assert AnyPath == str | Path
