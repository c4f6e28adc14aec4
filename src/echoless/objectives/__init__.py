"""What is minimised: (model, batch, draws) -> loss."""

from echoless.objectives.masked import MaskedObjective, masked_loss, masking_from_noise, patch_targets, random_masking
from echoless.objectives.objective import Draws, LossModule, Objective, take

__all__ = [
    "Draws",
    "LossModule",
    "MaskedObjective",
    "Objective",
    "masked_loss",
    "masking_from_noise",
    "patch_targets",
    "random_masking",
    "take",
]
