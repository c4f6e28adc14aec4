"""What is one training step? Forward, backward, a check for non-finite values on all processes, then the update."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import accumulate as accumulated

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from echoless.config import RunConfig
from echoless.data import Batch
from echoless.errors import NonFiniteError
from echoless.objectives import Draws, LossModule, Objective, Teaching, take
from echoless.objectives.objective import Seen
from echoless.runtime import Team
from echoless.training.fading_in import fade_to
from echoless.training.optim import clip_gradients, learning_rate, make_optimizer, set_rates, weight_decay
from echoless.training.recomputation import recompute_blocks
from echoless.training.sharding import divide, part_of, put_away


@dataclass
class Trainee:
    """Everything that a step reads and changes. `runner` is the loss module, wrapped by DDP and torch.compile.

    Between steps, the alphas are those after the updates that were done.
    sharded: every process holds a part of the weights. Whatever uses them is then done by all processes together.
    """

    config: RunConfig
    model: nn.Module
    objective: Objective
    optimizer: torch.optim.Optimizer
    ema: AveragedModel | None
    runner: nn.Module
    team: Team
    sharded: bool = False

    def observe(self, watch: Callable[[nn.Module], Seen]) -> Seen:
        """What `watch` returns of the model, which can compute meanwhile."""
        if not self.sharded:
            return watch(self.model)
        seen: Seen = self.runner.observe(watch)  # type: ignore[operator]
        put_away(self.runner)
        return seen


@dataclass(frozen=True, slots=True)
class StepReport:
    """The numbers of one step. `stop`: some process was asked to stop."""

    loss: float
    lr: float
    gradient_norm: float
    stop: bool


def make_trainee(
    config: RunConfig,
    model: nn.Module,
    objective: Objective,
    team: Team,
    *,
    shard: bool = False,
    recompute: bool = False,
) -> Trainee:
    """shard: divide the weights among the processes. recompute: the blocks, in the backward pass."""
    sharded = shard and team.world > 1
    model = model.train() if sharded else model.to(team.device).train()  # only its part may fit on the device
    ema = None
    if config.optim.ema is not None:
        ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(config.optim.ema))
    if recompute:
        recompute_blocks(model)
    loss = LossModule(model, objective)
    if sharded:
        runner: nn.Module = divide(loss, team, "observe")
        if ema is not None:
            divide(ema.module, team)
    else:
        runner = team.wrap(loss)
    if config.compile:
        runner = torch.compile(runner)  # type: ignore[assignment]
    return Trainee(config, model, objective, make_optimizer(model, config.optim), ema, runner, team, sharded)


def take_step(trainee: Trainee, batch: Batch, stop_requested: Callable[[], bool] = bool) -> StepReport:
    """One update, or `NonFiniteError` and no update at all.

    stop_requested: asked when the gradients are there, because a step may take minutes: a signal during a step is to
    end the run after that step, not after the next.
    """
    config, team = trainee.config, trainee.team
    lr = learning_rate(batch.step, steps=config.steps, batch_size=config.batch_size, config=config.optim)
    set_rates(trainee.optimizer, lr, weight_decay(batch.step, steps=config.steps, config=config.optim))
    trainee.optimizer.zero_grad(set_to_none=True)
    draws = trainee.objective.draw(config.batch_size, config.seed, batch.step)

    present = batch if len(batch.ids_B) else _stand_in(batch)
    draws = take(draws, present.places_B, team.device) | present.views
    loss = _backward(trainee, present, draws, weight=float(present is batch))
    if isinstance(trainee.objective, Teaching):
        trainee.objective.before_update(trainee.model, batch.step)
    # The host waits for the device here, and nowhere else in a step.
    mean_loss, norm = torch.stack([team.mean(loss), clip_gradients(trainee.model, config.optim)]).tolist()
    # One exchange carries both verdicts, so that all processes update, or all stop, at the same step.
    broken, stop = team.maximum(float(not math.isfinite(mean_loss + norm)), float(stop_requested()))
    if broken:
        raise NonFiniteError(_describe(trainee, batch, mean_loss))
    trainee.optimizer.step()
    if isinstance(trainee.objective, Teaching):
        trainee.objective.after_update(trainee.model, batch.step)
    if trainee.ema is not None:
        trainee.ema.update_parameters(trainee.model)
    fade_to(config, batch.step + 1, trainee.model, trainee.ema)
    return StepReport(mean_loss, lr, norm, bool(stop))


def _stand_in(batch: Batch) -> Batch:
    """A black image instead of none. Files can turn out to be bad while training: a process that has lost all of its
    samples must exchange gradients all the same, or the others would wait for it. It weighs nothing."""
    first = torch.zeros(1, dtype=torch.int64)
    return replace(
        batch,
        images_BCHW=_black(batch.images_BCHW),
        ids_B=first,
        places_B=first,
        labels_B=None if batch.labels_B is None else first,
        views={name: _black(view) for name, view in batch.views.items()},
    )


def _black(none_BCHW: Tensor) -> Tensor:
    return none_BCHW.new_zeros(1, *none_BCHW.shape[1:])


def _backward(trainee: Trainee, batch: Batch, draws: Draws, weight: float = 1.0) -> Tensor:
    """Accumulate the gradient of this process's part of the batch; returns its share of the mean loss."""
    config, team = trainee.config, trainee.team
    pieces = _pieces(len(batch.ids_B), config.accumulate, trainee.sharded)
    total = torch.zeros((), device=team.device)
    for index, (piece, counted) in enumerate(pieces):
        images = batch.images_BCHW[piece].to(team.device, non_blocking=True)
        labels = None if batch.labels_B is None else batch.labels_B[piece].to(team.device, non_blocking=True)
        # Each sample weighs 1 / batch_size, however the batch was cut; averaging over processes divides by `world`.
        share = weight * counted * team.world / config.batch_size
        with _quiet(trainee.runner, last=index == len(pieces) - 1), _precision(config, team):
            loss = trainee.runner(images, labels, take(draws, piece, team.device)) * share
            loss.backward()
        total += loss.detach()
    return total


