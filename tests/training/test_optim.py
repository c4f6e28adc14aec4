"""The learning rate is its closed form; decay touches matrices only; every optimiser by name trains and resumes
bitwise; bf16, averages and accumulation do what their formulas say."""

from __future__ import annotations

import math
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "reliability"))
from tiny import fingerprint, tiny_config, tiny_images, tiny_run

from echoless.config import OptimConfig
from echoless.data import AugmentConfig, Loader
from echoless.errors import ConfigError
from echoless.models import MAE
from echoless.objectives import MaskedObjective
from echoless.randomness import generator_for
from echoless.runtime import Team
from echoless.training import learning_rate, make_optimizer, make_trainee, take_step
from echoless.training.optim import clip_gradients, set_rates, weight_decay
from echoless.training.uncompiled import UncompiledAdamW

ALONE = Team(0, 1, torch.device("cpu"))


@pytest.fixture(scope="module")
def images():
    return tiny_images()


def trainee_of(config):
    rows, columns = config.model.encoder.grid
    model = MAE(config.model, generator_for(config.seed, "init", 0))
    return make_trainee(config, model, MaskedObjective(config.objective, rows * columns), ALONE)


def batches(images, config, count: int):
    loader = Loader(
        images,
        size=config.model.encoder.image_size,
        batch_size=config.batch_size,
        seed=config.seed,
        mean=config.data.mean,
        std=config.data.std,
        augment=AugmentConfig(),
        workers=0,
    )
    return [loader.batch(step) for step in range(count)]


def test_the_cosine_ends_at_the_smallest_rate():
    """He et al. 2022 fine-tune from 2e-3 at batch 1024 to 1e-6."""
    config = OptimConfig(base_lr=5e-4, warmup=0.0, min_lr=1e-6)
    rate = [learning_rate(step, steps=1000, batch_size=1024, config=config) for step in (0, 500, 1000)]
    assert rate == pytest.approx([2e-3, (2e-3 + 1e-6) / 2, 1e-6], rel=1e-12)
    low = replace(config, base_lr=1e-9)
    assert learning_rate(900, steps=1000, batch_size=256, config=low) == pytest.approx(1e-9), "never above the peak"


def test_weight_decay_follows_dinos_cosine_and_is_constant_otherwise():
    config = OptimConfig(weight_decay=0.04, weight_decay_end=0.4)
    found = [weight_decay(step, steps=100, config=config) for step in (0, 25, 50, 100)]
    expected = [0.4 + (0.04 - 0.4) * (1 + math.cos(math.pi * step / 100)) / 2 for step in (0, 25, 50, 100)]
    assert found == pytest.approx(expected, rel=1e-12) and (found[0], found[-1]) == pytest.approx((0.04, 0.4))
    assert weight_decay(50, steps=100, config=OptimConfig(weight_decay=0.04)) == 0.04


@pytest.mark.parametrize(
    ("which", "tokens", "biases"), [("matrices", 0.0, 0.0), ("authors", 0.3, 0.0), ("all", 0.3, 0.3)]
)
def test_weight_decay_applies_to_the_parameters_that_are_named(which, tokens, biases):
    """Tokens and learned alphas are decayed by the authors, like matrices; U-ViT decays every parameter."""
    images = tiny_images(4)
    config = tiny_config(images, steps=2).model
    encoder = replace(config.encoder, shortcuts=replace(config.encoder.shortcuts, variant="learnable"))
    model = MAE(replace(config, encoder=encoder), generator_for(0, "init", 0))
    optimizer = make_optimizer(model, OptimConfig(weight_decay=0.3, weight_decay_on=which))
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    named = {name: decay[id(parameter)] for name, parameter in model.named_parameters()}
    assert len(named) == len(decay)
    assert {named["encoder.cls_token"], named["decoder.skips.0.mask_token"]} == {tokens}
    assert named["encoder.blocks.0.attn_shortcut.alpha"] == tokens
    assert named["encoder.blocks.0.norm1.weight"] == named["encoder.patch_embed.bias"] == biases
    assert named["encoder.patch_embed.weight"] == 0.3


