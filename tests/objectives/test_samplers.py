"""On Gaussian data with its exact score, every sampler reaches the true mean and covariance, at its own order.

Samplers are affine maps there, so the moments they end with are read off exactly, SDEs included: no sampling error.
"""

from __future__ import annotations

import math
import sys
from itertools import pairwise
from pathlib import Path as File

import numpy as np
import pytest
import torch

sys.path.insert(0, str(File(__file__).parent))
from gaussian import Probes, distance, exact, moments

from echoless.config import DiffusionConfig, UViTConfig
from echoless.errors import ConfigError, RunError
from echoless.models import UViT
from echoless.objectives import DiffusionObjective, field_of, translate
from echoless.objectives.paths import GVP, VP, Discrete, Linear, ddpm_betas, stable_diffusion_betas
from echoless.objectives.predictions import keep_within
from echoless.objectives.samplers import (
    DIFFUSIONS,
    SampleNoise,
    ddim,
    diffusion_coefficient,
    dopri5,
    dpm_solver_multistep,
    dpm_solver_singlestep,
    euler,
    euler_maruyama,
    fast_orders,
    fast_times,
    guided,
    heun,
    heun_karras,
    interpolant_sde,
    interpolant_sde_times,
    karras_times,
    log_snr_times,
    reverse_sde_times,
    uniform_times,
)
from echoless.objectives.sampling import _ends

SD = Discrete(stable_diffusion_betas())


def follow(sampler, path, times, kind):
    probes = Probes()
    end = sampler(exact(kind, path), probes.start, times)
    return distance(probes.moments(end, path, times[0]), moments(path, times[-1]))