def _pieces(samples: int, accumulate: int, sharded: bool) -> list[tuple[slice, int]]:
    """The samples of every micro-batch, and how many of them count.

    None is empty: the last one is that after which processes exchange their gradients. In a sharded run they exchange
    weights in every one, so that all processes need the same number: one sample that does not count fills a gap.
    """
    count = accumulate if sharded else min(accumulate, max(1, samples))
    sizes = [samples // count + (place < samples % count) for place in range(count)]
    starts = accumulated(sizes, initial=0)
    return [(slice(start, start + size) if size else slice(0, 1), size) for start, size in zip(starts, sizes)]


def _quiet(runner: nn.Module, last: bool) -> contextlib.AbstractContextManager[object]:
    """Synchronise gradients once per step, after the last micro-batch."""
    return contextlib.nullcontext() if last or not hasattr(runner, "no_sync") else runner.no_sync()  # type: ignore[operator]


def _precision(config: RunConfig, team: Team) -> contextlib.AbstractContextManager[object]:
    if config.precision == "bf16":
        return torch.autocast(team.device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def non_finite_parameter(trainee: Trainee) -> str | None:
    """The name of the first parameter that is not finite."""
    return _non_finite(trainee, trainee.model.named_parameters())


def _non_finite_gradient(trainee: Trainee) -> str | None:
    gradients = ((name, each.grad) for name, each in trainee.model.named_parameters())
    return _non_finite(trainee, ((name, grad) for name, grad in gradients if grad is not None))


def _non_finite(trainee: Trainee, tensors: Iterable[tuple[str, Tensor]]) -> str | None:
    """The name of the first of these tensors that is not finite, in the part of any process."""
    found = {name: float(not part_of(tensor).isfinite().all()) for name, tensor in tensors}
    broken = trainee.team.maximum(*found.values()) if trainee.sharded else found.values()
    return next((name for name, bad in zip(found, broken) if bad), None)


def _first_non_finite(trainee: Trainee) -> str:
    """A parameter before a gradient, because it explains it."""
    if (name := non_finite_parameter(trainee)) is not None:
        return f"parameter {name}"
    name = _non_finite_gradient(trainee)
    return "loss" if name is None else f"gradient of {name}"


def _describe(trainee: Trainee, batch: Batch, loss: float) -> str:
    where = _first_non_finite(trainee)
    samples = ", ".join(map(str, batch.ids_B[:16].tolist())) + (", ..." if len(batch.ids_B) > 16 else "")
    return (
        f"step {batch.step + 1} is not finite (loss {loss:g}, {where}); no update was applied and the last checkpoint "
        f"stands; samples: {samples}; a lower base_lr, or clip, or fp32 usually helps"
    )
