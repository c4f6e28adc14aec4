"""What --shard and --checkpoint-activations cannot do, and a batch beyond memory, are refused before any work."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "reliability"))
from tiny import tiny_config, tiny_images, tiny_run

from echoless.config import OptimConfig, RunConfig, RuntimeConfig, ShortcutConfig
from echoless.config.facts import DataFacts
from echoless.config.memory import least_step_bytes, require_batch_fits, require_memory_settings
from echoless.data import open_images
from echoless.errors import ConfigError, NoMemory
from echoless.randomness import generator_for
from echoless.recipes.supervised import resnet_tiny_supervised
from echoless.recipes.table import RECIPES
from echoless.runtime import Team
from echoless.training import build_task, make_trainee, room
from echoless.training.batches import make_loader
from echoless.training.step import take_step
from echoless.training.timing import Speed
from echoless.verbs import finetuning, pretraining
from echoless.verbs.configuring import with_alpha
from echoless.verbs.finetune import finetune
from echoless.verbs.pretrain import pretrain

SHARD = RuntimeConfig(shard=True)
RECOMPUTE = RuntimeConfig(checkpoint_activations=True)


@pytest.mark.parametrize("name", ["soap", "muon"])
def test_optimisers_that_need_whole_matrices_are_refused_under_shard(name):
    config = RunConfig(optim=OptimConfig(name=name))
    with pytest.raises(ConfigError, match=f"optimizer is '{name}'; allowed: adamw with --shard, because {name} needs"):
        require_memory_settings(config, SHARD)
    require_memory_settings(config, RECOMPUTE)
    require_memory_settings(config, RuntimeConfig())


def test_learnable_alphas_are_refused_under_shard():
    config = RunConfig()
    learnable = replace(config.model.encoder, shortcuts=ShortcutConfig(variant="learnable", alpha_min=1.0))
    config = replace(config, model=replace(config.model, encoder=learnable))
    with pytest.raises(ConfigError, match="variant is 'learnable'; allowed: the others with --shard"):
        require_memory_settings(config, SHARD)
    require_memory_settings(config, RECOMPUTE)


def test_batch_norms_are_not_recomputed():
    config = resnet_tiny_supervised(DataFacts(3, 32, 32, 1000, classes=10))
    with pytest.raises(ConfigError, match=r"checkpoint_activations is True, but recipe .* trains a ResNet"):
        require_memory_settings(config, RECOMPUTE)
    require_memory_settings(config, RuntimeConfig(shard=config.optim.name == "adamw"))


def test_the_verb_refuses_before_the_data_is_read(tmp_path):
    out = tmp_path / "run"
    with pytest.raises(ConfigError, match="optimizer is 'soap'; allowed: adamw with --shard"):
        pretrain(tmp_path / "nowhere", out=out, recipe="mae-tiny", optimizer="soap", shard=True)
    with pytest.raises(ConfigError, match="recipe auto fits the run into a time, which --shard cannot measure"):
        pretrain("shapes:16", out=out, shard=True, device="cpu")
    with pytest.raises(ConfigError, match="time is '3h', which --shard cannot measure"):
        pretrain("shapes:16", out=out, recipe="mae-base", time="3h", shard=True, device="cpu")
    assert not out.exists()


def _of(recipe: str, **changes) -> RunConfig:
    facts = DataFacts(3, 32, 32, 1000, classes=10)
    return replace(RECIPES[recipe](facts), **changes)


def test_a_batch_that_cannot_fit_is_refused_with_the_largest_that_might():
    """A million images were prepared for one step, for minutes, until the system killed the process."""
    config = _of("demo", batch_size=10**6)
    each = least_step_bytes(config)
    with pytest.raises(ConfigError) as refused:
        require_batch_fits(config, 20 * 10**9, "this machine", processes=1, recompute=False)
    assert str(refused.value) == (
        f"batch_size is 1000000, of which a step needs at least {each / 1e3:,.1f} GB, but this machine has 20.0 GB; "
        f"allowed: at most {20 * 10**9 // each:,}, or a larger --accumulate"
    )
    most = replace(config, batch_size=20 * 10**9 // each)
    require_batch_fits(most, 20 * 10**9, "this machine", processes=1, recompute=False)
    require_batch_fits(config, None, "this machine", processes=1, recompute=False)
    require_batch_fits(config, each * 10**6, "this machine", processes=1, recompute=False)
    require_batch_fits(config, each * 10**4, "this machine", processes=100, recompute=False)
    require_batch_fits(replace(config, accumulate=100), each * 10**4, "this machine", processes=1, recompute=False)


def test_less_is_kept_in_bf16_compiled_or_recomputed():
    config = _of("mae-tiny")
    whole, half = least_step_bytes(config), least_step_bytes(replace(config, precision="bf16"))
    pixels = 4 * 3 * 32 * 32
    assert 2 * (half - pixels) == whole - pixels == 2 * (least_step_bytes(replace(config, compile=True)) - pixels)
    assert least_step_bytes(config, recompute=True) - pixels == pytest.approx((whole - pixels) / 16, abs=4)


class _Kept:
    """Bytes that autograd keeps for the backward pass, by torch's own hooks; weights included."""

    def __init__(self) -> None:
        self.storages: dict[int, int] = {}

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        self.storages[storage.data_ptr()] = storage.nbytes()
        return tensor


