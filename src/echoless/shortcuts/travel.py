"""How do alphas travel with the weights of a faded model? As an entry of its state dict, and of its config.

Weights that were trained with fading are wrong without it, and nothing else in a state dict would tell. So `fade` adds
the buffer `alphas_of_echoless_fade` (the JSON of its report, as bytes, which no change of precision touches). Loading
such weights into a plain model fails with an unexpected key, loading plain weights into a faded model with a missing
one, and loading weights of other alphas with a sentence. Models of transformers also get an entry in their config,
which `save_pretrained` writes to config.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from echoless.shortcuts.report import FadeReport, Saved, parse_record

BUFFER = "alphas_of_echoless_fade"
CONFIG_ENTRY = "faded_shortcuts"  # of a transformers config


def attach_record(model: nn.Module, report: FadeReport) -> None:
    """Adds the record of a faded model to its state dict and, where it has a config of transformers, to that."""
    record = report.record()
    device = next((tensor.device for tensor in model.parameters()), None)
    model.register_buffer(BUFFER, torch.frombuffer(bytearray(_encoded(record)), dtype=torch.uint8).to(device))
    model.register_load_state_dict_pre_hook(_refuse_other_alphas)
    if (config := _writable_config(model)) is not None:
        setattr(config, CONFIG_ENTRY, record)


def detach_record(model: nn.Module) -> None:
    """Removes what `attach_record` added."""
    model._buffers.pop(BUFFER, None)
    model._non_persistent_buffers_set.discard(BUFFER)
    hooks: dict[int, Any] = model._load_state_dict_pre_hooks
    for key in [key for key, hook in hooks.items() if getattr(hook, "hook", hook) is _refuse_other_alphas]:
        del hooks[key]
    if hasattr(config := _writable_config(model), CONFIG_ENTRY):
        delattr(config, CONFIG_ENTRY)


def record_in(model: nn.Module) -> Saved:
    """The record that a faded model has with its weights."""
    return record_of(model.state_dict(), type(model).__name__)


def record_of(state: Mapping[str, Any], name: str = "the state dict") -> Saved:
    """The record in a state dict, wherever the faded model is in it (`module.`, `model.`)."""
    found = [value for key, value in state.items() if key.split(".")[-1] == BUFFER]
    if len(found) != 1 or not isinstance(found[0], Tensor):
        raise ValueError(f"{name} has {len(found)} entries {BUFFER!r}; allowed: one, as `fade` adds it")
    return parse_record(_decoded(found[0]), f"the entry {BUFFER!r} of {name}")


def _encoded(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def _decoded(entry: Tensor) -> str:
    return bytes(entry.detach().cpu().to(torch.uint8).tolist()).decode(errors="replace")


def _writable_config(model: nn.Module) -> Any:
    """A config of transformers, recognised by what it can do: the library is never imported here. Else None."""
    config = getattr(model, "config", None)
    return config if hasattr(config, "to_json_string") and hasattr(config, "__dict__") else None


def _refuse_other_alphas(
    module: nn.Module, state_dict: Mapping[str, Any], prefix: str, metadata: Any, strict: bool, *lists: list[str]
) -> None:
    """Before weights are loaded into a faded model: those of another schedule are refused, strict or not."""
    given, own = state_dict.get(prefix + BUFFER), module._buffers.get(BUFFER)
    if not isinstance(given, Tensor) or own is None:
        return  # torch reports a missing key
    then, now = (_alphas(record_of({BUFFER: entry})) for entry in (given, own))
    if then != now:
        lists[-1].append(f"the weights belong to a model faded with {then}, but this one is faded with {now}")


def _alphas(saved: Saved) -> str:
    values = [shortcut.alpha for shortcut in saved.shortcuts]
    return f"{len(values)} alphas, {', '.join(f'{value:.4g}' for value in values)}"
