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
from echoless.shortcuts.skipless import init_skipless_, orthogonal_pair, query_key_pair, uniform_orthogonal
from echoless.shortcuts.transformer import SelfAttention, TransformerBlock, evaluating, find_blocks

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
    "SelfAttention",
    "Shortcut",
    "TransformerBlock",
    "alpha_min_for",
    "alphas",
    "apply_saved",
    "choose_alpha_min",
    "contributions",
    "decay_shortcuts",
    "effective_alpha",
    "evaluating",
    "find_blocks",
    "fold",
    "init_skipless_",
    "magnitude_preserving",
    "make_shortcut",
    "orthogonal_pair",
    "query_key_pair",
    "reschedule",
    "residual",
    "shortcut_record",
    "stream_factors",
    "undo",
    "unfold",
    "uniform_orthogonal",
]
