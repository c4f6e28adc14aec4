"""Samplers, pure functions named after their algorithms: (field, x, times, ...) -> samples."""

from echoless.objectives.samplers.dopri5 import dopri5
from echoless.objectives.samplers.dpm_solver import dpm_solver_multistep, dpm_solver_singlestep
from echoless.objectives.samplers.guidance import guided
from echoless.objectives.samplers.noise import NoiseSource, SampleNoise
from echoless.objectives.samplers.ode import ddim, euler, heun, heun_karras
from echoless.objectives.samplers.sde import DIFFUSIONS, diffusion_coefficient, euler_maruyama, interpolant_sde
from echoless.objectives.samplers.times import (
    fast_orders,
    fast_times,
    interpolant_sde_times,
    karras_times,
    log_snr_times,
    reverse_sde_times,
    uniform_times,
)

__all__ = [
    "DIFFUSIONS",
    "NoiseSource",
    "SampleNoise",
    "ddim",
    "diffusion_coefficient",
    "dopri5",
    "dpm_solver_multistep",
    "dpm_solver_singlestep",
    "euler",
    "euler_maruyama",
    "fast_orders",
    "fast_times",
    "guided",
    "heun",
    "heun_karras",
    "interpolant_sde",
    "interpolant_sde_times",
    "karras_times",
    "log_snr_times",
    "reverse_sde_times",
    "uniform_times",
]
