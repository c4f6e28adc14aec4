"""How do shortcuts fade in? Every alpha moves from 1 to its target over the first share of a run (`--fade-in`).

The alphas are a function of the number of updates done, so that nothing has to be saved for an exact resume. They are
equal in all copies of the body: teacher, momentum encoder, averaged weights.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from echoless.config import RunConfig
from echoless.config.training import is_faded_in, model_after
from echoless.models.body import Backbone
from echoless.shortcuts import Faded, alphas, effective_alpha


def alphas_after(config: RunConfig, step: int) -> tuple[float, ...]:
    """One for each shortcut of the body, in the order of the stream."""
    body = model_after(config, step).body
    wanted = body.shortcuts
    return alphas(
        **body.fades_over,
        alpha_min=1.0 if wanted.variant == "identity" else wanted.alpha_min,
        schedule=wanted.schedule,
        per=wanted.per,
        fade=wanted.fade,
    )


def fade_to(config: RunConfig, step: int, *models: nn.Module | None) -> None:
    """Sets the alphas of every body in these models to those after `step` updates; does nothing without --fade-in."""
    if config.fade_in is None:
        return
    reached, stands = alphas_after(config, step), is_faded_in(config, step)
    bodies = [part for model in models if model is not None for part in model.modules() if isinstance(part, Backbone)]
    for body in bodies:
        for shortcut, alpha in zip(body.shortcuts, reached, strict=True):
            assert isinstance(shortcut, Faded)
            (shortcut.stand if stands else shortcut.move)(alpha)


def fading_in_facts(config: RunConfig) -> dict[str, Any]:
    """For about.json."""
    return {} if config.fade_in is None else {"fade_in_steps": round(config.fade_in * config.steps)}


def fading_in_line(config: RunConfig, step: int) -> dict[str, Any]:
    """For a line of metrics.jsonl: every alpha after `step` updates, the last one as alpha_min."""
    if config.fade_in is None:
        return {}
    reached = alphas_after(config, step)
    named = {f"{index:02d}": alpha for index, alpha in enumerate(reached)}
    return {"alpha_min": min(reached), "effective_alpha": effective_alpha(reached), "alpha": named}
