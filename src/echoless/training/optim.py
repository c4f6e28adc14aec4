"""How are the weights updated? The optimiser by name, its parameter groups, and the learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from echoless.config import OptimConfig
from echoless.errors import ConfigError
from echoless.training.soap import SOAP

COOLDOWN = 0.2  # share of a run with `--decay wsd` in which the learning rate falls


# "wsd" (warm-up, stable, decay) is the trapezoidal schedule of arXiv:2405.18392: while it is stable the rate does not
# depend on the length of the run, so one run can be cooled down from several moments.
def learning_rate(step: int, *, steps: int, batch_size: int, config: OptimConfig) -> float:
    """For the update that turns `step` into `step + 1`: a linear warm-up from 0, then what `config.decay` says.

    cosine: half a cosine to 0. constant: the peak to the end. wsd: the peak, then linearly to 0.
    """
    peak = config.base_lr * batch_size / 256
    warmup = config.warmup * steps
    if step < warmup:
        return peak * (step + 1) / max(warmup, 1)
    if config.decay == "constant":
        return peak
    if config.decay == "wsd":
        return peak * min(1.0, (steps - step) / max(COOLDOWN * steps, 1))
    progress = (step - warmup) / max(steps - warmup, 1)
    return peak * (1 + math.cos(math.pi * progress)) / 2


def make_optimizer(model: nn.Module, config: OptimConfig) -> torch.optim.Optimizer:
    """Weight decay on matrices only: biases, norms, tokens and learned alphas are vectors or scalars."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    if config.layer_decay is not None:
        groups = layer_groups(model, config)
    if config.name == "adamw":
        return torch.optim.AdamW(groups, lr=config.base_lr, betas=config.betas, fused=True)
    if config.name == "soap":
        return SOAP(groups, lr=config.base_lr, betas=config.betas)
    return _muon(groups, config)


# Section A.2 of arXiv:2106.08254: the learning rate of layer i is lr * decay^(last - i).
def layer_groups(model: nn.Module, config: OptimConfig) -> list[dict[str, Any]]:
    """One group for each layer and kind of parameter, with its factor; the model says which layer a parameter is of."""
    assert config.layer_decay is not None
    layer_of: Callable[[str], int] | None = getattr(model, "layer_of", None)
    if layer_of is None:
        raise ConfigError(f"layer_decay is {config.layer_decay}, but this model has no numbered layers; allowed: None")
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    layers = {name: layer_of(name) for name, _ in named}
    last = max(layers.values())
    groups: dict[tuple[int, bool], dict[str, Any]] = {}
    for name, parameter in named:
        layer, matrix = layers[name], parameter.ndim >= 2
        fresh = {
            "params": [],
            "weight_decay": config.weight_decay if matrix else 0.0,
            "lr_scale": config.layer_decay ** (last - layer),
        }
        groups.setdefault((layer, matrix), fresh)["params"].append(parameter)
    return list(groups.values())


def _muon(groups: list[dict[str, Any]], config: OptimConfig) -> torch.optim.Optimizer:
    try:
        import pytorch_optimizer  # takes seconds, and brings torch's compiler along
    except Exception as error:  # a broken install counts as none
        way_out = "install echoless anew, or give --optimizer adamw"
        raise ConfigError(f"optimizer is 'muon', which needs pytorch-optimizer ({error}); {way_out}") from None
    groups = [group | {"use_muon": index == 0} for index, group in enumerate(groups)]
    # Adjusted: updates as long as AdamW's, so that base_lr means the same for both.
    return pytorch_optimizer.Muon(groups, lr=config.base_lr, adamw_betas=config.betas, use_adjusted_lr=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_scale", 1.0)
