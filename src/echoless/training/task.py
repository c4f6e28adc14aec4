"""What is trained? The model and the objective that a config names."""

from __future__ import annotations

import torch
from torch import nn

from echoless.config import MaskedConfig, RunConfig
from echoless.config.model import MAEConfig
from echoless.config.supervised import ClassifierConfig, SupervisedConfig
from echoless.errors import ConfigError
from echoless.models import MAE
from echoless.models.classifier import Classifier
from echoless.objectives import MaskedObjective, Objective
from echoless.objectives.supervised import SupervisedObjective


def build_task(config: RunConfig, generator: torch.Generator) -> tuple[nn.Module, Objective]:
    """A fresh model and what it minimises; refuses a pair that does not belong together."""
    model, objective = config.model, config.objective
    if isinstance(model, MAEConfig) and isinstance(objective, MaskedConfig):
        rows, columns = model.encoder.grid
        return MAE(model, generator), MaskedObjective(objective, rows * columns)
    if isinstance(model, ClassifierConfig) and isinstance(objective, SupervisedConfig):
        return Classifier(model, generator), SupervisedObjective(objective, model.classes, 2 * model.encoder.depth)
    pair = f"{type(model).__name__} with {type(objective).__name__}"
    raise ConfigError(f"model and objective are {pair}; allowed: MAEConfig with MaskedConfig, or both supervised")