def dpm(order, predicts, single=False):
    def run(path, times):
        def sample(field, x, times):
            if single:
                orders = [order] * ((len(times) - 1) // order)
                return dpm_solver_singlestep(field, x, times, path, orders, predicts=predicts)
            return dpm_solver_multistep(field, x, times, path, order=order, predicts=predicts)

        return follow(sample, path, times, predicts)

    return run


def flow(sampler):
    return lambda path, times: follow(sampler, path, times, "velocity")


def by_noise(sampler):
    def run(path, times):
        return follow(lambda field, x, times: sampler(field, x, times, path), path, times, "noise")

    return run


def uniform(start, end):
    return lambda path, steps: uniform_times(start, end, steps)


def log_snr(start, end):
    return lambda path, steps: log_snr_times(path, start, end, steps)


def graded(start, end):
    """Small steps first: they keep the lower order with which a multistep method must start out of the result."""

    def grid(path, steps):
        first, last = (path.log_snr(torch.tensor(t, dtype=torch.float64)) for t in (start, end))
        return path.time_of(first + (last - first) * torch.linspace(0, 1, steps + 1, dtype=torch.float64) ** 2)

    return grid


def karras(path, steps):
    return karras_times(path, steps, end=False)


# name: (sampler, path, grid, order, steps, error allowed with that many steps)
DETERMINISTIC = {
    "euler, linear": (flow(euler), Linear(), uniform(0, 1), 1, 128, 0.05),
    "euler, gvp": (flow(euler), GVP(), uniform(0, 1), 1, 128, 0.01),
    "euler, vp": (flow(euler), VP(data_time=1.0), uniform(0, 1 - 1e-3), 1, 128, 0.01),
    "heun, linear": (flow(heun), Linear(), uniform(0, 1), 2, 64, 5e-4),
    "heun, gvp": (flow(heun), GVP(), uniform(0, 1), 2, 64, 5e-4),
    "heun, vp": (flow(heun), VP(data_time=1.0), uniform(0, 1 - 1e-3), 2, 128, 5e-4),
    "ddim, vp": (by_noise(ddim), VP(), log_snr(1, 1e-3), 1, 128, 0.1),
    "ddim, ddpm betas": (by_noise(ddim), Discrete(ddpm_betas()), log_snr(1, 1e-3), 1, 128, 0.1),
    "heun-karras, vp": (by_noise(heun_karras), VP(), karras, 2, 64, 0.02),
    "dpm-solver++ 2m, vp": (dpm(2, "data"), VP(), log_snr(1, 1e-3), 2, 64, 0.01),
    "dpm-solver++ 2m, sd betas": (dpm(2, "data"), SD, log_snr(1, 1e-3), 2, 64, 0.01),
    "dpm-solver++ 2m, linear": (dpm(2, "data"), Linear(), log_snr(1e-3, 1 - 1e-3), 2, 64, 0.02),
    "dpm-solver++ 3m, vp, graded": (dpm(3, "data"), VP(), graded(1, 1e-3), 3, 128, 5e-3),
    "dpm-solver++ 3m, sd betas, graded": (dpm(3, "data"), SD, graded(1, 1e-3), 3, 128, 5e-3),
    "dpm-solver++ 2s, vp": (dpm(2, "data", True), VP(), log_snr(1, 1e-3), 2, 64, 0.05),
    "dpm-solver++ 3s, vp": (dpm(3, "data", True), VP(), log_snr(1, 1e-3), 3, 96, 5e-4),
    "dpm-solver 2, vp": (dpm(2, "noise", True), VP(), log_snr(1, 1e-3), 2, 64, 0.05),
    "dpm-solver 3, vp": (dpm(3, "noise", True), VP(), log_snr(1, 1e-3), 3, 96, 5e-4),
}


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_the_flow_ends_in_the_true_moments_at_the_samplers_order(name):
    sampler, path, grid, order, steps, allowed = DETERMINISTIC[name]
    errors = [sampler(path, grid(path, steps * 2**k)) for k in range(3)]
    assert errors[0] < allowed
    assert abs(slope(name, steps, errors) - order) < 0.2


def slope(name, steps, errors):
    """The order at which the error falls when steps double twice; printed."""
    slopes = [math.log2(a / b) for a, b in pairwise(errors)]
    figures = " ".join(f"{error:.1e}" for error in errors)
    print(f"{name}: errors at {steps}, x2, x4 steps {figures}; log-log slopes {slopes[0]:.2f} {slopes[1]:.2f}")
    return slopes[-1]


@pytest.mark.parametrize("path", [Linear(), GVP(), VP(data_time=1.0)], ids=["linear", "gvp", "vp"])
def test_dopri5_ends_in_the_true_moments_within_its_tolerance(path):
    end = 1 - 1e-3 if isinstance(path, VP) else 1.0
    errors = []
    for tolerance in (1e-3, 1e-5, 1e-7):
        probes = Probes()
        field = exact("velocity", path)
        samples = dopri5(field, probes.start, 0.0, end, atol=tolerance, rtol=tolerance)
        errors.append(distance(probes.moments(samples, path, 0.0), moments(path, end)))
        # Relative to data of size 1; the maps of samples differ by their own steps, which adds to the error here.
        assert errors[-1] < 200 * tolerance
    figures = " ".join(f"{error:.1e}" for error in errors)
    print(f"dopri5, {type(path).__name__}: errors at tolerances 1e-3, 1e-5, 1e-7: {figures}")


class Counted:
    """A field that is not linear in x or t, and counts its evaluations; times are one for all samples or one each."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x, t):
        self.calls += 1
        return (torch.tanh(3 * x.flip(1)) * torch.cos(4 * t) + x.sin() * t).to(x.dtype)


@pytest.mark.parametrize(("start", "end"), [(0.0, 1.0), (1.0, 1e-3)])
def test_dopri5_takes_the_steps_of_torchdiffeq_with_one_sample(start, end, generator):
    """Each sample of a batch ends where torchdiffeq ends with this sample alone; the slowest one decides the cost."""
    from torchdiffeq import odeint

    x = 3 * torch.randn(5, 3, 4, generator=generator, dtype=torch.float64)
    field = Counted()
    together = dopri5(field, x, start, end)
    alone, calls = [], []
    for one in x:
        reference = Counted()
        times = torch.tensor([start, end], dtype=torch.float64)
        options = {"step_t": times[-1:]}
        end_x = odeint(lambda t, y, f=reference: f(y, t), one[None], times, rtol=1e-3, atol=1e-6, method="dopri5", options=options)[-1]  # noqa: E501  # fmt: skip
        alone.append(end_x)
        calls.append(reference.calls)
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-9, atol=1e-9)
    print(f"dopri5: {field.calls} evaluations for five samples, torchdiffeq {calls} for each alone")
    assert field.calls == max(calls) and len(set(calls)) > 1


def test_dopri5_gives_each_sample_the_same_in_any_batch(generator):
    """To the bit: a sample's steps are its own."""
    x = 3 * torch.randn(6, 3, generator=generator)
    together = dopri5(Counted(), x, 0.0, 1.0)
    assert torch.equal(together[2:3], dopri5(Counted(), x[2:3], 0.0, 1.0))
    assert torch.equal(together[[5, 1]], dopri5(Counted(), x[[5, 1]], 0.0, 1.0))
    assert together.dtype == torch.float32


def test_dopri5_takes_a_last_step_of_any_size():
    """What rounding leaves before the end is a step like any other, not a search without end."""
    x = torch.ones(2, 1, 2, 2)
    assert torch.equal(dopri5(lambda x, time_B: -x, x, 0.0, 1e-13), x)


def test_dopri5_does_not_search_for_ever_where_the_field_is_not_finite():
    with pytest.raises(RunError, match="dopri5 cannot make its step small enough"):
        dopri5(lambda x, t: torch.full_like(x, torch.nan), torch.ones(2, 3), 0.0, 1.0)


def test_the_reverse_sde_ends_in_the_moments_of_the_data_at_first_order():
    """U-ViT's Euler-Maruyama, no noise in the last step; its eps, one of 1000 steps, shrinks with them."""
    path, errors = VP(), []
    for steps in (250, 500, 1000):
        probes = Probes(draws=steps - 1)
        times = reverse_sde_times(steps, eps=1 / steps)
        end = euler_maruyama(exact("score", path), probes.start, times, path, probes)
        errors.append(distance(probes.moments(end, path, 1.0), moments(path, 0.0)))
    assert errors[-1] < 0.01, "the published 1000 steps"
    assert abs(slope("euler-maruyama, reverse VP SDE", 250, errors) - 1) < 0.1


@pytest.mark.parametrize(
    ("path", "form"),
    [*((Linear(), form) for form in DIFFUSIONS)]
    + [(path, form) for path in (GVP(), VP(data_time=1.0), VP()) for form in ("sigma", "sbdm")],
)
def test_every_interpolant_sde_keeps_the_marginals_at_first_order(path, form):
    # "sbdm" is infinite where there is no signal at all.
    start, end = (0.2 if form == "sbdm" and not isinstance(path, VP) else 0.0), 0.96
    if path.data_time == 0:
        start, end = 1 - start, 1 - end
    errors = []
    for steps in (50, 100, 200):
        probes = Probes(draws=steps)
        times = uniform_times(start, end, steps)
        field = exact("velocity", path)
        final = interpolant_sde(field, probes.start, times, path, probes, diffusion=form, last_step=None)
        errors.append(distance(probes.moments(final, path, start), moments(path, end)))
    assert errors[-1] < 0.02
    name = f"interpolant SDE, {type(path).__name__}, data at {path.data_time:g}, w {form}"
    assert abs(slope(name, 50, errors) - 1) < 0.25


@pytest.mark.parametrize(("last_step", "allowed"), [("mean", 0.03), ("euler", 0.03), ("tweedie", 0.03)])
def test_the_published_250_steps_end_near_the_data(last_step, allowed):
    path, probes = Linear(), Probes(draws=249)
    times = interpolant_sde_times()
    assert len(times) == 250 and times[-1] == 0.96
    end = interpolant_sde(exact("velocity", path), probes.start, times, path, probes, last_step=last_step)
    error = distance(probes.moments(end, path, 0.0), moments(path, 1.0))
    print(f"SiT's SDE, 250 steps, w sigma, last step {last_step}: error {error:.1e}")
    assert error < allowed


def test_heuns_sde_has_the_same_moments_to_first_order():
    path, errors = Linear(), []
    for steps in (50, 100, 200):
        probes = Probes(draws=steps)
        times = uniform_times(0, 0.96, steps)
        end = interpolant_sde(exact("velocity", path), probes.start, times, path, probes, method="heun", last_step=None)
        errors.append(distance(probes.moments(end, path, 0.0), moments(path, 0.96)))
    assert abs(slope("interpolant SDE by Heun, w sigma", 50, errors) - 1) < 0.3


def test_ddim_with_eta_one_is_ancestral_sampling_and_keeps_the_marginals_at_first_order():
    path, errors = VP(), []
    for steps in (50, 100, 200):
        probes = Probes(draws=steps)
        times = log_snr_times(path, 1, 1e-3, steps)
        end = ddim(exact("noise", path), probes.start, times, path, eta=1.0, noise=probes)
        errors.append(distance(probes.moments(end, path, 1.0), moments(path, 1e-3)))
    assert abs(slope("ddim eta 1, vp", 50, errors) - 1) < 0.2


@pytest.mark.parametrize(
    ("path", "sampler"),
    [
        (VP(), lambda f, x, path: heun_karras(f("noise"), x, karras_times(path, 18, sigma_max=1e3), path)),
        (VP(), lambda f, x, path: dpm_solver_multistep(f("data"), x, log_snr_times(path, 1, 1e-3, 20), path)),
        (VP(), lambda f, x, path: dpm_solver_singlestep(f("noise"), x, fast_times(path, 1, 1e-4, 50), path, fast_orders(50), predicts="noise")),  # noqa: E501
        (SD, lambda f, x, path: dpm_solver_singlestep(f("data"), x, uniform_times(1, 1e-3, 50), path, fast_orders(50))),
        (VP(), lambda f, x, path: ddim(f("noise"), x, uniform_times(1, 0, 50), path)),
        (VP(), lambda f, x, path: dpm_solver_multistep(f("data"), x, uniform_times(1, 0, 50), path, order=3)),
    ],
    ids=["heun-18", "2m-20", "uvit-l-50", "uvit-h-50", "ddim-50-to-0", "3m-50-to-0"],
)  # fmt: skip
def test_the_settings_people_use_end_near_the_data(path, sampler, request):
    probes = Probes()
    end = sampler(lambda kind: exact(kind, path), probes.start, path)
    error = distance(probes.moments(end, path, 1.0), moments(path, 0.0))
    print(f"{request.node.callspec.id}: error {error:.1e} against the data's own moments")
    assert error < 0.25


class Curved:
    """A field that is not linear, and remembers when it was asked."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, x, t):
        self.times.append(float(t))
        return torch.tanh(x * (1 + t.to(x.dtype))) + 0.1 * x.flip(1)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # diffusers and numpy 2
def test_2m_equals_diffusers(generator):
    from diffusers import DPMSolverMultistepScheduler

    scheduler = DPMSolverMultistepScheduler(
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        lower_order_final=False,
        final_sigmas_type="sigma_min",
        prediction_type="sample",
    )
    scheduler.set_timesteps(12)
    x = torch.randn(4, 8, dtype=torch.float64, generator=generator)
    times, theirs = SD.time_of(-scheduler.sigmas.double().log()), x
    for step, index in enumerate(scheduler.timesteps):
        theirs = scheduler.step(Curved()(theirs, times[step]), index, theirs).prev_sample
    ours = dpm_solver_multistep(Curved(), x, times, SD)
    print(f"DPM-Solver++ 2M against diffusers, 12 steps: largest difference {(ours - theirs).abs().max():.1e}")
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("eta", [0.0, 0.7])
def test_ddim_equals_diffusers(eta, clip, generator):
    """With clip, what the network expects is kept between -1 and 1: most of it would be far outside at first."""
    from diffusers import DDIMScheduler

    scheduler = DDIMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=clip)
    scheduler.set_timesteps(10)
    x = torch.randn(4, 8, dtype=torch.float64, generator=generator)
    draws = torch.randn(10, 4, 8, dtype=torch.float64, generator=generator)
    times = torch.cat([(scheduler.timesteps + 1).double() / 1000, torch.zeros(1)])
    theirs, source = x, iter(draws)
    for step, index in enumerate(scheduler.timesteps):
        fresh = draws[step] if eta else None
        predicted = Curved()(theirs, times[step])
        settings = {"eta": eta, "variance_noise": fresh, "use_clipped_model_output": clip}
        theirs = scheduler.step(predicted, index, theirs, **settings).prev_sample
    field = keep_within(Curved(), SD, "noise", torch.tensor(-1.0), torch.tensor(1.0)) if clip else Curved()
    ours = ddim(field, x, times, SD, eta, lambda: next(source))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_every_evaluation_is_counted_and_made_at_the_grid(generator):
    x, path = torch.randn(2, 8, generator=generator), VP()
    for steps in (5, 6, 7, 20, 50):
        field, times = Curved(), fast_times(path, 1, 1e-4, steps)
        assert sum(fast_orders(steps)) == steps == len(times) - 1
        dpm_solver_singlestep(field, x, times, path, fast_orders(steps), predicts="noise")
        np.testing.assert_allclose(field.times, times[:-1])
    field = Curved()
    heun_karras(field, x, karras_times(path), path)
    assert len(field.times) == 35, "18 steps of two, less one that would be at the data itself"
    assert fast_orders(50) == [3] * 16 + [2] and fast_orders(9) == [3, 3, 2, 1] and fast_orders(10) == [3, 3, 3, 1]


@pytest.mark.parametrize("path", [Linear(), GVP(), VP(), VP(data_time=1.0), SD], ids=lambda p: type(p).__name__)
def test_grids_run_from_noise_to_data_and_log_snr_has_its_inverse(path):
    start, end = abs(path.noise_time - 1e-3), abs(path.data_time - 1e-3)
    times = log_snr_times(path, start, end, 40)
    clock = path.log_snr(times)
    torch.testing.assert_close(clock.diff(), (clock[-1] - clock[0]).expand(40) / 40, rtol=1e-6, atol=0)
    torch.testing.assert_close(path.time_of(clock), times, rtol=1e-9, atol=1e-12)
    at = path.at(times)
    torch.testing.assert_close(torch.log(at.a / at.s), clock, rtol=1e-9, atol=1e-9)
    assert times[0] == start and times[-1] == end
    karras = karras_times(path, 10)
    assert karras[-1] == path.data_time and len(karras) == 11
    sigmas = path.at(karras[:-1]).s / path.at(karras[:-1]).a
    torch.testing.assert_close((sigmas ** (1 / 7)).diff(), (sigmas ** (1 / 7)).diff()[:1].expand(9), rtol=1e-5, atol=0)


def test_the_noise_of_a_sample_depends_on_the_seed_and_its_index_alone():
    together = SampleNoise(7, range(5), (3, 4, 4))
    alone = SampleNoise(7, [3], (3, 4, 4))
    pair = SampleNoise(7, [4, 3], (3, 4, 4))
    for _ in range(4):
        all_five, one, two = together(), alone(), pair()
        assert torch.equal(all_five[3], one[0]) and torch.equal(one[0], two[1])
        assert not torch.equal(all_five[3], all_five[2])
    assert not torch.equal(SampleNoise(8, [3], (3, 4, 4))(), SampleNoise(7, [3], (3, 4, 4))())
    many = SampleNoise(0, range(2000), (10,))()
    assert abs(float(many.mean())) < 0.03 and abs(float(many.std()) - 1) < 0.03


def tiny_uvit(classes=None):
    config = UViTConfig(image_size=(8, 8), patch_size=4, channels=4, width=16, depth=2, heads=2, classes=classes)
    return UViT(config, torch.Generator().manual_seed(0)).eval()


def test_a_sample_is_the_same_in_any_batch():
    """Up to the rounding of matrix products, whose order depends on their size."""
    model = tiny_uvit()
    objective = DiffusionObjective(DiffusionConfig(), (4, 8, 8))
    path = objective.path

    def sample(indices):
        noise = SampleNoise(0, indices, (4, 8, 8))
        score = translate(field_of(model, objective.network_time), path, objective.prediction, "score")
        return euler_maruyama(score, noise(), reverse_sde_times(20), path, noise)

    everything = sample(range(6))
    for indices in ([2], [5, 0], [1, 2, 3, 4]):
        torch.testing.assert_close(sample(indices), everything[indices], rtol=1e-4, atol=1e-4)
    assert everything.dtype == torch.float32


@torch.no_grad()
def test_guidance_mixes_with_and_without_label(generator):
    model = tiny_uvit(classes=3)
    x, t = torch.randn(2, 4, 8, 8, generator=generator), torch.tensor(0.5, dtype=torch.float64)
    labels, time = torch.tensor([0, 2]), torch.full((2,), 0.5 * 999)
    with_label, without = model(x, time, labels), model(x, time)
    expected = without + 2.5 * (with_label - without)

    def run(scale, channels="all"):
        return guided(model, lambda t: 999 * t, labels, 3, scale, channels)(x, t)

    torch.testing.assert_close(run(2.5), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(run(1.0), with_label, rtol=0, atol=0)
    torch.testing.assert_close(run(0.0), without, rtol=1e-5, atol=1e-5)
    three = run(2.5, "first-three")
    torch.testing.assert_close(three[:, :3], expected[:, :3], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(three[:, 3:], with_label[:, 3:], rtol=1e-5, atol=1e-5)
    with pytest.raises(ConfigError, match="channels is 'some'; allowed: all, first-three"):
        run(2.0, "some")


def test_wrong_settings_are_refused_in_a_sentence():
    x, path = torch.zeros(1, 3), VP()
    with pytest.raises(ConfigError, match="steps is 0; allowed: a whole number, 1 or more"):
        uniform_times(0, 1, 0)
    with pytest.raises(ConfigError, match="the times run from 1 to 0; both ends must have signal and noise"):
        log_snr_times(path, 1, 0, 4)
    with pytest.raises(ConfigError, match="order is 4; allowed: 1, 2, 3"):
        dpm_solver_multistep(Curved(), x, uniform_times(1, 0.1, 4), path, order=4)
    with pytest.raises(ConfigError, match="the orders add up to 3; allowed: 4"):
        dpm_solver_singlestep(Curved(), x, uniform_times(1, 0.1, 4), path, [3])
    with pytest.raises(ConfigError, match="eta is 1, which needs a source of noise"):
        ddim(Curved(), x, uniform_times(1, 0.1, 4), path, eta=1.0)
    with pytest.raises(ConfigError, match="diffusion is 'other'; allowed: constant, sbdm"):
        diffusion_coefficient("other", torch.tensor(0.5), path)
    with pytest.raises(ConfigError, match="last_step is 'Mean'; allowed: mean, euler, tweedie"):
        interpolant_sde(Curved(), x, interpolant_sde_times(), Linear(), lambda: x, last_step="Mean")


def test_the_last_step_is_the_one_that_was_asked_for():
    """From one time on, so that nothing else is computed; score and w of the linear path by hand."""
    path, t, x = Linear(), torch.tensor(0.9, dtype=torch.float64), torch.tensor([0.3, -0.2], dtype=torch.float64)
    velocity = torch.tensor([1.5, 0.4], dtype=torch.float64)
    ends = {
        last: interpolant_sde(lambda x, t: velocity, x, t[None], path, lambda: 1 / 0, last_step=last)
        for last in ("euler", "mean", "tweedie", None)
    }
    score = (t * velocity - x) / (1 - t)
    torch.testing.assert_close(ends[None], x)
    torch.testing.assert_close(ends["euler"], x + 0.1 * velocity)
    torch.testing.assert_close(ends["mean"], x + 0.1 * velocity + 0.1 * (1 - t) * score)
    torch.testing.assert_close(ends["tweedie"], (x + (1 - t) ** 2 * score) / t)


@pytest.mark.parametrize("path", [VP(), SD], ids=["vp", "stable-diffusion"])
def test_times_begin_and_end_exactly_where_they_were_asked_to(path):
    """Rounding there would leave [0, 1], or a sliver of noise at the end."""
    for times in (log_snr_times(path, 1.0, 1e-3, 7), fast_times(path, 1.0, 1e-3, 7)):
        assert times[0] == 1.0 and times[-1] == 1e-3 and len(times) == 8
        assert (times.diff() < 0).all()


def test_solvers_of_a_diffusion_end_where_those_of_score_models_do():
    """At time 1e-3, as in the code of Song et al. 2021 and of U-ViT: below it the score of the data is noise."""
    assert _ends(DiffusionObjective(DiffusionConfig(), (4, 8, 8))) == (1.0, 1e-3)
