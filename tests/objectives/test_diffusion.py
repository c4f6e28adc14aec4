"""Noise prediction: the schedules are the published ones, the loss is by hand, labels are hidden as often as said."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from echoless.config import DiffusionConfig, ShortcutConfig, from_dict, to_dict, uvit_preset
from echoless.errors import ConfigError
from echoless.models import UViT
from echoless.objectives import DiffusionObjective, LossModule, diffusion_path
from echoless.objectives.paths import Discrete


class Answer(nn.Module):
    """Says what it was taught, and remembers what it was asked."""

    def __init__(self, value: torch.Tensor) -> None:
        super().__init__()
        self.value = value

    def forward(self, x, time, labels):
        self.asked = (x, time, labels)
        return self.value


@pytest.mark.parametrize(
    ("schedule", "theirs"),
    [
        ("ddpm", {"beta_start": 1e-4, "beta_end": 0.02, "beta_schedule": "linear"}),
        ("stable-diffusion", {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}),
    ],
)
def test_discrete_schedules_equal_those_of_diffusers(schedule, theirs, generator):
    from diffusers import DDPMScheduler

    scheduler = DDPMScheduler(num_train_timesteps=1000, **theirs)
    path, steps = diffusion_path(schedule), torch.arange(1, 1001, dtype=torch.float64)
    at = path.at(steps / 1000)
    torch.testing.assert_close(at.a.square().float(), scheduler.alphas_cumprod, rtol=1e-4, atol=1e-6)
    x, noise = torch.randn(2, 4, 3, generator=generator)
    for n in (1, 17, 500, 1000):
        ours = path.at(torch.tensor(n / 1000, dtype=torch.float64)).mix(x, noise)
        torch.testing.assert_close(ours, scheduler.add_noise(x, noise, torch.tensor([n - 1])), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("schedule", ["vp", "ddpm", "stable-diffusion"])
def test_the_loss_is_the_mean_squared_error_of_the_noise(schedule, generator):
    objective = DiffusionObjective(DiffusionConfig(schedule=schedule), shape=(2, 4, 4))
    images, answer = torch.randn(2, 6, 2, 4, 4, generator=generator)
    draws, model = objective.draw(6, seed=3, step=5), Answer(answer)
    loss = objective.loss(model, images, None, draws)
    np.testing.assert_allclose(float(loss), ((answer - draws["noise"]) ** 2).double().mean(), rtol=1e-6)
    noisy, time, labels = model.asked
    assert labels is None
    for b in range(6):
        u = float(draws["time"][b])
        if schedule == "vp":
            a2, told = math.exp(-(0.1 * u + 19.9 * u * u / 2)), 999 * u
        else:
            start, end, root = (1e-4, 0.02, 1) if schedule == "ddpm" else (0.00085, 0.012, 2)
            told = 1 + int(u * 1000)
            betas = np.linspace(start ** (1 / root), end ** (1 / root), 1000) ** root
            a2 = np.prod(1 - betas[:told])
        np.testing.assert_allclose(float(time[b]), told, rtol=1e-5)
        expected = math.sqrt(a2) * images[b] + math.sqrt(1 - a2) * draws["noise"][b]
        torch.testing.assert_close(noisy[b], expected, rtol=1e-4, atol=1e-4)


def test_discrete_times_are_1_to_n_equally_often():
    objective = DiffusionObjective(DiffusionConfig(schedule="ddpm"), shape=(1, 1, 1))
    uniform = torch.tensor([0.0, 0.9999999, 0.5])
    assert objective.network_time(objective.training_time(uniform)).round().tolist() == [1, 1000, 501]
    uniform = torch.rand(20_000, generator=torch.Generator().manual_seed(0))
    drawn = objective.network_time(objective.training_time(uniform))
    np.testing.assert_allclose(drawn, drawn.round(), rtol=1e-6)
    assert abs(float(drawn.mean()) - 500.5) < 8


def test_labels_are_hidden_as_often_as_said_and_by_draws_alone():
    objective = DiffusionObjective(DiffusionConfig(label_dropout=0.15), (1, 1, 1), classes=10)
    labels, images = torch.arange(20_000) % 10, torch.zeros(20_000, 1, 1, 1)
    model = Answer(images)
    draws = objective.draw(20_000, seed=0, step=0)
    objective.loss(model, images, labels, draws)
    told = model.asked[2]
    share = float((told == 10).float().mean())
    print(f"label dropout 0.15: {share:.4f} of 20000 labels were hidden")
    assert abs(share - 0.15) < 0.01
    assert torch.equal(told[told != 10], labels[told != 10])
    objective.loss(model, images, labels, draws)
    assert torch.equal(model.asked[2], told), "the same draws hide the same labels"


@pytest.mark.parametrize(("rate", "hidden"), [(0.0, False), (1.0, True)])
def test_never_and_always_are_exact(rate, hidden):
    objective = DiffusionObjective(DiffusionConfig(label_dropout=rate), (1, 1, 1), classes=3)
    model = Answer(torch.zeros(50, 1, 1, 1))
    objective.loss(model, torch.zeros(50, 1, 1, 1), torch.ones(50).long(), objective.draw(50, 0, 0))
    assert (model.asked[2] == (3 if hidden else 1)).all()


def test_unlabelled_samples_count_as_no_label_and_missing_labels_are_refused():
    objective = DiffusionObjective(DiffusionConfig(label_dropout=0.0), (1, 1, 1), classes=3)
    model, draws = Answer(torch.zeros(2, 1, 1, 1)), objective.draw(2, 0, 0)
    objective.loss(model, torch.zeros(2, 1, 1, 1), torch.tensor([-1, 2]), draws)
    assert model.asked[2].tolist() == [3, 2]
    with pytest.raises(ConfigError, match="the model has 3 classes, but the data has no labels"):
        objective.loss(model, torch.zeros(2, 1, 1, 1), None, draws)


def test_labels_of_the_data_do_not_reach_an_unconditional_model():
    objective = DiffusionObjective(DiffusionConfig(), (1, 1, 1))
    model = Answer(torch.zeros(2, 1, 1, 1))
    objective.loss(model, torch.zeros(2, 1, 1, 1), torch.tensor([1, 2]), objective.draw(2, 0, 0))
    assert model.asked[2] is None


@pytest.mark.parametrize("schedule", ["vp", "stable-diffusion"])
def test_a_tiny_uvit_learns(schedule):
    config = uvit_preset("uvit-tiny", image_size=(16, 16), shortcuts=ShortcutConfig(alpha_min=0.7))
    config = replace(config, width=64, depth=4, heads=2)
    model = UViT(config, torch.Generator().manual_seed(0))
    objective = DiffusionObjective(DiffusionConfig(schedule=schedule), (3, 16, 16))
    module, optimiser = LossModule(model, objective), torch.optim.AdamW(model.parameters(), lr=3e-3)
    images = torch.ones(16, 3, 16, 16)
    losses = []
    for step in range(30):
        optimiser.zero_grad()
        loss = module(images, None, objective.draw(16, seed=0, step=step))
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    print(f"U-ViT, {schedule}, 30 steps: loss {losses[0]:.3f} to {losses[-1]:.3f}")
    assert np.mean(losses[-3:]) < 0.8 * losses[0]


def test_configs_survive_json_and_refuse_nonsense():
    config = DiffusionConfig(schedule="ddpm", label_dropout=0.0)
    assert from_dict(DiffusionConfig, to_dict(config)) == config
    with pytest.raises(ConfigError, match=r"schedule is 'ddmp'; allowed: vp, ddpm, .*; did you mean 'ddpm'"):
        DiffusionConfig(schedule="ddmp")


@pytest.mark.parametrize("first", [0, 1])
def test_a_network_that_counts_its_steps_from_first_step_is_told_so(first):
    objective = DiffusionObjective(DiffusionConfig(schedule="ddpm", first_step=first), (1, 1, 1))
    ends = objective.network_time(objective.training_time(torch.tensor([0.0, 0.9999999])))
    assert ends.round().tolist() == [first, 999 + first]


def test_at_a_step_of_a_discrete_schedule_the_rate_is_that_of_the_step_that_ends_there():
    """Eight steps, so that n / 8 is exact: a'(n / 8) / a(n / 8) is 8 times half of log(1 - beta_n)."""
    betas = torch.linspace(0.01, 0.3, 8, dtype=torch.float64)
    at = Discrete(betas).at(torch.arange(1, 9, dtype=torch.float64) / 8)
    torch.testing.assert_close(at.da / at.a, 8 * torch.log1p(-betas) / 2)
