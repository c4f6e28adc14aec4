"""At which times does a sampler evaluate the network? Grids from noise to data, in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from echoless.errors import ConfigError
from echoless.objectives.paths import Path


# Even steps in time, the choice of arXiv:2010.02502.
def uniform_times(start: float, end: float, steps: int) -> Tensor:
    """steps + 1 times."""
    _require_steps(steps)
    return torch.linspace(start, end, steps + 1, dtype=torch.float64)


# The choice of arXiv:2206.00927: even steps in log(a / s), the variable of its integrators.
def log_snr_times(path: Path, start: float, end: float, steps: int) -> Tensor:
    """steps + 1 times; the ends must have both signal and noise."""
    _require_steps(steps)
    first, last = (float(path.log_snr(torch.tensor(t, dtype=torch.float64))) for t in (start, end))
    return _between(path, start, end, torch.linspace(first, last, steps + 1, dtype=torch.float64))


# Eq. (5) of arXiv:2206.00364: even steps in (s / a)^(1 / rho).
def karras_times(
    path: Path, steps: int = 18, sigma_min: float = 0.002, sigma_max: float = 80.0, rho: float = 7.0, end: bool = True
) -> Tensor:
    """`steps` times from sigma_max (or the path's own largest) to sigma_min, and, with `end`, the data itself."""
    _require_steps(steps)
    noisiest = torch.tensor(abs(path.noise_time - 1e-9), dtype=torch.float64)
    sigma_max = min(sigma_max, float(torch.exp(-path.log_snr(noisiest))))
    roots = torch.linspace(sigma_max ** (1 / rho), sigma_min ** (1 / rho), steps, dtype=torch.float64)
    times = path.time_of(-rho * roots.log())
    return torch.cat([times, times.new_tensor([path.data_time])]) if end else times


# The grid of arXiv:2011.13456 as U-ViT uses it: even steps from 1 to eps, and one more to 0.
def reverse_sde_times(steps: int = 1000, eps: float = 1e-3) -> Tensor:
    """steps + 1 times of a diffusion, for `steps` evaluations."""
    _require_steps(steps)
    return torch.cat([torch.linspace(1.0, eps, steps, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)])


# As in the code of arXiv:2401.08740: 250 steps, the last of which starts at 0.96.
def interpolant_sde_times(steps: int = 250, start: float = 0.0, last_size: float = 0.04) -> Tensor:
    """`steps` times of an interpolant; the last step, from the last time to the data, is the sampler's."""
    _require_steps(steps)
    return torch.linspace(start, 1.0 - last_size, steps, dtype=torch.float64)


# "DPM-Solver-fast" of arXiv:2206.00927.
def fast_orders(steps: int) -> list[int]:
    """As many third-order steps as `steps` evaluations allow, and lower ones to end with."""
    _require_steps(steps)
    threes, rest = divmod(steps, 3)
    return [3] * (threes - 1) + [2, 1] if rest == 0 else [3] * threes + [rest]


# The same: outer steps even in log(a / s), each cut into as many even parts as its order.
def fast_times(path: Path, start: float, end: float, steps: int) -> Tensor:
    """steps + 1 times for `fast_orders(steps)`."""
    orders = fast_orders(steps)
    first, last = (float(path.log_snr(torch.tensor(t, dtype=torch.float64))) for t in (start, end))
    outer = torch.linspace(first, last, len(orders) + 1, dtype=torch.float64)
    parts = [
        torch.linspace(float(a), float(b), order + 1, dtype=torch.float64)[:-1]
        for a, b, order in zip(outer, outer[1:], orders)
    ]
    return _between(path, start, end, torch.cat([*parts, outer[-1:]]))


def _between(path: Path, start: float, end: float, clock: Tensor) -> Tensor:
    if not bool(clock.isfinite().all()):
        raise ConfigError(f"the times run from {start:g} to {end:g}; both ends must have signal and noise")
    times = path.time_of(clock)
    times[0], times[-1] = start, end  # not rounded
    return times


def _require_steps(steps: int) -> None:
    if steps < 1:
        raise ConfigError(f"steps is {steps!r}; allowed: a whole number, 1 or more")