def test_a_changing_weight_decay_reaches_the_groups_that_have_any():
    model = torch.nn.Linear(2, 2)
    optimizer = make_optimizer(model, OptimConfig(weight_decay=0.0, weight_decay_end=0.4))
    set_rates(optimizer, 1.0, 0.2)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.2, 0.0]


def test_gradients_are_clipped_together_or_each_on_its_own():
    for how, expected in (("global", [0.6, 0.8]), ("parameter", [1.0, 1.0])):
        model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(1)) for _ in range(2)])
        for parameter, gradient in zip(model, (3.0, 4.0)):
            parameter.grad = torch.tensor([gradient])
        norm = clip_gradients(model, OptimConfig(clip=1.0, clip_by=how))
        assert float(norm) == pytest.approx(5.0)
        assert [float(p.grad) for p in model] == pytest.approx(expected, rel=1e-4)


def test_the_learning_rate_is_a_warm_up_and_half_a_cosine():
    config = OptimConfig(base_lr=1.5e-4, warmup=40 / 800)
    rate = [learning_rate(step, steps=800, batch_size=1024, config=config) for step in range(800)]
    peak = 6e-4  # the paper's, at batch 1024
    assert rate[:40] == pytest.approx([peak * (k + 1) / 40 for k in range(40)], rel=1e-12)
    cosine = [peak * math.cos(math.pi / 2 * (k - 40) / 760) ** 2 for k in range(40, 800)]  # (1 + cos 2x) / 2 = cos^2 x
    assert rate[40:] == pytest.approx(cosine, rel=1e-9)
    assert max(rate) == pytest.approx(peak) and all(value > 0 for value in rate)


def test_a_constant_rate_stays_at_its_peak_and_no_warm_up_starts_there():
    config = OptimConfig(base_lr=1e-3, warmup=0.0, decay="constant")
    assert {learning_rate(step, steps=10, batch_size=128, config=config) for step in range(10)} == {5e-4}


def test_weight_decay_is_on_matrices_only(images):
    model = MAE(tiny_config(images).model, generator_for(0, "init", 0))
    decayed, free = make_optimizer(model, OptimConfig(weight_decay=0.05)).param_groups
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.05, 0.0)
    assert all(names[id(p)].endswith("weight") and p.ndim == 2 for p in decayed["params"])
    kinds = {names[id(p)].rsplit(".", 1)[-1] for p in free["params"]}
    assert "bias" in kinds and any("token" in kind for kind in kinds), kinds
    assert len(decayed["params"]) + len(free["params"]) == len(list(model.parameters()))


@pytest.mark.parametrize("name", ["adamw", "soap", "muon"])
def test_every_optimiser_learns_a_batch_by_heart(name, images):
    config = tiny_config(images, steps=30, ema=None)
    config = replace(config, optim=replace(config.optim, name=name, base_lr=0.2, decay="constant"))
    (batch,) = batches(images, config, 1)
    trainee = trainee_of(config)
    losses = [take_step(trainee, replace(batch, step=step)).loss for step in range(30)]
    first, last = sum(losses[:10]) / 10, sum(losses[-10:]) / 10
    print(f"{name}: loss {first:.3f} to {last:.3f} in 30 steps")
    assert last < 0.95 * first


@pytest.mark.parametrize("name", ["adamw", "soap", "muon"])
def test_every_optimiser_resumes_bitwise(name, images, tmp_path):
    config = tiny_config(images, steps=6, ema=None)
    config = replace(config, optim=replace(config.optim, name=name))
    tiny_run(tmp_path / "whole", images, config, checkpoint_every=3)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    shutil.rmtree(tmp_path / "cut" / "checkpoints" / "step-00000006")
    tiny_run(tmp_path / "cut", images, config, checkpoint_every=3, resume=True)
    assert fingerprint(tmp_path / "cut", 6) == fingerprint(tmp_path / "whole", 6)


