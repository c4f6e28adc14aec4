"""What is minimised: (model, batch, draws) -> loss."""

from echoless.objectives.diffusion import DiffusionObjective
from echoless.objectives.flow import FlowObjective, sampling_interval, training_interval
from echoless.objectives.masked import MaskedObjective, masked_loss, masking_from_noise, patch_targets, random_masking
from echoless.objectives.objective import Draws, LossModule, Objective, take
from echoless.objectives.paths import Path, Point, diffusion_path, interpolant_path
from echoless.objectives.predictions import PREDICTIONS, Field, convert, field_of, translate

__all__ = [
    "PREDICTIONS",
    "DiffusionObjective",
    "Draws",
    "Field",
    "FlowObjective",
    "LossModule",
    "MaskedObjective",
    "Objective",
    "Path",
    "Point",
    "convert",
    "diffusion_path",
    "field_of",
    "interpolant_path",
    "masked_loss",
    "masking_from_noise",
    "patch_targets",
    "random_masking",
    "sampling_interval",
    "take",
    "training_interval",
    "translate",
]
