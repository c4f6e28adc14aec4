"""R4: every flipped bit and every cut in a real checkpoint is noticed, and the previous valid one takes over."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from echoless.runs import find_latest_valid, flatten_state, save_checkpoint

FLIPS, TRUNCATIONS = 1_000, 200


def two_checkpoints(folder: Path) -> Path:
    """A small encoder trained for a few steps with AdamW and a moving average; returns the newer checkpoint."""
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    optimiser = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95))
    path = folder
    for step in (10, 20):
        model(torch.randn(2, 5, 16)).square().mean().backward()
        optimiser.step()
        moments, layout = flatten_state(optimiser.state_dict())
        tensors = {"model": model.state_dict(), "optim": moments, "ema": model.state_dict()}
        manifest = {"alphas": [1.0, 0.6], "config": {"width": 16}, "torch": str(torch.__version__), "threads": 1}
        path = save_checkpoint(folder, step, tensors, {"optim": layout, "seed": 0}, manifest)
    return path


def refused_with_reason(folder: Path, damaged: Path) -> bool:
    """The older checkpoint is used, and the report says which file of the newer one was at fault."""
    found = find_latest_valid(folder)
    return (
        found.step == 10
        and [name for name, _ in found.skipped] == ["step-00000020"]
        and (str(damaged) in found.skipped[0].reason)
    )


def refusals(folder: Path, times: int, damage: Callable[[Path, bytes, int], object]) -> int:
    """How often the newer checkpoint is refused when one of its files is damaged; each is restored afterwards."""
    files = sorted(two_checkpoints(folder).iterdir())
    refused = 0
    for number in range(times):
        file = files[number % len(files)]
        whole = file.read_bytes()
        damage(file, whole, number // len(files))
        refused += refused_with_reason(folder, file)
        file.write_bytes(whole)
    assert find_latest_valid(folder).step == 20  # undamaged, it is used
    return refused


def test_every_flipped_bit_is_refused_and_the_previous_checkpoint_used(tmp_path):
    rng = random.Random(0)

    def flip(file: Path, whole: bytes, _: int) -> None:
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        file.write_bytes(damaged)

    refused = refusals(tmp_path, FLIPS, flip)
    print(f"R4 flips={FLIPS} refused={refused}")
    assert refused == FLIPS


def test_every_cut_or_missing_file_is_refused_and_the_previous_checkpoint_used(tmp_path):
    rng = random.Random(1)

    def remove_then_cut(file: Path, whole: bytes, round_: int) -> None:
        if round_ == 0:
            file.unlink()
        else:
            file.write_bytes(whole[: rng.randrange(len(whole))])

    refused = refusals(tmp_path, TRUNCATIONS, remove_then_cut)
    print(f"R4 truncations={TRUNCATIONS} refused={refused}")
    assert refused == TRUNCATIONS


def test_no_damage_to_latest_changes_which_checkpoint_is_used(tmp_path):
    two_checkpoints(tmp_path)
    latest = tmp_path / "latest"
    whole = latest.read_bytes()
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        latest.write_bytes(damaged)
        assert find_latest_valid(tmp_path).step == 20
