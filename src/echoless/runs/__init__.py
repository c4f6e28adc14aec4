"""What is on the disk for a run, and how it is read and written so that no instant can lose work.

Trained weights are opened by `echoless.runs.open`, which alone needs the models.
"""

from echoless.runs.checkpoint import (
    Checkpoint,
    Found,
    Skipped,
    checkpoint_folders,
    find_latest_valid,
    load_checkpoint,
    save_checkpoint,
    verify_checkpoint,
)
from echoless.runs.folder import RunFolder, check_run, open_run
from echoless.runs.optim_state import flatten_state, unflatten_state
from echoless.runs.weights import Weights, load_weights, require_same_shortcuts, save_weights

__all__ = [
    "Checkpoint",
    "Found",
    "RunFolder",
    "Skipped",
    "Weights",
    "check_run",
    "checkpoint_folders",
    "find_latest_valid",
    "flatten_state",
    "load_checkpoint",
    "load_weights",
    "open_run",
    "require_same_shortcuts",
    "save_checkpoint",
    "save_weights",
    "unflatten_state",
    "verify_checkpoint",
]