def _kept_by_a_step(config: RunConfig) -> int:
    images = open_images(f"shapes:{config.batch_size}")
    statistics = {"mean": (0.5, 0.5, 0.5), "std": (0.3, 0.3, 0.3), "count": config.batch_size}
    config = replace(config, model=with_alpha(config.model), data=replace(config.data, **statistics))
    team = Team(0, 1, torch.device("cpu"))
    trainee = make_trainee(config, *build_task(config, generator_for(0, "init", 0)), team)
    (batch,) = make_loader(config, images, team, 0).batches(0, 1)
    kept = _Kept()
    with torch.autograd.graph.saved_tensors_hooks(kept.pack, lambda tensor: tensor):
        take_step(trainee, batch)
    return sum(kept.storages.values())


@pytest.mark.parametrize(
    "recipe", ["demo", "mae-tiny", "vit-tiny-supervised", "resnet-tiny-supervised", "sit-tiny", "uvit-tiny"]
)
def test_the_bound_is_below_what_a_step_keeps_and_not_by_much(recipe):
    """Nothing that would fit is refused, and a batch ten times too large is."""
    four, eight = (_kept_by_a_step(_of(recipe, batch_size=size, steps=1)) for size in (4, 8))
    measured, bound = (eight - four) / 4, least_step_bytes(_of(recipe))
    print(f"{recipe}: {measured / 1e3:.0f} kB an image are kept, at least {bound / 1e3:.0f} are said")
    assert measured / 4 < bound <= measured


@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
def test_the_verbs_refuse_a_batch_beyond_memory_and_leave_nothing(verb, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(ConfigError, match="batch_size is 1000000000, of which a step needs at least"):
        if verb == "pretrain":
            pretrain("shapes:16", out=out, recipe="demo", batch_size=10**9, max_steps=2, device="cpu")
        else:
            images = tiny_images()
            tiny_run(tmp_path / "source", images, tiny_config(images, steps=1))
            how = {"train": "shapes:16", "test": "shapes:20@test", "batch_size": 10**9, "max_steps": 1, "device": "cpu"}
            finetune(tmp_path / "source", out=out, **how)
    assert not out.exists()


@pytest.fixture
def photos(tmp_path, monkeypatch) -> Path:
    """Eight images; their pixels would be kept in `cache` beside them."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for index in range(8):
        noise = np.random.default_rng(index).integers(0, 255, (80, 80, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"{index}.png")
    monkeypatch.setenv("ECHOLESS_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.mark.parametrize("length", [{"recipe": "demo", "max_steps": 2}, {"time": "1s"}], ids=["given", "planned"])
def test_photographs_are_not_decoded_for_a_batch_that_is_refused(length, photos, tmp_path):
    """The first image of a million would be decoded an hour before the refusal."""
    with pytest.raises(ConfigError, match="batch_size is 1000000000"):
        pretrain(photos, out=tmp_path / "run", batch_size=10**9, device="cpu", **length)
    assert not (tmp_path / "run").exists() and not list((tmp_path / "cache").rglob("*.bin"))


def test_nothing_is_read_for_a_fine_tuning_whose_batch_is_refused(photos, tmp_path, monkeypatch):
    """Both sets were decoded first, and their pixels were written."""
    images = tiny_images()
    tiny_run(tmp_path / "source", images, tiny_config(images, steps=1))
    monkeypatch.setattr(finetuning, "read_images", lambda *args, **settings: pytest.fail("images were read"))
    with pytest.raises(ConfigError, match="batch_size is 1000000000, of which a step needs at least"):
        how = {"train": photos, "test": photos, "batch_size": 10**9, "device": "cpu"}
        finetune(tmp_path / "source", out=tmp_path / "run", **how)
    assert not (tmp_path / "run").exists()


def test_a_plan_is_refused_only_where_its_smallest_encoder_does_not_fit(photos, tmp_path, monkeypatch):
    """The default on a CPU was asked for the memory of mae-micro, although it trains mae-femto, an eighth of it."""
    facts = DataFacts(3, 80, 80, 8)
    named = least_step_bytes(replace(RECIPES["auto"](facts), batch_size=8))
    monkeypatch.setattr(room, "memory_bytes", lambda: (8 * named - 1, 8 * named - 1))
    monkeypatch.setattr(pretraining, "measure_speed", lambda *args, **settings: Speed(8.0))
    how = {"device": "cpu", "batch_size": 8, "workers": 0}
    assert pretrain(photos, out=tmp_path / "run", time="1s", **how)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    femto = RECIPES["mae-femto"](facts).model.encoder
    assert config["model"]["encoder"]["width"] == femto.width and config["batch_size"] == 8
    with pytest.raises(ConfigError, match="batch_size is 8, of which a step needs at least"):
        pretrain(photos, out=tmp_path / "long", max_steps=1, **how)


@pytest.mark.parametrize("this", [True, False], ids=["this process", "another"])
def test_an_encoder_that_one_process_has_no_memory_for_is_measured_by_none(this, monkeypatch):
    """Nodes may have unequal memory; where one ended the search and another went on, both would wait for ever."""
    said = []

    def configured(*args, **settings):
        if this:
            raise NoMemory("this one")
        return _of("demo")

    monkeypatch.setattr(pretraining, "configure", configured)
    team = SimpleNamespace(maximum=lambda value: said.append(value) or [1.0])
    request = pretraining.Request(None, None, None, SimpleNamespace(team=team), None, 0.0)
    with pytest.raises(NoMemory, match="this one" if this else "another process of this run has no memory"):
        request._configured(None, None)
    assert said == [float(this)]
