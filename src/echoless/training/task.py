"""What is trained? The model and the objective that a config names: one row of the table for each pair."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from echoless.config import (
    DiffusionConfig,
    FlowConfig,
    MAEConfig,
    MaskedConfig,
    RunConfig,
    SiTConfig,
    UViTConfig,
)
from echoless.config.supervised import ClassifierConfig, SupervisedConfig
from echoless.errors import ConfigError
from echoless.models import MAE, SiT, UViT
from echoless.models.classifier import Classifier
from echoless.objectives import MaskedObjective, Objective, denoising_objective
from echoless.objectives.supervised import SupervisedObjective

Task = tuple[nn.Module, Objective]
Builder = Callable[[Any, Any, torch.Generator], Task]


def _masked(model: MAEConfig, objective: MaskedConfig, generator: torch.Generator) -> Task:
    return MAE(model, generator), MaskedObjective(objective, math.prod(model.encoder.grid))


def _supervised(model: ClassifierConfig, objective: SupervisedConfig, generator: torch.Generator) -> Task:
    return Classifier(model, generator), SupervisedObjective(objective, model.classes, 2 * model.encoder.depth)


def _denoising(
    model: UViTConfig | SiTConfig, objective: DiffusionConfig | FlowConfig, generator: torch.Generator
) -> Task:
    shape = (model.channels, *model.image_size)
    network = UViT(model, generator) if isinstance(model, UViTConfig) else SiT(model, generator)
    return network, denoising_objective(objective, shape, model.classes)


TASKS: dict[tuple[Any, Any], Builder] = {
    (MAEConfig, MaskedConfig): _masked,
    (ClassifierConfig, SupervisedConfig): _supervised,
    (UViTConfig, DiffusionConfig): _denoising,
    (UViTConfig, FlowConfig): _denoising,
    (SiTConfig, DiffusionConfig): _denoising,
    (SiTConfig, FlowConfig): _denoising,
}


def build_task(config: RunConfig, generator: torch.Generator) -> Task:
    """A fresh model and what it minimises; refuses a pair that does not belong together."""
    model, objective = config.model, config.objective
    builder = TASKS.get((type(model), type(objective)))
    if builder is None:
        pairs = ", ".join(f"{a.kind} with {b.kind}" for a, b in TASKS)
        raise ConfigError(f"model and objective are {model.kind} with {objective.kind}; allowed: {pairs}")
    return builder(model, objective, generator)
