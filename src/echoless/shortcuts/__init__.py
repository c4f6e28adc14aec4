"""Fading residual shortcuts: x_{l+1} = alpha_l * x_l + f_l(x_l), the "decayed identity shortcuts" of arXiv:2404.10947.

Imports torch and nothing else of echoless, so that the package can be copied into any project.
"""

from echoless.shortcuts.fading import fade, fade_saved, unfade
from echoless.shortcuts.fold import (
    PreNormBranch,
    PreNormNetwork,
    fold,
    reschedule,
    shortcut_record,
    stream_factors,
    unfold,
)
from echoless.shortcuts.modes import evaluating
from echoless.shortcuts.report import FadedShortcut, FadeReport, LeftAlone
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
from echoless.shortcuts.transformer import SelfAttention, TransformerBlock, find_blocks

__all__ = [
    "VARIANTS",
    "AlphaChoice",
    "FadeReport",
    "Faded",
    "FadedShortcut",
    "Learnable",
    "LeftAlone",
    "NoShortcut",
    "PreNormBranch",
    "PreNormNetwork",
    "Scaled",
    "SelfAttention",
    "Shortcut",
    "TransformerBlock",
    "alpha_min_for",
    "alphas",
    "choose_alpha_min",
    "contributions",
    "effective_alpha",
    "evaluating",
    "fade",
    "fade_saved",
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
    "unfade",
    "unfold",
    "uniform_orthogonal",
]
