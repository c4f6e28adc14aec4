"""How is a model divided among processes? FSDP2: every weight is cut, and gathered only while its block computes.

Each process holds its part of every weight, gradient and optimiser state, as a DTensor. There is one unit per block,
and one for everything else. Weights are gathered in their own precision and cast by autocast, as with DDP: what is
computed does not depend on where the weights are kept.

DTensors are recognised by their methods, and FSDP is imported by who uses it: loading both takes a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from torch import Tensor, nn

from echoless.models.body import blocks_of
from echoless.runtime import Team

Module = TypeVar("Module", bound=nn.Module)


def divide(module: Module, team: Team, *methods: str) -> Module:
    """Cut the weights of a module, in place, and move this process's part to its device.

    methods: those that use the weights besides `forward`; all processes must call them together.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(team.device.type, (team.world,))
    for block in blocks_of(module):
        fully_shard(block, mesh=mesh)
    fully_shard(module, mesh=mesh)
    for method in methods:
        register_fsdp_forward_method(module, method)
    return module


def put_away(module: Any) -> None:
    """Free what was gathered of the weights outside the blocks. A backward pass does that by itself."""
    module.reshard()


def part_of(tensor: Tensor) -> Tensor:
    """What this process holds of it: all, where it is not divided."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def whole(tensor: Tensor) -> Tensor:
    """All of it; where it is divided, all processes must ask together."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def gather(tensors: Mapping[str, Tensor], team: Team) -> dict[str, Tensor]:
    """Whole tensors in the memory of rank 0, one after the other; nothing elsewhere. All processes take part."""
    gathered = {}
    for name, tensor in tensors.items():
        value = whole(tensor)
        if team.leads:
            gathered[name] = value.cpu()
    return gathered


def like(tensor: Tensor, template: Tensor) -> Tensor:
    """A whole tensor that every process has, divided as the template is."""
    if not hasattr(template, "device_mesh"):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    placed = tensor.to(template.device)
    return distribute_tensor(placed, template.device_mesh, template.placements, src_data_rank=None)  # type: ignore[attr-defined]
