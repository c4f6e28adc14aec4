"""Which experiments of the papers can be run? `PAPERS` lists them by name; one file per family."""

from __future__ import annotations

from dataclasses import replace

from echoless.config.checks import require_one_of
from echoless.config.options import SweepOptions
from echoless.sweeps.commands import Inputs
from echoless.sweeps.experiment import Experiment
from echoless.sweeps.papers.diffusion import diffusion
from echoless.sweeps.papers.generation import GENERATION
from echoless.sweeps.papers.masked import MASKED
from echoless.sweeps.papers.scale import SCALES, Build, note_on_alphas
from echoless.sweeps.papers.scaling import SCALING
from echoless.sweeps.papers.selfsupervised import SELF_SUPERVISED
from echoless.sweeps.papers.stability import STABILITY
from echoless.sweeps.papers.steering import steered
from echoless.sweeps.papers.supervised import SUPERVISED

# The value of --paper -> function(inputs, scale) -> Experiment; the first line of its docstring says what it is.
PAPERS: dict[str, Build] = (
    MASKED | STABILITY | SELF_SUPERVISED | GENERATION | {"diffusion": diffusion} | SUPERVISED | SCALING
)


def paper(name: str, data: str, options: SweepOptions) -> Experiment:
    """The experiment of that name, at the given scale, changed where the user gave a value."""
    require_one_of("paper", name, tuple(PAPERS))
    scale = SCALES[options.scale]
    experiment = PAPERS[name](Inputs.of(data, options), scale)
    if name in MASKED | STABILITY:
        experiment = replace(experiment, notes=(*experiment.notes, *note_on_alphas(scale, experiment.trials)))
    return steered(experiment, options)
