"""Every sampler that has a name reaches the exact moments of Gaussian data, when it is given the exact prediction."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from gaussian import COVARIANCE, MEAN, exact

from echoless.config import DiffusionConfig, FlowConfig
from echoless.errors import ConfigError
from echoless.objectives import SOLVERS, Sampling, denoising_objective, draw_samples, sampler_for
from echoless.objectives.samplers import SampleNoise, dpm_solver_singlestep, fast_orders, fast_times

OBJECTIVES = {
    "vp": DiffusionConfig(),
    "ddpm": DiffusionConfig(schedule="ddpm"),
    "linear": FlowConfig(),
    "gvp noise": FlowConfig(interpolant="gvp", prediction="noise"),
}
COUNTS = {"dopri5": 16, "em": 512, "sde": 512}  # fewer where every sample costs more
CASES = [
    (name, sampler)
    for name, config in OBJECTIVES.items()
    for sampler in SOLVERS
    if sampler != ("sde" if isinstance(config, DiffusionConfig) else "em")
]


def exact_network(objective):
    """The perfect model: it is given the network's time, and must find the path's."""
    field = exact(objective.prediction, objective.path)

    def model(x, time_B, labels_B):
        scale = float(objective.network_time(torch.tensor(1.0)))
        time = time_B[0] if bool((time_B == time_B[0]).all()) else time_B
        return field(x.flatten(1), time.double() / scale).view_as(x)

    return model


@pytest.mark.parametrize(("name", "sampler"), CASES)
def test_exact_predictions_give_the_moments_of_the_data(name, sampler):
    objective = denoising_objective(OBJECTIVES[name], (3, 1, 1))
    count = COUNTS.get(sampler, 2048)
    steps = 100 if sampler in ("em", "sde", "euler", "ddim") else 40
    noise = SampleNoise(0, range(count), (3, 1, 1))
    samples = draw_samples(exact_network(objective), objective, Sampling(name=sampler, steps=steps), noise)
    found = samples.flatten(1).double().numpy()
    # What independent draws from the truth would be off by, four times over.
    error = np.sqrt(np.diag(COVARIANCE) / count)
    assert np.all(np.abs(found.mean(axis=0) - MEAN) < 4 * error + 0.02)
    assert np.abs(np.cov(found.T) - COVARIANCE).max() < 4 * 2 * np.sqrt(2 / count) + 0.05


def test_a_sampler_that_is_not_for_the_objective_is_refused_and_each_has_its_default():
    diffusion, flow = (denoising_objective(config, (3, 1, 1)) for config in (DiffusionConfig(), FlowConfig()))
    assert (sampler_for(diffusion), sampler_for(flow)) == ("dpm++2m", "heun")
    for objective, wrong in ((diffusion, "sde"), (flow, "em")):
        with pytest.raises(
            ConfigError, match=f"sampler is '{wrong}', which is not for this objective; allowed: .*heun"
        ):
            sampler_for(objective, wrong)


@pytest.mark.parametrize("sampler", ["em", "ddim", "dpm++2m", "dpm++3", "dpm3", "heun"])
def test_a_wrong_prediction_does_not_lead_out_of_bounds(sampler):
    """A network that always says "no noise at all" expects data a hundred times too far out."""
    objective = denoising_objective(DiffusionConfig(), (3, 1, 1))
    low, high = torch.tensor(-1.0), torch.tensor(1.0)

    def ends(clip):
        noise = SampleNoise(0, range(8), (3, 1, 1))
        sampling = Sampling(name=sampler, steps=50, clip=clip)
        return draw_samples(lambda x, *_: torch.zeros_like(x), objective, sampling, noise, bounds=(low, high))

    inside, outside = ends(clip=True).abs().max(), ends(clip=False).abs().max()
    print(f"{sampler}: largest value {inside:.2f} with bounds of 1, {outside:.1f} without")
    assert inside < 1.2 and outside > 10  # the last time is not quite zero, so a little noise may be left


def test_bounds_change_nothing_for_data_within_them():
    objective = denoising_objective(DiffusionConfig(), (3, 1, 1))
    wide = (torch.tensor(-1000.0), torch.tensor(1000.0))
    free, kept = (
        draw_samples(
            exact_network(objective), objective, Sampling(), SampleNoise(0, range(64), (3, 1, 1)), bounds=bounds
        )
        for bounds in (None, wide)
    )
    torch.testing.assert_close(kept, free, rtol=1e-4, atol=1e-4)


def test_dpm3_is_the_sampler_of_uvit_m_and_l():
    """DPM-Solver-fast, order 3, noise prediction, from time 1 to 1e-4: 50 evaluations at the published times."""
    objective = denoising_objective(DiffusionConfig(), (3, 1, 1))
    network, asked = exact_network(objective), []

    def model(x, time_B, labels_B):
        asked.append(float(time_B[0]) / 999)
        return network(x, time_B, labels_B)

    found = draw_samples(model, objective, Sampling(name="dpm3", steps=50), SampleNoise(0, range(4), (3, 1, 1)))
    times = fast_times(objective.path, 1.0, 1e-4, 50)
    assert len(asked) == 50 and asked == pytest.approx(times[:-1].tolist(), rel=1e-5)
    start = SampleNoise(0, range(4), (3, 1, 1))().flatten(1)
    expected = dpm_solver_singlestep(
        exact("noise", objective.path), start, times, objective.path, fast_orders(50), predicts="noise"
    )
    torch.testing.assert_close(found.flatten(1), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("labels", "classes"), [(None, 3), (None, None), (torch.tensor([1, 0]), None)])
def test_without_labels_or_without_classes_the_model_is_asked_once_and_unguided(labels, classes):
    objective, asked = denoising_objective(DiffusionConfig(), (3, 1, 1), classes), []

    def model(x, time_B, labels_B):
        asked.append((len(x), labels_B))
        return torch.zeros_like(x)

    sampling = Sampling(name="ddim", steps=2, guidance=4.0)
    draw_samples(model, objective, sampling, SampleNoise(0, range(2), (3, 1, 1)), labels)
    assert asked and all(count == 2 and given is labels for count, given in asked)
