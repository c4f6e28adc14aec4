"""A verb is called with the fields of its options: help() explains every one, and a path may be text or a Path."""

from __future__ import annotations

import dataclasses
import inspect
import pydoc
import re
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import echoless
from echoless.cli.main import main
from echoless.cli.parsing import parse
from echoless.config.options import EmbedOptions, EvaluateOptions, PretrainOptions, ReportOptions
from echoless.config.options.fields import (
    AnyPath,
    choices,
    explanations,
    is_required,
    positional,
    values_of,
    with_home,
)
from echoless.errors import ConfigError
from echoless.verbs.arguments import options_from
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


LISTED = [
    (verb, name, values_of(hint) is not None, choices(hint))
    for verb, row in VERBS.items()
    for name, hint in get_type_hints(row.options).items()
    if choices(hint)
]


@pytest.mark.parametrize(("verb", "name", "several", "words"), LISTED, ids=[f"{row[0]}-{row[1]}" for row in LISTED])
def test_a_word_that_is_not_listed_is_refused_as_on_the_command_line(verb, name, several, words):
    """Of every option of every verb: `dtype="float16"` wrote float32, and said float16 in the file."""
    options = VERBS[verb].options
    needed = {field.name: "x" for field in dataclasses.fields(options) if is_required(field)}
    wrong = f"{words[0]}x"
    for value in (wrong, [words[-1], wrong]) if several else (wrong,):
        with pytest.raises(ConfigError, match=f"^{name} is '{re.escape(wrong)}'; allowed: ") as refused:
            options_from(options, verb, (), needed | {name: value})
        assert ", ".join(words) in str(refused.value) and "did you mean" in str(refused.value)
    with pytest.raises(ConfigError, match=f"^{name} is 7.5j; allowed: "):
        options_from(options, verb, (), needed | {name: 7.5j})


NEEDED = {
    "embed": {"run": "RUN", "data": "DATA", "out": "f.parquet"},
    "search": {"features": "f.parquet", "duplicates": True, "threshold": 0.98},
    "evaluate": {"run": "RUN"},
    "pretrain": {"data": "DATA", "out": "RUN"},
    "export": {"run": "RUN", "out": "DIR"},
}


@pytest.mark.parametrize(("verb", "given", "sentence"), [
    ("embed", {"dtype": "float16"}, "dtype is 'float16'; allowed: fp32, fp16"),
    ("embed", {"map": "umap"}, "map is 'umap'; allowed: pca, tsne"),
    ("embed", {"paths": "rel"}, "paths is 'rel'; allowed: relative, absolute"),
    ("search", {"by": "feature"}, "by is 'feature'; allowed: pixels, features; did you mean 'features'?"),
    ("search", {"engine": "fast"}, "engine is 'fast'; allowed: auto, exact, faiss; did you mean 'faiss'?"),
    ("evaluate", {"tokencut": "value"}, "tokencut is 'value'; allowed: keys, outputs"),
    ("evaluate", {"probe": ("quick", "mea")}, "probe is 'mea'; allowed: quick, imagenet100, mae; did you mean 'mae'?"),
    ("pretrain", {"precision": "fp16"}, "precision is 'fp16'; allowed: auto, fp32, bf16; did you mean 'bf16'?"),
    ("pretrain", {"alpha_min": "0.6"}, "alpha_min is '0.6'; allowed: a number, auto"),
    ("export", {"to": None}, "to is None; allowed: hf, timm, onnx"),
])  # fmt: skip
def test_it_is_refused_before_any_path_is_looked_at(verb, given, sentence):
    with pytest.raises(ConfigError) as refused:
        getattr(echoless, verb)(**NEEDED[verb] | given)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("verb", ["pretrain", "evaluate", "embed"])
def test_labels_that_are_false_are_answered_with_how_they_are_ignored(verb):
    """None stands for the default, so that nobody found out how labels are left out in Python."""
    with pytest.raises(
        ConfigError, match=r'^labels is False; it must be a text or a path: labels.*; labels="none" igno'
    ):
        getattr(echoless, verb)(**NEEDED[verb], labels=False)
    with pytest.raises(ConfigError, match=r'; test_labels="none" ignores them$'):
        echoless.evaluate("RUN", test_labels=False)


def test_several_runs_by_position_are_answered_with_one_list():
    with pytest.raises(TypeError, match="too many positional arguments; give several runs as one list; see help"):
        echoless.report("a", "b", out="page.html")
    with pytest.raises(TypeError, match="too many positional arguments; see help"):
        echoless.embed("RUN", "DATA", "f.parquet")


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
