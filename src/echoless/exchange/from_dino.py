"""How does the head of a published DINO become ours? Where weights come with one, a DINO run continues from it.

transformers writes none; the names are those of facebookresearch's dino (`head.`) and dinov2 (`dino_head.`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from echoless.exchange.names import Taken

_PREFIXES = ("dino_head.", "head.")
_LAYERS = {"mlp.0": "fc1", "mlp.2": "fc2", "mlp.4": "fc3"}  # activations stand between them
_LAST = (
    ("last_layer.weight_v", "last_layer.weight_g"),
    ("last_layer.parametrizations.weight.original1", "last_layer.parametrizations.weight.original0"),
)


def dino_head(taken: Taken) -> tuple[dict[str, Tensor], str]:
    """The state of `models.dino.Head`, empty where there is none; and why one that is there was left behind."""
    prefix = next((each for each in _PREFIXES if f"{each}mlp.0.weight" in taken.state), None)
    if prefix is None:
        return {}, ""
    found = {name[len(prefix) :]: tensor for name, tensor in taken.state.items() if name.startswith(prefix)}
    taken.drop(prefix)
    last = next(((direction, length) for direction, length in _LAST if direction in found), None)
    expected = {f"{layer}.{kind}" for layer in _LAYERS for kind in ("weight", "bias")} | set(last or ())
    if last is None or set(found) - expected or expected - set(found) - {last[1]}:
        return {}, f"{prefix}* (it is not three linear layers and prototypes)"
    if last[1] in found and not torch.allclose(found[last[1]], torch.ones(())):
        return {}, f"{prefix}* (its prototypes have lengths other than 1)"
    state = {f"{ours}.{kind}": found[f"{name}.{kind}"] for name, ours in _LAYERS.items() for kind in ("weight", "bias")}
    return {name: tensor.float() for name, tensor in (state | {"prototypes": found[last[0]]}).items()}, ""
