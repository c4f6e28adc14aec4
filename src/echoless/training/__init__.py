"""Training that loses no work: an exact loop, its steps, its state, and who it runs with."""

from echoless.training.distributed import Team, choose_device, join_team, leave_team
from echoless.training.loop import Session, train
from echoless.training.optim import learning_rate, make_optimizer
from echoless.training.progress import Progress, duration
from echoless.training.signals import StopRequest
from echoless.training.step import StepReport, Trainee, make_trainee, take_step
from echoless.training.task import build_task
from echoless.training.tensorboard import require_tensorboard
from echoless.training.warmstart import require_source, warm_start

__all__ = [
    "Progress",
    "Session",
    "StepReport",
    "StopRequest",
    "Team",
    "Trainee",
    "build_task",
    "choose_device",
    "duration",
    "join_team",
    "learning_rate",
    "leave_team",
    "make_optimizer",
    "make_trainee",
    "require_source",
    "require_tensorboard",
    "take_step",
    "train",
    "warm_start",
]
