"""What is minimised: (model, batch, generator) -> loss."""

from echoless.objectives.masked import masked_loss, masking_from_noise, patch_targets, random_masking

__all__ = ["masked_loss", "masking_from_noise", "patch_targets", "random_masking"]
