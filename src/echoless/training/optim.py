"""How are the weights updated? The optimiser by name, its parameter groups, and the learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from echoless.config import OptimConfig
from echoless.errors import ConfigError
from echoless.training.sharding import whole
from echoless.training.soap import SOAP
from echoless.training.uncompiled import UncompiledAdamW

COOLDOWN = 0.2  # share of a run with `--decay wsd` in which the learning rate falls


# "wsd" (warm-up, stable, decay) is the trapezoidal schedule of arXiv:2405.18392: while it is stable the rate does not
# depend on the length of the run, so one run can be cooled down from several moments.
def learning_rate(step: int, *, steps: int, batch_size: int, config: OptimConfig) -> float:
    """For the update that turns `step` into `step + 1`: a linear warm-up from 0, then what `config.decay` says.

    cosine: half a cosine to min_lr. constant: the peak to the end. wsd: the peak, then linearly to min_lr.
    """
    peak = config.base_lr * batch_size / 256
    warmup = config.warmup * steps
    if step < warmup:
        return peak * (step + 1) / max(warmup, 1)
    if config.decay == "constant":
        return peak
    if config.decay == "wsd":
        share = min(1.0, (steps - step) / max(COOLDOWN * steps, 1))
    else:
        share = _half_cosine((step - warmup) / max(steps - warmup, 1))
    last = min(config.min_lr, peak)
    return last + (peak - last) * share


# "Implementation details", arXiv:2104.14294: weight decay follows a cosine from 0.04 to 0.4.
def weight_decay(step: int, *, steps: int, config: OptimConfig) -> float:
    """For the update that turns `step` into `step + 1`."""
    if config.weight_decay_end is None:
        return config.weight_decay
    last = config.weight_decay_end
    return last + (config.weight_decay - last) * _half_cosine(step / steps)


def _half_cosine(progress: float) -> float:
    """From 1 to 0."""
    return (1 + math.cos(math.pi * progress)) / 2


def make_optimizer(model: nn.Module, config: OptimConfig) -> torch.optim.Optimizer:
    groups = decay_groups(model, config) if config.layer_decay is None else layer_groups(model, config)
    if config.name == "adamw":
        return UncompiledAdamW(groups, lr=config.base_lr, betas=config.betas, fused=True)
    if config.name == "soap":
        return SOAP(groups, lr=config.base_lr, betas=config.betas)
    return _muon(groups, config)


def decay_groups(model: nn.Module, config: OptimConfig) -> list[dict[str, Any]]:
    """Weight decay on the parameters that `config.weight_decay_on` names; matrices are the first group."""
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    vectors = [(is_decayed(name, p, config), p) for name, p in trained if p.ndim < 2]
    groups = [
        _group([p for _, p in trained if p.ndim >= 2], True, config),
        _group([p for decayed, p in vectors if not decayed], False, config),
        _group([p for decayed, p in vectors if decayed], True, config),
    ]
    return groups if groups[-1]["params"] else groups[:-1]


def is_decayed(name: str, parameter: Tensor, config: OptimConfig) -> bool:
    """Whether weight decay applies to this parameter."""
    if parameter.ndim >= 2 or config.weight_decay_on == "all":
        return True
    # Vectors and scalars here; the authors store a token as (1, 1, D) and decay whatever has more than one axis.
    last = name.split(".")[-1]
    return config.weight_decay_on == "authors" and (last.endswith("_token") or last == "alpha")


def _group(parameters: list[nn.Parameter], decayed: bool, config: OptimConfig) -> dict[str, Any]:
    group = {"params": parameters, "weight_decay": config.weight_decay if decayed else 0.0}
    return group if config.weight_decay_end is None else group | {"decayed": decayed}


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
        layer, decayed = layers[name], is_decayed(name, parameter, config)
        fresh = _group([], decayed, config) | {"lr_scale": config.layer_decay ** (last - layer)}
        groups.setdefault((layer, decayed), fresh)["params"].append(parameter)
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


def set_rates(optimizer: torch.optim.Optimizer, lr: float, decay: float) -> None:
    """The learning rate of every group, and the weight decay of those in which it changes."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_scale", 1.0)
        if group.get("decayed", False):
            group["weight_decay"] = decay


def clip_gradients(model: nn.Module, config: OptimConfig) -> Tensor:
    """Scale gradients down to the norm `config.clip`, together or each on its own. Returns the norm before."""
    together = config.clip if config.clip is not None and config.clip_by == "global" else math.inf
    norm = nn.utils.clip_grad_norm_(model.parameters(), together)
    if config.clip is not None and config.clip_by == "parameter":
        for parameter in model.parameters():
            nn.utils.clip_grad_norm_(parameter, config.clip)
    return whole(norm)
