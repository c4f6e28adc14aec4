"""The training loop, its steps, its state, and exact resume."""

from echoless.training.loop import Session, begin, train
from echoless.training.optim import learning_rate, make_optimizer
from echoless.training.step import StepReport, Trainee, make_trainee, take_step
from echoless.training.task import build_task
from echoless.training.tracking import require_trackers
from echoless.training.warmstart import require_source, warm_start

__all__ = [
    "Session",
    "StepReport",
    "Trainee",
    "begin",
    "build_task",
    "learning_rate",
    "make_optimizer",
    "make_trainee",
    "require_source",
    "require_trackers",
    "take_step",
    "train",
    "warm_start",
]
