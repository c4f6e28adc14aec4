"""Interpolants: every (interpolant, prediction) pair means the same score; losses are the published ones, by hand."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path as File

import numpy as np
import pytest
import torch
from torch import nn

sys.path.insert(0, str(File(__file__).parent))
from gaussian import exact, numbers

from echoless.config import FlowConfig, ShortcutConfig, from_dict, sit_preset, to_dict
from echoless.errors import ConfigError
from echoless.models import SiT
from echoless.objectives import (
    PREDICTIONS,
    FlowObjective,
    LossModule,
    convert,
    interpolant_path,
    sampling_interval,
    take,
    training_interval,
)
from echoless.objectives.paths import VP, Discrete, ddpm_betas, stable_diffusion_betas

PATHS = {name: interpolant_path(name) for name in ("linear", "gvp", "vp")} | {
    "diffusion vp": VP(),
    "ddpm betas": Discrete(ddpm_betas()),
    "sd betas": Discrete(stable_diffusion_betas()),
}


@pytest.mark.parametrize("name", PATHS)
def test_every_prediction_converts_to_every_other(name, generator):
    """Against the closed forms of a Gaussian, at times all over the path."""
    path, worst = PATHS[name], 0.0
    x = torch.randn(5, 3, dtype=torch.float64, generator=generator)
    for t in (0.0215, 0.2, 0.5, 0.8, 0.985):
        t = torch.tensor(t, dtype=torch.float64)
        for given in PREDICTIONS:
            value = exact(given, path)(x, t)
            for wanted in PREDICTIONS:
                expected = exact(wanted, path)(x, t)
                found = convert(value, x, path.at(t), given, wanted)
                worst = max(worst, float(((found - expected).abs() / (1 + expected.abs())).max()))
    print(f"{name}: 16 conversions at 5 times, largest relative error {worst:.1e}")
    assert worst < 1e-9


@pytest.mark.parametrize("name", PATHS)
def test_the_rates_are_the_derivatives(name):
    path, h = PATHS[name], 1e-6
    for t in (0.1234, 0.51235, 0.9004):
        (a0, s0, _, _), (a1, s1, _, _) = numbers(path, t - h), numbers(path, t + h)
        _, _, da, ds = numbers(path, t)
        np.testing.assert_allclose([(a1 - a0) / (2 * h), (s1 - s0) / (2 * h)], [da, ds], rtol=1e-5)


def test_the_ends_are_noise_and_data():
    for name in ("linear", "gvp"):
        np.testing.assert_allclose(numbers(PATHS[name], 0.0)[:2], (0, 1), atol=1e-12)
        np.testing.assert_allclose(numbers(PATHS[name], 1.0)[:2], (1, 0), atol=1e-12)
    a, s, _, _ = numbers(PATHS["vp"], 0.0)
    np.testing.assert_allclose((a, s), (math.exp(-5.025), math.sqrt(1 - math.exp(-10.05))), rtol=1e-12)
    assert numbers(PATHS["vp"], 0.3)[:2] == pytest.approx(numbers(PATHS["diffusion vp"], 0.7)[:2], rel=1e-12)


def test_a_velocity_becomes_a_score_where_there_is_no_signal(generator):
    x, v = torch.randn(2, 4, 3, dtype=torch.float64, generator=generator)
    at = PATHS["linear"].at(torch.tensor(0.0, dtype=torch.float64))
    torch.testing.assert_close(convert(v, x, at, "velocity", "score"), -x)


def test_unknown_predictions_are_refused():
    at = PATHS["linear"].at(torch.tensor(0.5))
    for given, wanted in (("noise", "sigma"), ("sigma", "noise")):
        with pytest.raises(ConfigError, match="prediction is 'sigma'; allowed: velocity, noise, score, data"):
            convert(torch.zeros(1), torch.zeros(1), at, given, wanted)


class Answer(nn.Module):
    """Says what it was taught, and remembers what it was asked."""

    def __init__(self, value: torch.Tensor) -> None:
        super().__init__()
        self.value = value

    def forward(self, x, time, labels):
        self.asked = (x, time, labels)
        return self.value


PAIRS = [("velocity", "none")] + [(p, w) for p in ("noise", "score") for w in ("none", "velocity", "likelihood")]


@pytest.mark.parametrize("interpolant", ["linear", "gvp", "vp"])
@pytest.mark.parametrize(("prediction", "weighting"), PAIRS)
def test_the_loss_is_the_published_one(interpolant, prediction, weighting, generator):
    objective = FlowObjective(
        FlowConfig(interpolant=interpolant, prediction=prediction, weighting=weighting), shape=(2, 4, 4)
    )
    images, answer = torch.randn(2, 6, 2, 4, 4, generator=generator)
    draws, model = objective.draw(6, seed=3, step=5), Answer(answer)
    loss = objective.loss(model, images, None, draws)
    start, end = training_interval(objective.config)
    expected = []
    for b in range(6):
        t = start + (end - start) * float(draws["time"][b])
        image, noise, said = (v[b].double().numpy() for v in (images, draws["noise"], answer))
        if interpolant == "linear":
            a, s, da, ds = t, 1 - t, 1.0, -1.0
        elif interpolant == "gvp":
            a, s = math.sin(math.pi * t / 2), math.cos(math.pi * t / 2)
            da, ds = math.pi / 2 * s, -math.pi / 2 * a
        else:
            a = math.exp(-0.25 * (1 - t) ** 2 * 19.9 - 0.05 * (1 - t))
            s, da = math.sqrt(1 - a**2), a * (0.5 * (1 - t) * 19.9 + 0.05)
            ds = -a * da / s
        np.testing.assert_allclose(model.asked[0][b], a * image + s * noise, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(float(model.asked[1][b]), t, rtol=1e-6)
        spread = da / a * s**2 - s * ds
        weight = {"none": 1.0, "velocity": (spread / s) ** 2, "likelihood": spread / s**2}[weighting]
        error = {"velocity": said - (da * image + ds * noise), "noise": said - noise, "score": said * s + noise}
        expected.append(weight * (error[prediction] ** 2).mean())
    np.testing.assert_allclose(float(loss), np.mean(expected), rtol=2e-4)


def test_the_intervals_are_the_published_ones():
    def both(**options):
        config = FlowConfig(**options)
        return tuple(training_interval(config)), tuple(sampling_interval(config))

    assert both(interpolant="linear") == both(interpolant="gvp") == ((0, 1), (0, 1))
    assert both(interpolant="linear", prediction="noise") == ((1e-3, 0.999), (1e-3, 0.999))
    assert both(interpolant="gvp", prediction="score") == ((1e-3, 0.999), (1e-3, 0.999))
    for prediction in ("velocity", "noise", "score"):
        assert both(interpolant="vp", prediction=prediction) == ((0, 1 - 1e-5), (0, 1 - 1e-3))


@pytest.mark.parametrize(("prediction", "weighting"), PAIRS)
@pytest.mark.parametrize("interpolant", ["linear", "gvp", "vp"])
def test_the_loss_is_finite_at_both_ends_of_training(interpolant, prediction, weighting, generator):
    config = FlowConfig(interpolant=interpolant, prediction=prediction, weighting=weighting)
    objective = FlowObjective(config, shape=(1, 2, 2))
    draws = objective.draw(2, 0, 0) | {"time": torch.tensor([0.0, 1 - 2**-24])}
    image = torch.randn(2, 1, 2, 2, generator=generator)
    assert objective.loss(Answer(torch.zeros(2, 1, 2, 2)), image, None, draws).isfinite()


def test_draws_are_made_for_the_global_batch_and_sliced():
    objective = FlowObjective(FlowConfig(), (3, 4, 4), classes=10)
    images, labels = torch.rand(8, 3, 4, 4), torch.arange(8)
    draws = objective.draw(8, seed=1, step=2)
    again = objective.draw(8, seed=1, step=2)
    assert all(torch.equal(draws[name], again[name]) for name in draws)
    whole = objective.loss(Answer(torch.ones(8, 3, 4, 4)), images, labels, draws)
    halves = [
        objective.loss(Answer(torch.ones(4, 3, 4, 4)), images[part], labels[part], take(draws, part))
        for part in (slice(0, 4), slice(4, 8))
    ]
    torch.testing.assert_close(sum(halves) / 2, whole)


def test_a_tiny_sit_learns():
    config = sit_preset("sit-tiny", image_size=(16, 16), classes=2, shortcuts=ShortcutConfig(alpha_min=0.7))
    config = replace(config, width=64, depth=4, heads=2)
    model = SiT(config, torch.Generator().manual_seed(0))
    objective = FlowObjective(FlowConfig(), (3, 16, 16), classes=2)
    module, optimiser = LossModule(model, objective), torch.optim.AdamW(model.parameters(), lr=3e-3)
    labels = torch.arange(16) % 2
    images = (2.0 * labels - 1)[:, None, None, None].expand(-1, 3, 16, 16)
    losses = []
    for step in range(30):
        optimiser.zero_grad()
        loss = module(images, labels, objective.draw(16, seed=0, step=step))
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    print(f"SiT, 30 steps: loss {losses[0]:.3f} to {losses[-1]:.3f}")
    assert np.mean(losses[-3:]) < 0.8 * losses[0]


def test_configs_survive_json_and_refuse_nonsense():
    config = FlowConfig(interpolant="gvp", prediction="score", weighting="likelihood", label_dropout=0.2)
    assert from_dict(FlowConfig, to_dict(config)) == config
    with pytest.raises(ConfigError, match="interpolant is 'liner'; allowed: linear, gvp, vp; did you mean 'linear'"):
        FlowConfig(interpolant="liner")
    with pytest.raises(ConfigError, match="weighting is 'likelihood'; allowed: none, with prediction velocity"):
        FlowConfig(weighting="likelihood")
