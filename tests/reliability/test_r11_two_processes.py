"""R11, and R9 and R10 across ranks: two processes compute what one does, and stop together."""

from __future__ import annotations

import pytest
import torch
from processes import run, weights

DOUBLE = """
import echoless.training.step as step, echoless.training.launch as launch
make, backward = step.make_trainee, step._backward
launch.make_trainee = lambda config, model, *rest, **more: make(config, model.double(), *rest, **more)
def double_backward(trainee, batch, draws, **weighted):
    return backward(trainee, replace(batch, images_BCHW=batch.images_BCHW.double()), draws, **weighted)
step._backward = double_backward
import echoless.training.loop as loop
loop.look = lambda *_: {}  # its probe batch is of single precision
torch.Tensor.float = torch.Tensor.double
"""


@pytest.mark.parametrize(
    ("patch", "tolerance"), [("", 1e-6), pytest.param(DOUBLE, 1e-13, marks=pytest.mark.slow)], ids=["fp32", "fp64"]
)
def test_two_processes_equal_two_pieces_bitwise_and_one_batch_closely(patch, tolerance, tmp_path):
    for name, world, accumulate in (("two", 2, 1), ("pieces", 1, 2), ("one", 1, 1)):
        for done in run(tmp_path / name, world, accumulate, patch):
            assert done.returncode == 0, done.stderr
    two, pieces, one = (weights(tmp_path / name) for name in ("two", "pieces", "one"))
    relative = float((two - one).norm() / one.norm())
    print(f"R11 two processes against two pieces: equal={torch.equal(two, pieces)}; against one batch: {relative:.1e}")
    assert torch.equal(two, pieces)
    assert relative < tolerance


STRANGERS = """
import echoless.models.global_batch
echoless.models.global_batch.alone = lambda: True
"""


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["infonce", "dino"])
def test_negatives_batch_statistics_and_the_centre_are_those_of_the_whole_batch(objective, tmp_path):
    """As a control, processes that do not ask each other: other keys, norms and centres, far more than rounding."""
    for name, world, patch in (("two", 2, ""), ("one", 1, ""), ("strangers", 2, STRANGERS)):
        for done in run(tmp_path / name, world, patch=patch, family=objective):
            assert done.returncode == 0, done.stderr
    two, one, strangers = (weights(tmp_path / name) for name in ("two", "one", "strangers"))
    relative, apart = (float((other - one).norm() / one.norm()) for other in (two, strangers))
    print(f"R11 {objective}: two processes against one, all state included: {relative:.1e}; strangers {apart:.1e}")
    assert relative < 1e-4 < apart


@pytest.mark.slow
@pytest.mark.parametrize("family", ["uvit", "sit"])
def test_two_processes_train_the_diffusion_model_of_two_pieces_bitwise(family, tmp_path):
    for name, world, accumulate in (("two", 2, 1), ("pieces", 1, 2)):
        for done in run(tmp_path / name, world, accumulate, family=family):
            assert done.returncode == 0, done.stderr
    two, pieces = (weights(tmp_path / name) for name in ("two", "pieces"))
    print(f"R11 {family}, two processes against two pieces: equal={torch.equal(two, pieces)}")
    assert torch.equal(two, pieces)


NAN_ON_RANK_1 = """
import os, echoless.training.step as step
original = step._backward
def backward(trainee, batch, draws, **weighted):
    loss = original(trainee, batch, draws, **weighted)
    return loss * float("nan") if batch.step == 6 and trainee.team.rank == 1 else loss
step._backward = backward
"""


def test_a_loss_that_is_not_finite_on_one_rank_stops_both(tmp_path):
    done = run(tmp_path / "run", 2, patch=NAN_ON_RANK_1)
    assert [process.returncode for process in done] == [3, 3], [process.stderr for process in done]
    assert all("REFUSED NonFiniteError" in process.stdout for process in done)


BROKEN_ON_RANK_1 = """
from echoless.models import MAE
import os
forward, calls = MAE.forward, []
def breaking(self, *inputs, **options):
    calls.append(1)
    if len(calls) == 6 and os.environ["RANK"] == "1":
        raise RuntimeError("out of memory, say")
    return forward(self, *inputs, **options)
MAE.forward = breaking
"""


@pytest.mark.slow
def test_an_error_of_one_rank_in_the_middle_of_a_step_ends_both(tmp_path):
    """The error keeps the wrapped model alive, and the other rank waits for its gradients."""
    done = run(tmp_path / "run", 2, patch=BROKEN_ON_RANK_1)
    assert [process.returncode for process in done] == [1, 1], [process.stderr for process in done]
    assert "out of memory, say" in done[1].stderr
    print("R11 an error of one of two ranks in its forward: both ended")


SIGTERM_ON_RANK_1 = """
import os, signal, echoless.training.loop as loop
original = loop.take_step
def take_step(trainee, batch, stop):
    if batch.step == 6 and trainee.team.rank == 1:
        os.kill(os.getpid(), signal.SIGTERM)
    return original(trainee, batch, stop)
loop.take_step = take_step
"""


def test_a_signal_to_one_rank_stops_both_and_saves(tmp_path):
    done = run(tmp_path / "run", 2, patch=SIGTERM_ON_RANK_1)
    assert [process.returncode for process in done] == [0, 0], [process.stderr for process in done]
    assert all("STOPPED" in process.stdout for process in done)
    (saved,) = {int(p.name[5:]) for p in (tmp_path / "run" / "checkpoints").glob("step-*")} - {4}
    print(f"R10 SIGTERM to one of two ranks before step 7: both stopped, saved after step {saved}")
    assert saved in (7, 8)
