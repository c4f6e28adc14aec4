"""Objectives: (model, batch, draws) -> loss; and samplers."""

from echoless.objectives.diffusion import DiffusionObjective
from echoless.objectives.distillation import DINOObjective, distillation_loss, teacher_targets
from echoless.objectives.flow import FlowObjective, sampling_interval, training_interval
from echoless.objectives.infonce import InfoNCEObjective, info_nce, rising_momentum
from echoless.objectives.masked import MaskedObjective, masked_loss, masking_from_noise, patch_targets, random_masking
from echoless.objectives.noising import Noised, denoising_objective, noised
from echoless.objectives.objective import Draws, LossModule, Objective, Teaching, take
from echoless.objectives.paths import Path, Point, diffusion_path, interpolant_path
from echoless.objectives.predictions import PREDICTIONS, Field, convert, field_of, translate
from echoless.objectives.sampling import SOLVERS, Sampling, draw_samples, sampler_for

__all__ = [
    "PREDICTIONS",
    "SOLVERS",
    "DINOObjective",
    "DiffusionObjective",
    "Draws",
    "Field",
    "FlowObjective",
    "InfoNCEObjective",
    "LossModule",
    "MaskedObjective",
    "Noised",
    "Objective",
    "Path",
    "Point",
    "Sampling",
    "Teaching",
    "convert",
    "denoising_objective",
    "diffusion_path",
    "distillation_loss",
    "draw_samples",
    "field_of",
    "info_nce",
    "interpolant_path",
    "masked_loss",
    "masking_from_noise",
    "noised",
    "patch_targets",
    "random_masking",
    "rising_momentum",
    "sampler_for",
    "sampling_interval",
    "take",
    "teacher_targets",
    "training_interval",
    "translate",
]
