"""How does a run continue exactly where it stopped? A checkpoint holds everything that a step changes.

There is no random state to save, because none exists between steps (echoless.randomness), and no position in the data,
because it is the step (echoless.data.order).
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

import echoless
from echoless.config import RunConfig, from_dict, to_dict
from echoless.config.training import model_after
from echoless.errors import NonFiniteError, RunError
from echoless.runs import Checkpoint, RunFolder, flatten_state, require_same_shortcuts, unflatten_state
from echoless.runtime import Team
from echoless.training.fading_in import fade_to
from echoless.training.sharding import gather, like
from echoless.training.step import Trainee, non_finite_parameter


def save(run: RunFolder | None, trainee: Trainee, step: int, keep: int) -> None:
    """A checkpoint after `step` updates, in one format for any number of processes.

    Called by rank 0, which has the folder; in a sharded run by all, because the tensors are gathered. Weights that are
    not finite are never written.
    """
    if (name := non_finite_parameter(trainee)) is not None:
        raise NonFiniteError(
            f"after step {step} the parameter {name} is not finite; nothing was saved, the last checkpoint stands"
        )
    optim, layout = flatten_state(trainee.optimizer.state_dict())
    tensors: dict[str, Mapping[str, Tensor]] = {"model": trainee.model.state_dict(), "optim": optim}
    if trainee.ema is not None:
        tensors["ema"] = trainee.ema.state_dict()
    if trainee.sharded:
        tensors = {group: gather(named, trainee.team) for group, named in tensors.items()}
    if run is not None:
        run.save_checkpoint(step, tensors, {"optim": layout}, describe(trainee), keep)


def restore(trainee: Trainee, checkpoint: Checkpoint) -> None:
    """The inverse of `save`; refuses weights of another model or optimiser, or trained under other shortcuts."""
    _require_same_tensors(checkpoint.manifest["config"], to_dict(trainee.config))
    fade_to(trainee.config, checkpoint.step, trainee.model, trainee.ema)
    require_same_shortcuts(
        shortcut_record(trainee), checkpoint.manifest["shortcuts"], names=("this run", "the checkpoint")
    )
    if "optim" not in checkpoint.tensors:
        raise RunError(
            "this folder holds imported weights and no training state; use it with --init, not with --resume"
        )
    _load(trainee.model, checkpoint.tensors["model"])
    state = unflatten_state(checkpoint.tensors["optim"], checkpoint.state["optim"])
    trainee.optimizer.load_state_dict(_divided(state, trainee.optimizer) if trainee.sharded else state)
    if trainee.ema is not None:
        _load(trainee.ema, checkpoint.tensors["ema"])


def _load(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    own = module.state_dict()
    module.load_state_dict({name: like(each, own[name]) if name in own else each for name, each in tensors.items()})


def _divided(state: dict[str, Any], optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The state of an optimiser, with whatever has the shape of a parameter divided as that parameter is."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    divided = {
        number: {
            name: like(value, parameters[number])
            if isinstance(value, Tensor) and value.shape == parameters[number].shape
            else value
            for name, value in values.items()
        }
        for number, values in state["state"].items()
    }
    return state | {"state": divided}


def _require_same_tensors(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuses other settings that change the tensors. The shortcuts are checked separately, with a table."""
    before, now = _flat(_rewritten(before)), _flat(now)
    for name in sorted(before.keys() | now.keys()):
        shaped = name.startswith("model.") and ".shortcuts." not in name
        then, wanted = before.get(name), now.get(name)
        if name == "optim.ema" and (then is None) != (wanted is None):
            raise RunError(f"{name} was {then} and is {wanted}; --resume can neither add nor remove the average")
        if name.startswith("data.latent") and name != "data.latent.path" and then != wanted:
            raise RunError(f"{name} was {then!r} and is {wanted!r}; --resume needs the same latents")
        if (shaped or name == "optim.name") and then != wanted:
            raise RunError(f"{name} was {then!r} and is {wanted!r}; --resume cannot change it, --init in a new run can")


def describe(trainee: Trainee) -> dict[str, Any]:
    """What the manifest records about the weights: config, shortcuts, environment."""
    return {
        "config": to_dict(trainee.config),
        "shortcuts": shortcut_record(trainee),
        "environment": environment(trainee.team, trainee.sharded),
    }


def shortcut_record(trainee: Trainee) -> dict[str, Any]:
    return trainee.model.shortcut_record  # type: ignore[return-value]


def environment(team: Team, sharded: bool = False) -> dict[str, Any]:
    """What must be equal for two runs to be bitwise equal."""
    return {
        "echoless": echoless.__version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "world": team.world,
        "sharded": sharded,
        "device": team.device.type,
        "machine": platform.machine(),
    }


def drift(manifest: Mapping[str, Any], config: RunConfig, team: Team, sharded: bool = False) -> list[str]:
    """One line per difference between a checkpoint and this process: what changed, and what it affects."""
    then, now = {"sharded": False} | manifest["environment"], environment(team, sharded)
    lost = "same order of samples, but not bitwise the same results"
    lines = [
        f"{name}: {then.get(name)} in the record, {now[name]} now ({lost})"
        for name in now
        if then.get(name) != now[name]
    ]
    return lines + changed_settings(manifest["config"], config)


def changed_settings(recorded: Mapping[str, Any], config: RunConfig) -> list[str]:
    """One line for each setting that differs from the recorded config. The path of the same images may change."""
    before, now = _flat(_rewritten(recorded)), _flat(to_dict(config))
    lines = []
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) == now.get(name) or name == "data.path":
            continue
        lost = "other images, so other results" if name.startswith("data.") else "other results from here on"
        lines.append(f"{name}: {before.get(name)!r} in the record, {now.get(name)!r} now ({lost})")
    return lines


def _rewritten(config: Mapping[str, Any]) -> dict[str, Any]:
    """An earlier config as it would be written now, with defaults for settings that did not exist."""
    return to_dict(from_dict(RunConfig, config))


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {path: value}
    inner = [_flat(item, f"{path}.{key}" if path else key) for key, item in value.items()]
    return {key: item for flat in inner for key, item in flat.items()}


def encoder_of(trainee: Trainee, step: int) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, Any]]:
    """The body after `step` updates as (tensors, config, shortcuts), with EMA weights if there are any.

    In a sharded run all processes take part, and rank 0 alone gets the tensors.
    """
    model: Any = trainee.model if trainee.ema is None else trainee.ema.module
    body = model.body
    data = trainee.config.data
    config = {
        "kind": body.config.kind,
        "model": to_dict(model_after(trainee.config, step).body),
        "objective": to_dict(trainee.config.objective),
        "mean": list(data.mean),
        "std": list(data.std),
    }
    if data.tiles is not None:
        config["tiles"] = data.tiles
    if data.latent is not None:
        config["latent"] = to_dict(data.latent)
    tensors = body.state_dict()
    return gather(tensors, trainee.team) if trainee.sharded else tensors, config, body.shortcut_record
