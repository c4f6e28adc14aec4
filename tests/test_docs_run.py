"""Every block of code in the documentation is run, at a tiny size, or says why not.

A page is followed from top to bottom in a folder with small stand-ins for what it names: PHOTOS, HELD_OUT, RUN, ... Its
commands go through the real parser; then sizes are cut (steps, images, samples), nothing else. Sweeps print their
commands; `demo` and `serve` are run by tests of their own.

    pytest tests/test_docs_run.py -m "slow or not slow" -k folder
"""

from __future__ import annotations

import contextlib
import re
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from docs_blocks import PAGES, REASONS, Block, blocks_of
from echoless.cli.output import take
from echoless.cli.parsing import parse
from echoless.verbs.table import VERBS, run

BLOCKS = {page.name: blocks_of(page) for page in PAGES}
ALL = [block for blocks in BLOCKS.values() for block in blocks]
RUNNABLE = [name for name, blocks in BLOCKS.items() if any(b.language in ("bash", "python") for b in blocks)]
QUICK = ("embed.md",)  # a page that is followed in every run of the tests
# What a page names -> which of the stand-ins it is a copy of.
STANDS_FOR = {"DATA": "PHOTOS", "FOLDER": "VIT", "PLAIN": "RUN", "ENCODER_RUN": "RUN"}
RUNS = ("RUN", "OTHER", "THIRD")
GIVEN = (
    "PHOTOS",
    "HELD_OUT",
    "FLAT",
    "labels.csv",
    "test_labels.csv",
    "photo.jpg",
    "CELLS",
    "SCANS",
    "VIT",
    *STANDS_FOR,
    *RUNS,
)
ELSEWHERE = ("demo", "serve")
# Recipes that are too large for a test -> those that stand for them.
SMALLER = {"vit-supervised": "vit-tiny-supervised", "resnet-supervised": "resnet-tiny-supervised"}


def test_every_block_that_is_not_run_says_a_known_reason():
    reasons = {block.not_run for blocks in BLOCKS.values() for block in blocks if block.not_run}
    assert reasons <= set(REASONS)


def test_every_line_for_the_shell_is_followed_or_its_block_says_why_not():
    left = [(block.page, line) for block in ALL if not block.not_run for line in block.lines]
    assert not [each for each in left if not each[1].startswith("echoless ")]


def test_every_command_can_be_parsed():
    commands = [(block.page, *words) for block in ALL for words in block.commands]
    for page, _, verb, *words in commands:
        parse(VERBS[verb].options, take(_without_redirection(words))[1], f"{page}: echoless {verb}")
    assert len(commands) > 60


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> Path:
    """Everything that pages name without making it; runs are trained when a page first names one."""
    folder = tmp_path_factory.mktemp("world")
    with contextlib.chdir(folder):
        _draw_images()
        _make_vit()
    return folder


def _train(name: str) -> None:
    from echoless.verbs.evaluate import evaluate
    from echoless.verbs.pretrain import pretrain

    small = {"recipe": "demo", "batch_size": 8, "max_steps": 2, "patch_size": 16, "snapshots": 2}
    pretrain("PHOTOS", out=name, seed=RUNS.index(name), **small)
    evaluate(name, train="PHOTOS", metrics=("knn",), baselines=False)


def _draw_images() -> None:
    from echoless.data import open_images

    images = open_images("shapes:90", cache="off")
    places = images.labels % 3
    rows = ["path,label"]
    for index in range(90):
        pixels = images.get([index]).pixels[0].transpose(1, 2, 0)
        for place in ("PHOTOS", "HELD_OUT") if index >= 60 else ("PHOTOS",):
            if (place == "HELD_OUT") == (index >= 60):
                _save(pixels, Path(place) / "abc"[places[index]] / f"{index}.png")
        _save(pixels, Path("FLAT") / f"{index}.png")
        rows.append(f"{index}.png,{places[index]}")
    Path("labels.csv").write_text("\n".join(rows))
    Path("test_labels.csv").write_text("\n".join(rows[:1] + rows[1::2]))
    _save(images.get([0]).pixels[0].transpose(1, 2, 0), Path("photo.jpg"))
    for place, shape in (("CELLS", (5, 32, 32)), ("SCANS", (1, 128, 128))):
        Path(place).mkdir()
        tifffile = pytest.importorskip("tifffile")
        for index in range(24):
            levels = np.random.default_rng(index).integers(0, 65535, shape, dtype=np.uint16)
            tifffile.imwrite(Path(place) / f"{index}.tif", levels[0] if shape[0] == 1 else levels)


