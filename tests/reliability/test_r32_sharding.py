"""R32: --shard and --checkpoint-activations change who holds a weight and when it is computed, never the result.

Sharded, replicated (DDP) and alone, with and without recomputation: the same weights; a checkpoint of any is resumed by
any other. Two processes and gloo. `pytest tests/reliability/test_r32_sharding.py -m "slow or not slow"` runs all.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from processes import complete, run, weights

from echoless.runs import load_checkpoint

SHARDED = {"shard": True}
BOTH = {"shard": True, "checkpoint_activations": True}


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


def losses(out: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_a_sharded_run_with_recomputation_has_the_weights_of_a_replicated_one(tmp_path):
    """Not bitwise: where a tensor is cut decides which of its values the vector instructions of AdamW take together."""
    for name, runtime in (("ddp", {}), ("sharded", BOTH)):
        complete(tmp_path / name, 2, steps=4, **runtime)
    distance = apart(weights(tmp_path / "sharded", 4), weights(tmp_path / "ddp", 4))
    print(f"R32 4 steps, 2 processes, --shard --checkpoint-activations against DDP: {distance:.1e}")
    assert distance < 1e-6


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    """Twenty steps of one process."""
    out = tmp_path_factory.mktemp("alone") / "run"
    complete(out, 1)
    return out


@pytest.mark.slow
def test_sharded_replicated_and_alone_agree_after_twenty_steps(alone, tmp_path):
    plan = {"ddp": {}, "sharded": SHARDED, "both": BOTH}
    for name, runtime in plan.items():
        complete(tmp_path / name, 2, **runtime)
    found = {name: weights(tmp_path / name) for name in plan}
    one = weights(alone)
    print(f"R32 20 steps against one process: {', '.join(f'{n} {apart(w, one):.1e}' for n, w in found.items())}")
    assert torch.equal(found["both"], found["sharded"]), "recomputation changes no bit"
    assert max(apart(each, one) for each in found.values()) < 1e-6
    assert apart(found["sharded"], found["ddp"]) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("family", ["infonce", "dino", "uvit", "sit"])
def test_every_objective_agrees_with_ddp_after_twenty_steps(family, tmp_path):
    """Batch norms and negatives amplify rounding, with DDP as well: as in R11, these runs agree to 1e-4."""
    for name, runtime in (("ddp", {}), ("both", BOTH)):
        complete(tmp_path / name, 2, family=family, **runtime)
    distance = apart(weights(tmp_path / "both"), weights(tmp_path / "ddp"))
    print(f"R32 {family}, 20 steps, --shard --checkpoint-activations against DDP: {distance:.1e}")
    assert distance < (1e-4 if family == "infonce" else 1e-6)


@pytest.mark.slow
def test_recomputation_by_one_process_changes_no_bit(alone, tmp_path):
    complete(tmp_path / "recomputed", 1, checkpoint_activations=True)
    assert torch.equal(weights(alone), weights(tmp_path / "recomputed"))


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2])
def test_a_checkpoint_of_two_sharded_ranks_is_resumed_by_others_and_back(world, alone, tmp_path):
    """Ten steps sharded, five by one process or by two with DDP, five sharded: against twenty of one process."""
    out, golden = tmp_path / "run", losses(alone)
    complete(out, 2, patch=_until(10), **BOTH)
    complete(out, world, patch=_until(15), resume=True)
    complete(out, 2, resume=True, **SHARDED)
    difference = max(abs(a - b) for a, b in zip(losses(out), golden, strict=True))
    distance = apart(weights(out), weights(alone))
    print(f"R32 2 sharded -> {world} -> 2 sharded: losses within {difference:.1e}, weights within {distance:.1e}")
    assert difference < 1e-6 and distance < 1e-6


def _until(step: int) -> str:
    """A signal after this step: the run saves and stops."""
    return f"""
import os, signal, echoless.training.loop as loop
original = loop.take_step
def take_step(trainee, batch, stop):
    return original(trainee, batch, lambda: stop() or batch.step + 1 == {step})
loop.take_step = take_step
"""


@pytest.mark.slow
def test_resuming_sharded_what_was_sharded_is_bitwise(tmp_path):
    complete(tmp_path / "whole", 2, **BOTH)
    complete(tmp_path / "parts", 2, patch=_until(7), **BOTH)
    complete(tmp_path / "parts", 2, resume=True, **BOTH)
    for group, tensors in load_checkpoint(tmp_path / "whole/checkpoints/step-00000020").tensors.items():
        again = load_checkpoint(tmp_path / "parts/checkpoints/step-00000020").tensors[group]
        assert all(torch.equal(tensors[name], again[name]) for name in tensors), group
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "tolerance"),
    [
        ("fade_in=0.5", 1e-6),
        ("accumulate=2", 1e-6),
        ("accumulate=8, batch_size=15", 1e-6),  # one process has 7 samples, and takes part in 8 pieces
        ("precision='bf16'", 1e-4),  # rounds a weight to 8 bits: a difference in the last of 24 may become one of these
        ("optim=replace(config.optim, clip_by='parameter')", 1e-6),
        ("optim=replace(config.optim, clip=1e-3)", 1e-6),
    ],
)
def test_settings_of_the_step_are_as_exact_under_shard(change, tolerance, tmp_path):
    patch = f"config = replace(config, {change})"
    for name, runtime in (("ddp", {}), ("sharded", BOTH)):
        complete(tmp_path / name, 2, patch=patch, **runtime)
    distance = apart(weights(tmp_path / "sharded"), weights(tmp_path / "ddp"))
    print(f"R32 {change}: sharded against DDP {distance:.1e}")
    assert distance < tolerance


NAN_IN_THE_PART_OF_RANK_1 = """
import echoless.training.step as step
original = step._backward
def backward(trainee, batch, draws, **weighted):
    if batch.step == 6 and trainee.team.rank == 1:
        next(trainee.model.parameters()).to_local().detach()[0] = float("nan")
    return original(trainee, batch, draws, **weighted)
step._backward = backward
"""


def test_a_weight_that_is_not_finite_in_the_part_of_one_rank_is_named_by_both(tmp_path):
    done = run(tmp_path / "run", 2, patch=NAN_IN_THE_PART_OF_RANK_1, steps=8, **SHARDED)
    assert [process.returncode for process in done] == [3, 3], [process.stderr for process in done]
    assert all("parameter encoder.cls_token" in process.stdout for process in done), [each.stdout for each in done]
