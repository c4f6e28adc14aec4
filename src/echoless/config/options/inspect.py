"""Which arguments does `inspect` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from echoless.config.model import Fade, Schedule
from echoless.config.options.fields import AnyPath


@dataclass(frozen=True)
class InspectOptions:
    """List the shortcuts of a model of any library, and the alpha that `fade` would give each.

    The model is built from its config with random weights and run once on an example; no weights are read. Of a model
    that was faded before it was saved: the alphas that were saved with it. Of a run or an encoder folder: its layers by
    name, tokens x width, and the alphas it was trained with.
    """

    EXAMPLES = (
        "echoless inspect RUN",
        "echoless inspect timm:vit_small_patch16_224",
        "echoless inspect FOLDER --alpha-min 0.7 --fade mlp",
    )

    model: AnyPath
    """A transformers or diffusers folder (or its config.json), timm:NAME, torchvision:NAME, or a timm name; or a
    run or encoder folder of ours."""
    _: KW_ONLY

    alpha_min: float | Literal["auto"] = "auto"
    """Coefficient of the last identity shortcut; auto derives it from the number of shortcuts."""
    schedule: Schedule = "linear"
    """How alpha falls with depth."""
    fade: Fade = "both"
    """Which shortcuts to fade."""
    within: tuple[str, ...] | None = None
    """Only shortcuts in these modules: names, or patterns such as `encoder.layer.1?`."""
