"""Which models and objectives can be trained? One row of the table per pair."""

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
)
from echoless.config.checks import require
from echoless.config.supervised import ClassifierConfig, SupervisedConfig
from echoless.errors import ConfigError
from echoless.models import fresh
from echoless.objectives import DINOObjective, InfoNCEObjective, MaskedObjective, Objective, denoising_objective
from echoless.objectives.supervised import SupervisedObjective
from echoless.training.fading_in import fade_to

Task = tuple[nn.Module, Objective]


def _masked(objective: MaskedConfig, model: MAEConfig, steps: int) -> Objective:
    return MaskedObjective(objective, math.prod(model.encoder.grid))


def _supervised(objective: SupervisedConfig, model: ClassifierConfig, steps: int) -> Objective:
    _require_shortcuts_to_drop(objective, model)
    return SupervisedObjective(objective, model.classes, model.encoder.branches)


def _denoising(objective: DiffusionConfig | FlowConfig, model: UViTConfig | SiTConfig, steps: int) -> Objective:
    return denoising_objective(objective, (model.channels, *model.image_size), model.classes)


def _infonce(objective: InfoNCEConfig, model: MoCoConfig, steps: int) -> Objective:
    return InfoNCEObjective(objective, steps)


def _distillation(objective: DistillationConfig, model: DINOConfig, steps: int) -> Objective:
    _require_shortcuts_to_drop(objective, model)
    return DINOObjective(objective, steps, model.encoder.branches)


def _require_shortcuts_to_drop(
    objective: SupervisedConfig | DistillationConfig, model: ClassifierConfig | DINOConfig
) -> None:
    alone = not model.encoder.shortcuts.carry
    allowed = "0 with variant none, because nothing is left of the stream where a branch is dropped"
    require(not alone or objective.drop_path == 0, "drop_path", objective.drop_path, allowed)


# (kind of model, kind of objective) -> the objective, given both configs and the length of the run, which decides the
# schedules of temperatures and momenta.
OBJECTIVES: dict[tuple[str, str], Callable[[Any, Any, int], Objective]] = {
    ("mae", "masked"): _masked,
    ("classifier", "supervised"): _supervised,
    ("uvit", "diffusion"): _denoising,
    ("uvit", "flow"): _denoising,
    ("sit", "diffusion"): _denoising,
    ("sit", "flow"): _denoising,
    ("moco", "infonce"): _infonce,
    ("dino", "distillation"): _distillation,
}


def build_task(config: RunConfig, generator: torch.Generator) -> Task:
    """An initialised model with the alphas of step 0, and its objective; refuses a pair that is not in the table."""
    model, objective = config.model, config.objective
    make = OBJECTIVES.get((model.kind, objective.kind))
    if make is None:
        pairs = ", ".join(f"{a} with {b}" for a, b in OBJECTIVES)
        raise ConfigError(f"model and objective are {model.kind} with {objective.kind}; allowed: {pairs}")
    network = fresh(model, generator)
    fade_to(config, 0, network)
    return network, make(objective, model, config.steps)
