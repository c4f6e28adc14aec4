"""Proves batch norm over processes against torch's own, and sums and rows over two processes against one.

Run alone: pytest tests/models/test_global_batch.py.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from echoless.models.global_batch import BatchNorm, GlobalBatchNorm2d, all_rows

ROWS, CUT = 7, 4  # unequal parts


def test_with_one_process_it_is_torchs_batch_norm():
    x = torch.randn(32, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    twin = x.detach().clone().requires_grad_(True)
    ours, theirs = BatchNorm(5), nn.BatchNorm1d(5)
    with torch.no_grad():
        for parameter, other in zip(ours.parameters(), theirs.parameters()):
            other.copy_(parameter.uniform_(0.5, 2, generator=torch.Generator().manual_seed(1)))
    weight = torch.randn(32, 5, generator=torch.Generator().manual_seed(2))
    (ours(x) * weight).sum().backward()
    (theirs(twin) * weight).sum().backward()
    assert torch.allclose(ours(x), theirs(twin), atol=1e-5)
    assert torch.allclose(x.grad, twin.grad, atol=1e-4)
    assert torch.allclose(ours.weight.grad, theirs.weight.grad, atol=1e-4)


def _part(rank: int, folder: str) -> None:
    store = dist.FileStore(f"{folder}/store", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    whole, weight = _whole()
    x = whole[:CUT] if rank == 0 else whole[CUT:]
    x = x.clone().requires_grad_(True)
    normal = BatchNorm(3, affine=False)(x)
    (normal * (weight[:CUT] if rank == 0 else weight[CUT:])).sum().backward()
    rows, first = all_rows(x)
    maps = _maps()[:CUT] if rank == 0 else _maps()[CUT:]
    maps = maps.clone().requires_grad_(True)
    norm = GlobalBatchNorm2d(3)
    normal_maps = norm(maps)
    normal_maps.pow(3).sum().backward()
    found = {"normal": normal.detach(), "grad": x.grad, "rows": rows, "first": first}
    found |= {"maps": normal_maps.detach(), "maps_grad": maps.grad, "running": norm.state_dict()}
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def _whole() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(ROWS, 3, generator=generator), torch.randn(ROWS, 3, generator=generator)


def _maps() -> torch.Tensor:
    return 3 * torch.randn(ROWS, 3, 4, 4, generator=torch.Generator().manual_seed(4)) + 1


def test_two_processes_with_unequal_parts_see_what_one_sees():
    whole, weight = _whole()
    alone = whole.clone().requires_grad_(True)
    normal = BatchNorm(3, affine=False)(alone)
    (normal * weight).sum().backward()
    with tempfile.TemporaryDirectory() as folder:
        both = [subprocess.Popen([sys.executable, __file__, str(rank), folder]) for rank in range(2)]
        assert [process.wait() for process in both] == [0, 0]
        parts = [torch.load(Path(folder) / f"{rank}.pt", weights_only=True) for rank in range(2)]
    assert torch.allclose(torch.cat([part["normal"] for part in parts]), normal, atol=1e-5)
    assert torch.allclose(torch.cat([part["grad"] for part in parts]), alone.grad, atol=1e-5)
    assert all(part["rows"].equal(whole) for part in parts)
    assert [part["first"] for part in parts] == [0, CUT]
    maps, theirs = _maps().requires_grad_(True), nn.BatchNorm2d(3)
    expected = theirs(maps)
    expected.pow(3).sum().backward()
    assert torch.allclose(torch.cat([part["maps"] for part in parts]), expected, atol=1e-5)
    assert torch.allclose(torch.cat([part["maps_grad"] for part in parts]), maps.grad, atol=1e-4)
    for part in parts:
        for name, value in theirs.state_dict().items():
            assert torch.allclose(part["running"][name].float(), value.float(), atol=1e-6), name


if __name__ == "__main__":
    _part(int(sys.argv[1]), sys.argv[2])
