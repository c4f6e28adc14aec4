"""How is the reverse SDE solved? Euler-Maruyama, for diffusion and for interpolants."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor

from echoless.errors import ConfigError
from echoless.objectives.paths import Path
from echoless.objectives.predictions import Field, to_score
from echoless.objectives.samplers.noise import NoiseSource

Diffusion = Literal["constant", "sbdm", "sigma", "linear", "decreasing", "increasing-decreasing"]
DIFFUSIONS: tuple[str, ...] = get_args(Diffusion)
LastStep = Literal["mean", "euler", "tweedie"]
LAST_STEPS: tuple[str, ...] = get_args(LastStep)


# Eq. (6) of arXiv:2011.13456: dx = [f x - g^2 score] dt + g dw, with f = a'/a and g^2 = 2 |spread|.
@torch.no_grad()
def euler_maruyama(score: Field, x: Tensor, times: Tensor, path: Path, noise: NoiseSource) -> Tensor:
    """The reverse SDE; no noise in the last step. U-ViT's sampler with `reverse_sde_times()`."""
    for step, (now, then) in enumerate(pairwise(times), start=2):
        here, size = path.at(now), then - now
        x = x + size * (here.da / here.a * x + 2 * here.spread * score(x, now))
        if step < len(times):
            x = x + torch.sqrt(2 * (here.spread * size).abs()) * noise()
    return x


# Section 2.4 of arXiv:2401.08740: any w(t) >= 0 leaves the marginals as they are.
def diffusion_coefficient(form: Diffusion, t: Tensor, path: Path, norm: float = 1.0) -> Tensor:
    """w(t), by the published name; time is counted from noise (0) to data (1)."""
    done = t if path.data_time == 1 else 1 - t
    forms = {
        "constant": lambda: torch.ones_like(done) * norm,
        "sbdm": lambda: path.at(t).spread.abs() * norm,
        "sigma": lambda: path.at(t).s * norm,
        "linear": lambda: (1 - done) * norm,
        "decreasing": lambda: 0.25 * (norm * torch.cos(torch.pi * done) + 1) ** 2,
        "increasing-decreasing": lambda: norm * torch.sin(torch.pi * done) ** 2,
    }
    if form not in forms:
        raise ConfigError(f"diffusion is {form!r}; allowed: {', '.join(DIFFUSIONS)}")
    return forms[form]()


# Section 2.1 of arXiv:2401.08740: dx = [v + w score] dt + sqrt(2 w) dw.
@torch.no_grad()
def interpolant_sde(
    velocity: Field,
    x: Tensor,
    times: Tensor,
    path: Path,
    noise: NoiseSource,
    *,
    diffusion: Diffusion = "sigma",
    norm: float = 1.0,
    method: Literal["euler", "heun"] = "euler",
    last_step: LastStep | None = "mean",
) -> Tensor:
    """SiT's sampler with `interpolant_sde_times()`: one evaluation a step, or two with Heun.

    The last step leads from the last time to the data without noise: by the mean of an Euler-Maruyama step, by an Euler
    step of the ODE, or by Tweedie's formula.
    """

    if last_step is not None and last_step not in LAST_STEPS:
        raise ConfigError(f"last_step is {last_step!r}; allowed: {', '.join(LAST_STEPS)}, or None")
    if method not in ("euler", "heun"):
        raise ConfigError(f"method is {method!r}; allowed: euler, heun")

    def drift(x: Tensor, t: Tensor, w: Tensor) -> Tensor:
        v = velocity(x, t)
        # w * score points to the data; v points along time.
        return v + (1 if path.data_time == 1 else -1) * w * to_score(v, x, path.at(t), "velocity")

    for now, then in pairwise(times):
        size, w = then - now, diffusion_coefficient(diffusion, now, path, norm)
        kick = torch.sqrt(2 * w * size.abs()) * noise()
        if method == "euler":
            x = x + size * drift(x, now, w) + kick
        else:
            x = x + kick
            slope = drift(x, now, w)
            w_then = diffusion_coefficient(diffusion, then, path, norm)
            x = x + size / 2 * (slope + drift(x + size * slope, then, w_then))
    return _finish(velocity, x, times[-1], path, last_step, diffusion, norm)


def _finish(
    velocity: Field, x: Tensor, now: Tensor, path: Path, last_step: LastStep | None, diffusion: Diffusion, norm: float
) -> Tensor:
    if last_step is None:
        return x
    here, size, v = path.at(now), path.data_time - now, velocity(x, now)
    score = to_score(v, x, here, "velocity")
    if last_step == "tweedie":
        return (x + here.s.square() * score) / here.a
    w = diffusion_coefficient(diffusion, now, path, norm) if last_step == "mean" else torch.zeros_like(now)
    return x + size * v + size.abs() * w * score
