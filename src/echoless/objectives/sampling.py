"""How are samples drawn with a named sampler? Its solver, times and prediction type, for either objective."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from echoless.config.options.sample import GuidanceChannels, Sampler
from echoless.errors import ConfigError
from echoless.objectives import samplers
from echoless.objectives.diffusion import DiffusionObjective
from echoless.objectives.flow import FlowObjective, sampling_interval
from echoless.objectives.paths import VP, Path
from echoless.objectives.predictions import Field, Prediction, field_of, keep_within, translate
from echoless.objectives.samplers import SampleNoise

DenoisingObjective = DiffusionObjective | FlowObjective
EDGE = 1e-3  # how near to an end a solver goes that needs both signal and noise there
UVIT_EDGE = 1e-4  # where U-ViT-M and -L end under the VP SDE (arXiv:2209.12152, its code)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """Sampler and guidance. name=None: the default of the objective."""

    name: Sampler | None = None
    steps: int = 20
    guidance: float = 1.0
    channels: GuidanceChannels = "all"
    clip: bool = True  # see `draw_samples`: `bounds`


def sampler_for(objective: DenoisingObjective, name: Sampler | None = None) -> Sampler:
    """The sampler of this name, or the default of the objective; refuses one that does not fit it."""
    diffuses = isinstance(objective, DiffusionObjective)
    if name is None:
        return "dpm++2m" if diffuses else "heun"
    wrong = "sde" if diffuses else "em"
    if name == wrong:
        allowed = ", ".join(other for other in SOLVERS if other != wrong)
        raise ConfigError(f"sampler is {name!r}, which is not for this objective; allowed: {allowed}")
    return name


def draw_samples(
    model: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    objective: DenoisingObjective,
    sampling: Sampling,
    noise: SampleNoise,
    labels_B: Tensor | None = None,
    bounds: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """One sample for each generator of `noise`, in the space that the model was trained in.

    bounds: the range of the data, such as that of pixels. Noise-prediction models clip the predicted data to it;
    interpolants are not clipped.
    """
    name = sampler_for(objective, sampling.name)
    if labels_B is None or objective.classes is None:
        field = field_of(model, objective.network_time, labels_B)
    else:
        given = (labels_B, objective.classes, sampling.guidance, sampling.channels)
        field = samplers.guided(model, objective.network_time, *given)
    if bounds is not None and sampling.clip and isinstance(objective, DiffusionObjective):
        field = keep_within(field, objective.path, objective.prediction, *bounds)
    problem = Problem(objective.path, field, objective.prediction, _ends(objective), sampling.steps, noise)
    return SOLVERS[name](problem, noise())


def _ends(objective: DenoisingObjective) -> tuple[float, float]:
    """The times between which an ODE is solved, from noise to data."""
    if isinstance(objective, DiffusionObjective):
        return 1.0, EDGE
    return sampling_interval(objective.config)


@dataclass(frozen=True, slots=True)
class Problem:
    """What every solver is given besides the noise that it starts from."""

    path: Path
    field: Field
    prediction: Prediction
    ends: tuple[float, float]
    steps: int
    noise: SampleNoise

    def predict(self, wanted: Prediction) -> Field:
        return translate(self.field, self.path, self.prediction, wanted)

    @property
    def inner_ends(self) -> tuple[float, float]:
        """The same ends, moved to where there is both signal and noise."""
        if self.path.data_time == 0:
            return self.ends  # a diffusion always has both
        return max(self.ends[0], EDGE), min(self.ends[1], 1.0 - EDGE)

    def uniform(self) -> Tensor:
        return samplers.uniform_times(*self.ends, self.steps)


def _em(problem: Problem, x: Tensor) -> Tensor:
    times = samplers.reverse_sde_times(problem.steps)
    return samplers.euler_maruyama(problem.predict("score"), x, times, problem.path, problem.noise)


def _ddim(problem: Problem, x: Tensor) -> Tensor:
    times = samplers.uniform_times(*problem.inner_ends, problem.steps)
    return samplers.ddim(problem.predict("noise"), x, times, problem.path)


def _dpm2m(problem: Problem, x: Tensor) -> Tensor:
    times = samplers.log_snr_times(problem.path, *problem.inner_ends, problem.steps)
    return samplers.dpm_solver_multistep(problem.predict("data"), x, times, problem.path)


def _dpm3_data(problem: Problem, x: Tensor) -> Tensor:
    times = samplers.fast_times(problem.path, *problem.inner_ends, problem.steps)
    orders = samplers.fast_orders(problem.steps)
    return samplers.dpm_solver_singlestep(problem.predict("data"), x, times, problem.path, orders)


def _dpm3(problem: Problem, x: Tensor) -> Tensor:
    start, end = problem.inner_ends
    if isinstance(problem.path, VP) and problem.path.data_time == 0:
        end = UVIT_EDGE
    times, orders = samplers.fast_times(problem.path, start, end, problem.steps), samplers.fast_orders(problem.steps)
    return samplers.dpm_solver_singlestep(problem.predict("noise"), x, times, problem.path, orders, predicts="noise")


def _sde(problem: Problem, x: Tensor) -> Tensor:
    times = samplers.interpolant_sde_times(problem.steps, start=problem.inner_ends[0])
    return samplers.interpolant_sde(problem.predict("velocity"), x, times, problem.path, problem.noise)


SOLVERS: dict[str, Callable[[Problem, Tensor], Tensor]] = {
    "em": _em,
    "ddim": _ddim,
    "dpm++2m": _dpm2m,
    "dpm++3": _dpm3_data,
    "dpm3": _dpm3,
    "euler": lambda problem, x: samplers.euler(problem.predict("velocity"), x, problem.uniform()),
    "heun": lambda problem, x: samplers.heun(problem.predict("velocity"), x, problem.uniform()),
    "sde": _sde,
    "dopri5": lambda problem, x: samplers.dopri5(problem.predict("velocity"), x, *problem.ends),
}
