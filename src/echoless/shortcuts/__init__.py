"""The idea: x_{l+1} = alpha_l * x_l + f_l(x_l). Imports torch and nothing of ours, so it can be lifted anywhere."""

from echoless.shortcuts.fold import (
    PreNormBranch,
    PreNormNetwork,
    fold,
    reschedule,
    shortcut_record,
    stream_factors,
    unfold,
)
from echoless.shortcuts.patch import apply_saved, decay_shortcuts, undo
from echoless.shortcuts.report import FadedShortcut, LeftAlone, PatchReport
from echoless.shortcuts.residual import (
    VARIANTS,
    Faded,
    Learnable,
    NoShortcut,
    Scaled,
    Shortcut,
    magnitude_preserving,
    make_shortcut,
    residual,
)
from echoless.shortcuts.schedule import (
    AlphaChoice,
    alpha_min_for,
    alphas,
    choose_alpha_min,
    contributions,
    effective_alpha,
)

__all__ = [
    "VARIANTS",
    "AlphaChoice",
    "Faded",
    "FadedShortcut",
    "Learnable",
    "LeftAlone",
    "NoShortcut",
    "PatchReport",
    "PreNormBranch",
    "PreNormNetwork",
    "Scaled",
    "Shortcut",
    "alpha_min_for",
    "alphas",
    "apply_saved",
    "choose_alpha_min",
    "contributions",
    "decay_shortcuts",
    "effective_alpha",
    "fold",
    "magnitude_preserving",
    "make_shortcut",
    "reschedule",
    "residual",
    "shortcut_record",
    "stream_factors",
    "undo",
    "unfold",
]
