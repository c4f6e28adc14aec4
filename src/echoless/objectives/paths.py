"""Which noise schedules are there? Each path defines a(t) and s(t) of x_t = a(t) * data + s(t) * noise.

Two conventions of time are in use: diffusion has data at time 0, interpolants at time 1. A path says which one it uses,
and all other code works with either. Times are tensors of any shape; in samplers they are 0-d float64, so that
coefficients are exact and images keep their own type.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from echoless.config.diffusion import Interpolant, NoiseSchedule

DISCRETE_STEPS = 1000  # of both published discrete schedules


class Point(NamedTuple):
    """A path at one time: the weights of data and of noise, and their rates of change."""

    a: Tensor
    s: Tensor
    da: Tensor
    ds: Tensor

    # Eq. (1) of arXiv:2401.08740; Eq. (4) of arXiv:2006.11239 for the paths that preserve variance.
    def mix(self, data: Tensor, noise: Tensor) -> Tensor:
        """x_t."""
        return self.a * data + self.s * noise

    # Section 2.2 of arXiv:2401.08740: the rate of x_t along the path of one pair.
    def velocity(self, data: Tensor, noise: Tensor) -> Tensor:
        return self.da * data + self.ds * noise

    # Eq. (5) of arXiv:2011.13456 with this path's marginals: f = a'/a and g^2 = 2 |spread|.
    @property
    def spread(self) -> Tensor:
        """(a'/a) s^2 - s s': how fast data gains on noise; positive where time runs towards the data."""
        return self.da / self.a * self.s.square() - self.s * self.ds


class Path:
    """a(t) and s(t), and log(a / s), half the log signal-to-noise ratio, which samplers use as time."""

    data_time: float  # a = 1 and s = 0 there; noise is at the other end of [0, 1]

    def at(self, t: Tensor) -> Point:
        raise NotImplementedError

    def log_snr(self, t: Tensor) -> Tensor:
        """log(a / s), half the logarithm of the signal-to-noise ratio."""
        raise NotImplementedError

    def time_of(self, log_snr: Tensor) -> Tensor:
        """The inverse of `log_snr`."""
        raise NotImplementedError

    @property
    def noise_time(self) -> float:
        return 1.0 - self.data_time


# Section 2.3 of arXiv:2401.08740, "Linear".
class Linear(Path):
    """a = t, s = 1 - t."""

    data_time = 1.0

    def at(self, t: Tensor) -> Point:
        one = torch.ones_like(t)
        return Point(t, 1 - t, one, -one)

    def log_snr(self, t: Tensor) -> Tensor:
        return torch.logit(t)

    def time_of(self, log_snr: Tensor) -> Tensor:
        return torch.sigmoid(log_snr)


# Section 2.3 of arXiv:2401.08740, "GVP".
class GVP(Path):
    """a = sin(pi t / 2), s = cos(pi t / 2): variance is preserved, at constant speed."""

    data_time = 1.0

    def at(self, t: Tensor) -> Point:
        half_pi = math.pi / 2
        a, s = torch.sin(half_pi * t), torch.cos(half_pi * t)
        return Point(a, s, half_pi * s, -half_pi * a)

    def log_snr(self, t: Tensor) -> Tensor:
        return torch.log(torch.tan(math.pi / 2 * t))

    def time_of(self, log_snr: Tensor) -> Tensor:
        return torch.atan(log_snr.exp()) / (math.pi / 2)


class VariancePreserving(Path):
    """a^2 + s^2 = 1, given log a as a function of the age u: 0 is data, 1 is noise, for either convention of time."""

    def __init__(self, data_time: float = 0.0) -> None:
        self.data_time = data_time

    def log_a(self, age: Tensor) -> Tensor:
        raise NotImplementedError

    def log_a_rate(self, age: Tensor) -> Tensor:
        raise NotImplementedError

    def age_of(self, log_a: Tensor) -> Tensor:
        raise NotImplementedError

    def at(self, t: Tensor) -> Point:
        age = self._flip(t)
        log_a = self.log_a(age)
        a, s = log_a.exp(), torch.sqrt(-torch.expm1(2 * log_a))
        rate = self.log_a_rate(age) * (1 if self.data_time == 0 else -1)
        return Point(a, s, a * rate, -a.square() * rate / s)

    def log_snr(self, t: Tensor) -> Tensor:
        log_a = self.log_a(self._flip(t))
        return log_a - 0.5 * torch.log(-torch.expm1(2 * log_a))

    def time_of(self, log_snr: Tensor) -> Tensor:
        return self._flip(self.age_of(-0.5 * F.softplus(-2 * log_snr)))

    def _flip(self, t: Tensor) -> Tensor:
        return t if self.data_time == 0 else 1 - t


# Eq. (11) and (33) of arXiv:2011.13456; section 2.3 of arXiv:2401.08740, "VP", with time reversed.
class VP(VariancePreserving):
    """The variance-preserving SDE: beta rises linearly, and log a = -1/2 of its integral."""

    def __init__(self, data_time: float = 0.0, beta_min: float = 0.1, beta_max: float = 20.0) -> None:
        super().__init__(data_time)
        self.beta_min, self.beta_max = beta_min, beta_max

    def log_a(self, age: Tensor) -> Tensor:
        return -0.25 * age.square() * (self.beta_max - self.beta_min) - 0.5 * age * self.beta_min

    def log_a_rate(self, age: Tensor) -> Tensor:
        return -0.5 * (self.beta_min + age * (self.beta_max - self.beta_min))

    def age_of(self, log_a: Tensor) -> Tensor:
        # The positive root of the quadratic above, in the form that does not cancel near the data.
        slope = self.beta_max - self.beta_min
        return -4 * log_a / (self.beta_min + torch.sqrt(self.beta_min**2 - 4 * slope * log_a))


# Eq. (4) of arXiv:2006.11239; between steps log a is linear, as in arXiv:2206.00927.
class Discrete(VariancePreserving):
    """N steps of given betas. Age n / N is after step n; the network is given n."""

    def __init__(self, betas: Tensor) -> None:
        super().__init__(data_time=0.0)
        steps = torch.log1p(-betas.double()).cumsum(0) / 2
        self.table = torch.cat([torch.zeros(1, dtype=torch.float64), steps])
        self.steps = len(betas)

    def log_a(self, age: Tensor) -> Tensor:
        table, below = self.table.to(age.device), self._below(age)
        share = age * self.steps - below
        return ((1 - share) * table[below] + share * table[below + 1]).to(age.dtype)

    def log_a_rate(self, age: Tensor) -> Tensor:
        table, below = self.table.to(age.device), self._below(age)
        return ((table[below + 1] - table[below]) * self.steps).to(age.dtype)

    def age_of(self, log_a: Tensor) -> Tensor:
        falling = -self.table.to(log_a.device)
        above = torch.searchsorted(falling, -log_a.double()).clamp(1, self.steps)
        share = (-log_a - falling[above - 1]) / (falling[above] - falling[above - 1])
        return ((above - 1 + share) / self.steps).to(log_a.dtype)

    def _below(self, age: Tensor) -> Tensor:
        """The step before this age; an age on a step belongs to the stretch that ends there."""
        return (torch.ceil(age * self.steps).long() - 1).clamp(0, self.steps - 1)


# Section 4 of arXiv:2006.11239.
def ddpm_betas() -> Tensor:
    """Evenly from 1e-4 to 0.02."""
    return torch.linspace(1e-4, 0.02, DISCRETE_STEPS, dtype=torch.float64)


# The schedule of latent diffusion (arXiv:2112.10752) as released, which U-ViT-H is trained with.
def stable_diffusion_betas() -> Tensor:
    """Square roots evenly from those of 0.00085 and 0.012."""
    return torch.linspace(0.00085**0.5, 0.012**0.5, DISCRETE_STEPS, dtype=torch.float64).square()


def diffusion_path(schedule: NoiseSchedule) -> VP | Discrete:
    """The path a `DiffusionConfig` names."""
    if schedule == "vp":
        return VP()
    return Discrete(ddpm_betas() if schedule == "ddpm" else stable_diffusion_betas())


def interpolant_path(interpolant: Interpolant) -> Path:
    """The path a `FlowConfig` names."""
    if interpolant == "vp":
        return VP(data_time=1.0)
    return Linear() if interpolant == "linear" else GVP()