def test_adamw_is_torchs_to_the_bit():
    """Losses, weights and stored state, with parameters in two groups."""
    states = []
    for make in (torch.optim.AdamW, UncompiledAdamW):
        network = torch.nn.Linear(5, 3)
        for weight in network.parameters():
            torch.nn.init.normal_(weight, generator=generator_for(0, "init", weight.ndim))
        groups = [{"params": [network.weight], "weight_decay": 0.1}, {"params": [network.bias], "weight_decay": 0.0}]
        optimizer = make(groups, lr=1e-2, betas=(0.9, 0.95), fused=True)
        for step in range(5):
            optimizer.zero_grad()
            network(torch.full((2, 5), float(step))).square().sum().backward()
            optimizer.step()
        stored = optimizer.state_dict()
        optimizer.load_state_dict(stored)
        states.append((network.state_dict(), stored))
    for one, other in zip(*states):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("error", [ImportError("no"), RuntimeError("broken")])
def test_a_missing_or_broken_library_is_one_sentence(error, monkeypatch):
    class Broken:
        def find_spec(self, name, *_):
            if name == "pytorch_optimizer":
                raise error

    monkeypatch.delitem(sys.modules, "pytorch_optimizer", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    sentence = r"optimizer is 'muon', which needs pytorch-optimizer \((no|broken)\); install echoless anew"
    with pytest.raises(ConfigError, match=sentence):
        make_optimizer(torch.nn.Linear(2, 2), OptimConfig(name="muon"))


def test_bf16_stays_finite_and_near_fp32(images):
    config = tiny_config(images, steps=10, ema=None)
    losses = {}
    for precision in ("fp32", "bf16"):
        trainee = trainee_of(replace(config, precision=precision))
        losses[precision] = [take_step(trainee, batch).loss for batch in batches(images, config, 10)]
        assert all(p.dtype == torch.float32 and p.isfinite().all() for p in trainee.model.parameters())
    gap = max(abs(a - b) for a, b in zip(losses["fp32"], losses["bf16"]))
    print(f"bf16 against fp32, 10 steps: largest difference of the loss {gap:.4f}")
    assert 0 < gap < 0.02


def test_the_average_is_its_closed_form(images):
    """e_n = d^(n-1) p_1 + (1 - d) sum_k d^(n-k) p_k, k = 2..n: the first update copies."""
    config, decay, steps = tiny_config(images, steps=6, ema=0.9), 0.9, 6
    trainee = trainee_of(config)
    seen = []
    for batch in batches(images, config, steps):
        take_step(trainee, batch)
        seen.append(torch.cat([p.detach().flatten().double() for p in trainee.model.parameters()]))
    weights = [decay ** (steps - 1)] + [(1 - decay) * decay ** (steps - k) for k in range(2, steps + 1)]
    assert sum(weights) == pytest.approx(1)
    expected = sum(weight * point for weight, point in zip(weights, seen))
    average = torch.cat([p.detach().flatten().double() for p in trainee.ema.module.parameters()])
    torch.testing.assert_close(average, expected, rtol=1e-5, atol=1e-7)


def test_accumulated_pieces_have_the_gradient_of_the_whole_batch(images):
    gradients = []
    config = tiny_config(images, ema=None)
    config = replace(config, optim=replace(config.optim, base_lr=0.0, clip=None))
    for pieces in (1, 3, 8):
        trainee = trainee_of(replace(config, accumulate=pieces))
        report = take_step(trainee, batches(images, config, 1)[0])
        gradients.append(torch.cat([p.grad.flatten() for p in trainee.model.parameters()]))
        assert report.gradient_norm == pytest.approx(float(gradients[-1].norm()), rel=1e-5)
    for other in gradients[1:]:
        assert float((other - gradients[0]).norm() / gradients[0].norm()) < 1e-5


def test_warm_up_stable_decay_is_a_trapezoid_whose_plateau_does_not_depend_on_the_length():
    config = OptimConfig(base_lr=1e-3, warmup=0.1, decay="wsd")
    rate = [learning_rate(step, steps=100, batch_size=256, config=config) for step in range(100)]
    assert rate[:10] == pytest.approx([1e-4 * (step + 1) for step in range(10)])
    assert rate[10:80] == pytest.approx([1e-3] * 70)
    assert rate[80:] == pytest.approx([1e-3 * (100 - step) / 20 for step in range(80, 100)])
    longer = [learning_rate(step, steps=1000, batch_size=256, config=config) for step in range(100, 800)]
    assert longer == pytest.approx([1e-3] * 700)