def _save(pixels_HWC: np.ndarray, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels_HWC).save(path)


def _make_vit() -> None:
    """A folder of transformers."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.ViTConfig(**sizes, image_size=32, patch_size=8)
    transformers.ViTModel(config, add_pooling_layer=False).save_pretrained("VIT")


@pytest.fixture
def here(world, tmp_path):
    """A folder of its own, with a copy of whatever a page asks for."""
    with contextlib.chdir(tmp_path):
        yield lambda name: _bring(world, name)


def _bring(world: Path, name: str) -> None:
    source, target = world / STANDS_FOR.get(name, name), Path(name)
    if source.name in RUNS and not source.exists():
        with contextlib.chdir(world):
            _train(source.name)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)


# The pages open an image by Pillow and let it go, as everybody does; Pillow closes a file when it is read to the end.
@pytest.mark.filterwarnings("ignore:.*photo.jpg:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("page", QUICK)
def test_a_page_can_be_followed(page, here):
    _follow(BLOCKS[page], here)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*photo.jpg:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("page", [name for name in RUNNABLE if name not in QUICK])
def test_every_page_can_be_followed(page, here):
    _follow(BLOCKS[page], here)


def _follow(blocks: list[Block], bring: Any) -> None:
    """From the top to the end, in this process; whatever is wrong raises."""
    names: dict[str, Any] = {"__name__": "__page__"}
    made = {word for block in blocks for words in block.commands for word in _made_by(words)}
    named = set(re.findall(r"[\w.]+", " ".join(block.text for block in blocks if not block.not_run)))
    for wanted in GIVEN:
        if wanted in named - made:
            bring(wanted)
    for block in blocks:
        if block.not_run:
            continue
        for _, verb, *words in block.commands:
            _run(verb, _without_redirection(words))
        if block.language == "python":
            exec(compile(block.text, f"{block.page}", "exec"), names)


def _made_by(words: list[str]) -> list[str]:
    return [words[words.index("--out") + 1]] if "--out" in words and words[1] == "pretrain" else []


def _without_redirection(words: list[str]) -> list[str]:
    return words[: words.index(">")] if ">" in words else words


def _run(verb: str, words: list[str]) -> None:
    options = parse(VERBS[verb].options, take(words)[1], f"echoless {verb}")
    if verb in ELSEWHERE:
        return
    result = run(verb, smaller(verb, options))
    assert VERBS[verb].exit_code(options, result) == 0


def smaller(verb: str, options: Any) -> Any:
    """The same command at the size of a test."""
    known = {field.name for field in fields(options)}
    changes: dict[str, Any] = {}
    few = {name: _few(getattr(options, name)) for name in known}
    options = replace(options, **{name: value for name, value in few.items() if value is not None})
    if verb == "pretrain" and not options.resume and options.config is None:
        changes = {"max_steps": 2, "epochs": None, "time": None, "batch_size": 8, "compile": False}
        if options.init is None:  # else the weights bring their own encoder
            changes["recipe"] = _small_recipe(options.recipe)
        if changes.get("recipe") == "demo":
            changes["patch_size"] = 16
        changes["tiles"] = min(options.tiles, 64) if options.tiles else None
    elif verb == "finetune":
        changes = {"max_steps": 1, "epochs": None, "batch_size": 8}
    elif verb == "sweep":
        changes = {"print": True, "on": "local", "slurm_options": (), "ray_options": ()}
    elif verb == "sample":
        changes = {"n": 50, "steps": 2}  # the fewest that have a Frechet distance
    elif verb == "doctor":
        changes = {"self_test": False, "plan": False}
    elif verb == "conditioning":
        changes = {"depth": 2, "width": 32, "heads": 2, "exact_up_to": 256}
    return replace(options, **{name: value for name, value in changes.items() if name in known})


def _few(value: Any) -> Any:
    """A handful of the synthetic images."""
    if not str(value).startswith("shapes"):
        return None
    return type(value)(re.sub(r"^shapes(:\d+)?", "shapes:64", str(value)))


def _small_recipe(name: str | None) -> str:
    if name is None or name == "auto" or name.startswith("mae-"):
        return "demo"
    return SMALLER.get(name, name)
