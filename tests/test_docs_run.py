"""Every block of code in the documentation is run, at a tiny size, or says why not.

A page is followed from top to bottom in a folder with small stand-ins for what it names: PHOTOS, HELD_OUT, RUN, ... Its
commands go through the real parser; then sizes are cut (steps, images, samples), nothing else. Sweeps print their
commands; `demo` and `serve` are run by tests of their own.

    pytest tests/test_docs_run.py -m "slow or not slow" -k folder
"""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from docs_blocks import PAGES, REASONS, Block, blocks_of
from PIL import Image

from echoless.cli.output import take
from echoless.cli.parsing import parse
from echoless.verbs.table import VERBS, run

BLOCKS = {page.name: blocks_of(page) for page in PAGES}
RUNNABLE = [name for name, blocks in BLOCKS.items() if any(b.language in ("bash", "python") for b in blocks)]
QUICK = ("embed.md",)  # a page that is followed in every run of the tests
ELSEWHERE = ("demo", "serve")
# Recipes that are too large for a test -> those that stand for them.
SMALLER = {"vit-supervised": "vit-tiny-supervised", "resnet-supervised": "resnet-tiny-supervised"}


def test_every_block_that_is_not_run_says_a_known_reason():
    reasons = {block.not_run for blocks in BLOCKS.values() for block in blocks if block.not_run}
    assert reasons <= set(REASONS)


def test_every_command_can_be_parsed():
    count = 0
    for blocks in BLOCKS.values():
        for block in blocks:
            for _, verb, *words in block.commands:
                parse(VERBS[verb].options, take(_without_redirection(words))[1], f"{block.page}: echoless {verb}")
                count += 1
    assert count > 60


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> Path:
    """Everything that pages name without making it."""
    folder = tmp_path_factory.mktemp("world")
    with contextlib.chdir(folder):
        _draw_images()
        small = {"recipe": "demo", "batch_size": 8, "max_steps": 2, "patch_size": 16, "snapshots": 2}
        from echoless.verbs.evaluate import evaluate
        from echoless.verbs.pretrain import pretrain

        for seed, name in enumerate(("RUN", "OTHER", "THIRD")):
            pretrain("PHOTOS", out=name, seed=seed, **small)
        evaluate("RUN", train="PHOTOS", metrics=("knn",), baselines=False)
        _make_vit()
    return folder


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
    """A folder of transformers, for `inspect`."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    transformers.ViTConfig(**sizes, image_size=32, patch_size=8).save_pretrained("VIT")


@pytest.fixture
def here(world, tmp_path):
    """A folder of its own, with a copy of whatever a page asks for."""
    with contextlib.chdir(tmp_path):
        yield lambda name: _bring(world, name)


def _bring(world: Path, name: str) -> None:
    source, target = world / name, Path(name)
    if target.exists() or not source.exists():
        return
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)


@pytest.mark.parametrize("page", QUICK)
def test_a_page_can_be_followed(page, here):
    _follow(BLOCKS[page], here)


@pytest.mark.slow
@pytest.mark.parametrize("page", [name for name in RUNNABLE if name not in QUICK])
def test_every_page_can_be_followed(page, here):
    _follow(BLOCKS[page], here)


def _follow(blocks: list[Block], bring: Any) -> None:
    """From the top to the end, in this process; whatever is wrong raises."""
    names: dict[str, Any] = {"__name__": "__page__"}
    made = {word for block in blocks for words in block.commands for word in _made_by(words)}
    for wanted in ("PHOTOS", "HELD_OUT", "FLAT", "labels.csv", "photo.jpg", "CELLS", "SCANS", "VIT"):
        bring(wanted)
    for wanted in ("RUN", "OTHER", "THIRD"):
        if wanted not in made:
            bring(wanted)
    for block in blocks:
        if block.not_run:
            continue
        for _, verb, *words in block.commands:
            _run(verb, _without_redirection(words), bring)
        if block.language == "python":
            exec(compile(block.text, f"{block.page}", "exec"), names)  # noqa: S102


def _made_by(words: list[str]) -> list[str]:
    return [words[words.index("--out") + 1]] if "--out" in words and words[1] == "pretrain" else []


def _without_redirection(words: list[str]) -> list[str]:
    return words[: words.index(">")] if ">" in words else words


def _run(verb: str, words: list[str], bring: Any) -> None:
    options = parse(VERBS[verb].options, take(words)[1], f"echoless {verb}")
    if verb in ELSEWHERE:
        return
    result = run(verb, smaller(verb, options))
    assert VERBS[verb].exit_code(options, result) == 0


def smaller(verb: str, options: Any) -> Any:
    """The same command at the size of a test."""
    known = {field.name for field in fields(options)}
    changes: dict[str, Any] = {}
    if verb == "pretrain" and not options.resume and options.config is None:
        changes = {"max_steps": 2, "epochs": None, "time": None, "batch_size": 8, "compile": False}
        changes["recipe"] = _small_recipe(options.recipe)
        if changes["recipe"] == "demo":
            changes["patch_size"] = 16
    elif verb == "finetune":
        changes = {"max_steps": 1, "epochs": None, "batch_size": 8}
    elif verb == "sweep":
        changes = {"print": True}
    elif verb == "sample":
        changes = {"n": 2, "steps": 2}
    elif verb == "doctor":
        changes = {"self_test": False}
    elif verb == "conditioning":
        changes = {"depth": 2, "width": 32, "heads": 2, "exact_up_to": 256}
    return replace(options, **{name: value for name, value in changes.items() if name in known})


def _small_recipe(name: str | None) -> str:
    if name is None or name == "auto" or name.startswith("mae-"):
        return "demo"
    return SMALLER.get(name, name)
