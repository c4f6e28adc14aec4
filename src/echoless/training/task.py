"""What is trained? The model and the objective that a config names: one row of the table for each pair."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from echoless.config import (
    DiffusionConfig,
    DINOConfig,
    DistillationConfig,
    FlowConfig,
    InfoNCEConfig,
    MAEConfig,
    MaskedConfig,
    MoCoConfig,
    RunConfig,
    SiTConfig,
    UViTConfig,
    ViTConfig,
)
from echoless.config.supervised import ClassifierConfig, SupervisedConfig
from echoless.errors import ConfigError
from echoless.models import DINO, MAE, MoCo, SiT, UViT, ViT
from echoless.models.classifier import Classifier
from echoless.objectives import DINOObjective, InfoNCEObjective, MaskedObjective, Objective, denoising_objective
from echoless.objectives.supervised import SupervisedObjective
from echoless.shortcuts import init_skipless_

Task = tuple[nn.Module, Objective]
# The config of each, the generator of the first weights, and the length of the run, for what changes on the way.
Builder = Callable[[Any, Any, torch.Generator, int], Task]


def _masked(model: MAEConfig, objective: MaskedConfig, generator: torch.Generator, steps: int) -> Task:
    mae = MAE(model, generator)
    initialise_skipless(mae.encoder, generator)
    return mae, MaskedObjective(objective, math.prod(model.encoder.grid))


def _supervised(model: ClassifierConfig, objective: SupervisedConfig, generator: torch.Generator, steps: int) -> Task:
    classifier = Classifier(model, generator)
    initialise_skipless(classifier.encoder, generator)
    branches = model.encoder.blocks * (2 if isinstance(model.encoder, ViTConfig) else 1)
    return classifier, SupervisedObjective(objective, model.classes, branches)


def initialise_skipless(encoder: nn.Module, generator: torch.Generator) -> None:
    """Where the config asks for it. Here and not in the model: weights that are read from a file need no start."""
    if isinstance(encoder, ViT) and encoder.config.init_scheme == "skipless":
        alpha, beta, c = encoder.config.init_constants
        init_skipless_(encoder, alpha, beta, c, generator=generator)


def _denoising(
    model: UViTConfig | SiTConfig, objective: DiffusionConfig | FlowConfig, generator: torch.Generator, steps: int
) -> Task:
    shape = (model.channels, *model.image_size)
    network = UViT(model, generator) if isinstance(model, UViTConfig) else SiT(model, generator)
    return network, denoising_objective(objective, shape, model.classes)


def _contrastive(model: MoCoConfig, objective: InfoNCEConfig, generator: torch.Generator, steps: int) -> Task:
    return MoCo(model, generator), InfoNCEObjective(objective, steps)


def _distillation(model: DINOConfig, objective: DistillationConfig, generator: torch.Generator, steps: int) -> Task:
    return DINO(model, generator), DINOObjective(objective, steps)


TASKS: dict[tuple[Any, Any], Builder] = {
    (MAEConfig, MaskedConfig): _masked,
    (ClassifierConfig, SupervisedConfig): _supervised,
    (UViTConfig, DiffusionConfig): _denoising,
    (UViTConfig, FlowConfig): _denoising,
    (SiTConfig, DiffusionConfig): _denoising,
    (SiTConfig, FlowConfig): _denoising,
    (MoCoConfig, InfoNCEConfig): _contrastive,
    (DINOConfig, DistillationConfig): _distillation,
}


def build_task(config: RunConfig, generator: torch.Generator) -> Task:
    """A fresh model and what it minimises; refuses a pair that does not belong together."""
    model, objective = config.model, config.objective
    builder = TASKS.get((type(model), type(objective)))
    if builder is None:
        pairs = ", ".join(f"{a.kind} with {b.kind}" for a, b in TASKS)
        raise ConfigError(f"model and objective are {model.kind} with {objective.kind}; allowed: {pairs}")
    return builder(model, objective, generator, config.steps)
