"""echoless: fade the identity shortcuts of a network with depth, and measure what its features gain.

Names are loaded when they are first used (PEP 562), so that `import echoless` is instant.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "alphas": "shortcuts",
    "alpha_min_for": "shortcuts",
    "contributions": "shortcuts",
    "fade": "shortcuts",
    "unfade": "shortcuts",
    "effective_alpha": "shortcuts",
    "fold": "shortcuts",
    "init_skipless_": "shortcuts",
    "residual": "shortcuts",
    "unfold": "shortcuts",
    "MAE": "models",
    "ViT": "models",
    "mae_preset": "config",
    "masked_loss": "objectives",
    "random_masking": "objectives",
    "generator_for": "randomness",
    "export_encoder": "exchange",
    "import_checkpoint": "exchange",
    "inspect_model": "exchange",
    "load_hf_vitmae": "exchange",
    "attention_diagonality": "evaluation.jacobians",
    "jacobian_condition": "evaluation.jacobians",
    "load": "evaluation.frozen",
    "pretrain": "verbs.pretrain",
    "evaluate": "verbs.evaluate",
    "embed": "verbs.embed",
    "finetune": "verbs.finetune",
    "sample": "verbs.sample",
    "demo": "verbs.demo",
    "sweep": "verbs.sweep",
    "report": "reports.page",
}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'echoless' has no attribute {name!r}")
    return getattr(import_module(f"echoless.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
